"""Files of runs: a state is put back as it was, and runs that were saved with the repository stay readable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from rankscope.errors import DataError
from rankscope.io import codec
from rankscope_lab.encoders.run_spec import RunResult as EncoderResult
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
    write_state(tmp_path / "a" / "state", training_tensors(first, adam), {"epoch": 3})
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
