"""Two processes train the model that one process trains."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rankscope.errors import OutputError
from rankscope.train import pretrain
from rankscope.train.config import Snapshots, Validation
from rankscope.train.stream import Blocks, open_corpus

BIN = Path(sys.executable).parent
PLAIN = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
PORT = 29700 + os.getpid() % 200


def under_torchrun(arguments):
    """``torchrun --nproc-per-node 2``: torch's own launcher, which ``accelerate launch --multi_gpu`` calls, too."""
    command = [BIN / "torchrun", "--nproc-per-node", "2", "--standalone", "-m", "rankscope_cli", *arguments]
    return [subprocess.Popen(command, env=PLAIN, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)]


def under_accelerate(arguments):
    """``accelerate launch --num_processes 2 --cpu``, once per process, as mpirun starts it.

    Without mpirun this command starts a single process whatever its number says (accelerate issue 2741).
    """
    command = [BIN / "accelerate", "launch", "--num_processes", "2", "--cpu", "--main_process_port", str(PORT)]
    command += ["-m", "rankscope_cli", *arguments]
    place = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    return [
        subprocess.Popen(
            command,
            env={**PLAIN, **place, "RANK": rank, "LOCAL_RANK": rank},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    ]


def finish(processes):
    """Wait for all; return exit codes, and stdout and stderr together."""
    try:
        said = [process.communicate(timeout=150) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [p.returncode for p in processes], "".join(out for out, _ in said), "".join(err for _, err in said)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "launch"), [("chronos-t5", under_torchrun), ("chronos-bolt", under_accelerate)], ids=["t5", "bolt"]
)
def test_two_processes_train_the_same_model(family, launch, tiny, write_config, curve, tmp_path):
    """Half the batch each: the series are the same, and only the order of float32 additions differs.

    A sum over n series carries a relative error of about √n·6e-8; twelve steps of AdamW multiply it, at most by a
    factor of the learning rate where a gradient is nearly zero. Losses agree to 1e-5, and weights to 1e-4 of their
    size; a wrong scale of the loss, or other series, is off by more than a tenth at the first step already.
    """
    settings = {"max_steps": 12, "accumulation": 2, "save_steps": 5, "log_steps": 2, "precision": "fp32"}
    settings["spectra"] = Snapshots(steps=(0, 3))
    (tmp_path / "toy.yaml").write_text("- {name: nile, prediction_length: 4, offset: -4, embedded: nile}\n")
    settings["validation"] = Validation(every=6, series=1, suite=str(tmp_path / "toy.yaml"))
    pretrain(
        tiny(family, batch_size=8, **settings), tmp_path / "one", device="cpu", validate=lambda network: {"x": 1.0}
    )
    file = write_config(tmp_path / "run.yaml", tiny(family, batch_size=4, **settings))
    codes, out, err = finish(launch(["pretrain", str(file), "--out", str(tmp_path / "two"), "--device", "cpu"]))
    assert set(codes) == {0}, err
    assert curve(tmp_path / "two") == pytest.approx(curve(tmp_path / "one"), rel=1e-5)
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name in one:
        assert torch.linalg.norm(one[name] - two[name]) <= 1e-4 * torch.linalg.norm(one[name]), name
    assert out.count("parameters, 12 steps") == 1
    assert sum("12/12 loss" in line for line in err.splitlines()) == 1, err
    assert curve(tmp_path / "two", "step", "validation.csv") == [6, 12]
    assert curve(tmp_path / "two", "step") == [2, 4, 6, 8, 10, 12]
    assert not list(tmp_path.glob("*.run"))


def in_two_processes(*commands):
    """Exit codes of each command, and all that was said on stderr."""
    script = Path(__file__).with_name("ranks.py")
    done = subprocess.run(
        [sys.executable, script, json.dumps(commands)], env=PLAIN, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.slow
def test_an_error_is_said_once_and_ends_all_processes(tiny, write_config, tmp_path):
    """One that only the first process looks for, one that all find before they are joined, one that all find after."""
    (tmp_path / "there").mkdir()
    (tmp_path / "bad.yaml").write_text("family: chronos-t6")
    file = write_config(tmp_path / "run.yaml", tiny())
    shards = write_config(tmp_path / "shards.yaml", tiny(shards=str(tmp_path / "nowhere")))
    codes, said = in_two_processes(
        ["pretrain", str(file), "--out", str(tmp_path / "there"), "--device", "cpu"],
        ["pretrain", str(tmp_path / "bad.yaml"), "--out", str(tmp_path / "out"), "--device", "cpu"],
        ["pretrain", str(shards), "--out", str(tmp_path / "out"), "--device", "cpu"],
    )
    assert codes == [[2, 2]] * 3, said
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert [part for line in errors for part in ("exists already", "chronos-t6", "nowhere") if part in line] == [
        "exists already",
        "chronos-t6",
        "nowhere",
    ], said
    assert len(errors) == 3, said
    assert list((tmp_path / "there").iterdir()) == []
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_two_processes_resume_to_the_bit(tiny, write_config, same_weights, tmp_path):
    config = tiny(max_steps=10, batch_size=2, save_steps=4, log_steps=3, precision="fp32")
    file = write_config(tmp_path / "run.yaml", config)
    whole, out = (
        ["pretrain", str(file), "--out", str(tmp_path / name), "--device", "cpu"] for name in ("whole", "out")
    )
    codes, said = in_two_processes(whole, ["kill", "9", *out])
    assert codes[0] == [0, 0], said
    assert codes[1][0] == -9
    assert {path.name for path in (tmp_path / "out.run" / "checkpoint-8").glob("rng*")} == {
        "rng_state_0.pth",
        "rng_state_1.pth",
    }
    with pytest.raises(OutputError, match="processes 2, not 1"):
        pretrain(config, tmp_path / "out", device="cpu", resume=True)
    codes, said = in_two_processes([*out, "--resume"])
    assert codes == [[0, 0]], said
    assert (tmp_path / "out" / "loss.csv").read_bytes() == (tmp_path / "whole" / "loss.csv").read_bytes()
    assert same_weights(tmp_path / "out", tmp_path / "whole")


def test_blocks_hold_the_same_series_however_they_are_dealt_out(tiny, tmp_path):
    (tmp_path / "run").mkdir()
    corpus = open_corpus(tiny(batch_size=8), tmp_path / "run", False, lambda *report: None)
    assert isinstance(corpus, Blocks)
    whole = corpus.__getitems__(range(8, 24))
    parts = [corpus.__getitems__(range(start, start + 4)) for start in (8, 12, 16, 20)]
    for row, again in zip(whole, [row for part in parts for row in part], strict=True):
        assert torch.equal(row["target"], again["target"])
        assert torch.equal(row["context"].nan_to_num(9e9), again["context"].nan_to_num(9e9))
    assert not torch.equal(whole[0]["target"], whole[8]["target"])


def test_a_block_is_generated_once_per_batch():
    class Numbers:
        def __init__(self):
            self.asked = []

        def __len__(self):
            return 100

        def __getitems__(self, indices):
            self.asked.append((indices[0], len(indices)))
            return [{"n": index} for index in indices]

    stream = Numbers()
    assert [row["n"] for row in Blocks(stream, 48).__getitems__(range(24, 72))] == list(range(24, 72))
    assert stream.asked == [(0, 48), (48, 48)]
    assert Blocks(stream, 48)[7] == {"n": 7}
    assert {size: Blocks(stream, size).size for size in (3, 100, 128, 97)} == {3: 3, 100: 50, 128: 64, 97: 97}
