"""Files of runs: a state is put back as it was, and runs that were saved with the repository stay readable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from rankscope.errors import DataError
from rankscope.io import codec
from rankscope_lab.encoders.data import run_data
from rankscope_lab.encoders.run_spec import RunResult as EncoderResult
from rankscope_lab.encoders.run_spec import RunSpec
from rankscope_lab.encoders.stacked import train_stacked
from rankscope_lab.encoders.training import ComputeOptions, train
from rankscope_lab.runs import read_state, restore_training, training_tensors, write_state
from rankscope_lab.slt.run_spec import RunResult as SltResult


def made(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    model.unused = nn.Parameter(torch.randn(2))
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def steps(model, adam, count):
    for _ in range(count):
        adam.zero_grad()
        model(torch.linspace(-1, 1, 15).view(5, 3)).square().mean().backward()
        adam.step()


def test_a_training_that_was_put_back_goes_on_as_it_would_have(tmp_path):
    """Weights, running statistics and the optimiser's moments: three steps, a stop, two more; against five."""
    whole, adam = made(0)
    steps(whole, adam, 5)
    first, adam = made(0)
    steps(first, adam, 3)
    left = tmp_path / "a" / ".state.a1b2c3d4.partial"  # of a run that was killed while it wrote
    left.mkdir(parents=True)
    write_state(tmp_path / "a" / "state", training_tensors(first, adam), {"epoch": 3})
    assert not left.exists()
    other, adam = made(1)
    found = read_state(tmp_path / "a" / "state")
    assert found is not None
    tensors, about = found
    assert about == {"epoch": 3}
    restore_training(tensors, other, adam)
    steps(other, adam, 2)
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], value, rtol=0, atol=0, msg=name)


def test_no_file_a_damaged_file_and_another_model(tmp_path):
    assert read_state(tmp_path / "state") is None
    (tmp_path / "state").write_bytes(b"12345678 not a state")
    with pytest.raises(DataError, match="cannot be read: delete it"):
        read_state(tmp_path / "state")
    model, adam = made(0)
    with pytest.raises(KeyError):
        restore_training({}, model, adam)


ABOUT = {
    "nothing": None,
    "no key": {"other": "1"},
    "not JSON": {"about": "{"},
    "too deep": {"about": "[" * 3000},
    "a list": {"about": "[1]"},
    "an integer of 400 digits": {"about": '{"epoch": ' + "9" * 400 + "}"},
    "an integer of 5000 digits": {"about": '{"epoch": ' + "9" * 5000 + "}"},
}


@pytest.mark.parametrize("damage", ABOUT)
def test_what_a_state_says_of_itself_is_damaged(tmp_path, damage):
    save_file({"weight/a": torch.zeros(1)}, tmp_path / "state", metadata=ABOUT[damage])
    with pytest.raises(DataError, match="state cannot be read: delete it"):
        read_state(tmp_path / "state")


STATES = {
    "no weight": lambda t: {k: v for k, v in t.items() if not k.startswith("weight/")},
    "another shape": lambda t: {k: torch.zeros(7, 7) if k.startswith("weight/") else v for k, v in t.items()},
    "no random state": lambda t: {k: v for k, v in t.items() if not k.startswith("random/")},
    "a short random state": lambda t: t | {"random/global": torch.zeros(3, dtype=torch.uint8)},
    "a random state of floats": lambda t: t | {"random/order": torch.zeros(5056)},
    "half the moments": lambda t: {k: v for k, v in t.items() if not k.startswith("exp_avg_sq/")},
}


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("damage", STATES)
def test_a_state_that_does_not_fit_its_run(tmp_path, damage, stacked):
    specs = [RunSpec("linear", series=40, d_model=16, epochs=1, seed=seed) for seed in range(2)]
    files = [tmp_path / f"{spec.id}.state" for spec in specs]
    data = [run_data(spec) for spec in specs]
    how = ComputeOptions(kernels=False)

    def run():
        if stacked:
            train_stacked(specs, data, how, snapshots=files)
        else:
            train(specs[1], data[1], how, snapshot=files[1])

    run()
    tensors, about = read_state(files[1])
    write_state(files[1], STATES[damage](tensors), about)
    before = torch.get_rng_state()
    with pytest.raises(DataError, match="does not fit its run") as caught:
        run()
    torch.set_rng_state(before)
    assert str(files[1]) in str(caught.value)
    assert "\n" not in str(caught.value)


SAVED = Path(__file__).parents[2] / "benchmarks" / "results" / "lab"


@pytest.mark.parametrize(("study", "kind", "count"), [("encoders", EncoderResult, 82), ("slt", SltResult, 88)])
def test_every_saved_run_is_read_and_written_with_the_same_values(study: str, kind: type, count: int) -> None:
    files = sorted((SAVED / study).glob("*.json"))
    assert len(files) >= count
    for file in files:
        saved, run = json.loads(file.read_text()), codec.read(kind, file)
        assert run.spec.id == file.stem
        written = codec.plain(run)
        assert {key: written[key] for key in saved} == saved, file
