"""Going on after a stop: the very run, or none."""

import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from rankscope.errors import OptionError, OutputError
from rankscope.io.run_store import RunStore
from rankscope.train import pretrain
from rankscope.train.config import EmbeddingStart, Snapshots, Teacher, Validation
from rankscope.train.data.mixture import CORPUS_VERSION, Mixture
from rankscope.train.data.shard_writer import write_shards
from rankscope.train.data.synthesis import Synthesis
from rankscope.train.models import new_model
from rankscope.train.run_folder import SEAL, newest, seal, snapshots, tidy
from rankscope.train.spectra import read_spectra
from rankscope.train.trainer import MAY_CHANGE, read_checksums, training_run

ALONE = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


class Stop(Exception):
    pass


def stop_at(step):
    def stop(done, total, what):
        if "loss" in what and done == step:
            raise Stop

    return stop


def interrupt_after(step, done, total, what):
    if "loss" in what and done == step:
        signal.raise_signal(signal.SIGINT)


def stopped(config, out, step):
    """Leave an unfinished run behind."""
    with pytest.raises(Stop):
        pretrain(config, out, device="cpu", progress=stop_at(step))
    assert not out.exists()
    return out.with_name(f"{out.name}.run")


@pytest.mark.parametrize("family", [pytest.param("chronos-t5", marks=pytest.mark.slow), "chronos-bolt"])
def test_a_resumed_run_is_the_undisturbed_one(family, tiny, curve, same_weights, tmp_path):
    """Snapshots fall between log lines, dropout draws random numbers, and one batch is accumulated."""
    shape = dataclasses.replace(tiny().model, dropout_rate=0.2)
    config = tiny(family, model=shape, max_steps=11, save_steps=3, log_steps=4, accumulation=2)
    config = dataclasses.replace(config, spectra=Snapshots(steps=(0, 1), every=5), embedding=EmbeddingStart(rate=3.0))
    pretrain(config, tmp_path / "whole", device="cpu")
    stopped(config, tmp_path / "broken", 8)
    pretrain(config, tmp_path / "broken", device="cpu", resume=True)
    assert curve(tmp_path / "whole", "step") == [4, 8, 11]
    assert (tmp_path / "broken" / "loss.csv").read_bytes() == (tmp_path / "whole" / "loss.csv").read_bytes()
    assert same_weights(tmp_path / "broken", tmp_path / "whole")
    assert (tmp_path / "broken" / "spectra.parquet").read_bytes() == (
        tmp_path / "whole" / "spectra.parquet"
    ).read_bytes()


def test_ctrl_c_keeps_every_step(tiny, curve, same_weights, tmp_path):
    config = tiny(max_steps=9, save_steps=1000, log_steps=4)
    pretrain(config, tmp_path / "whole", device="cpu")
    with pytest.raises(KeyboardInterrupt):
        pretrain(config, tmp_path / "broken", device="cpu", progress=lambda *what: interrupt_after(4, *what))
    assert newest(tmp_path / "broken.run").step == 5  # the loss of step 4 is told within step 5
    pretrain(config, tmp_path / "broken", device="cpu", resume=True)
    assert curve(tmp_path / "broken", "step") == [4, 8, 9]
    assert (tmp_path / "broken" / "loss.csv").read_bytes() == (tmp_path / "whole" / "loss.csv").read_bytes()
    assert same_weights(tmp_path / "broken", tmp_path / "whole")


@pytest.mark.slow
def test_other_cadences_hold_from_the_snapshot_on(tiny, curve, same_weights, tmp_path):
    config = tiny(max_steps=12, save_steps=4, log_steps=4, spectra=Snapshots(steps=(0, 7)))
    pretrain(config, tmp_path / "whole", device="cpu")
    stopped(config, tmp_path / "broken", 8)
    free = {"log_steps": 2, "save_steps": 3, "keep_steps": (10,), "spectra": Snapshots(steps=(9,))}
    assert set(free) | {"validation"} == set(MAY_CHANGE)
    pretrain(dataclasses.replace(config, **free), tmp_path / "broken", device="cpu", resume=True)
    assert curve(tmp_path / "broken", "step") == [4, 6, 8, 10, 12]
    assert set(read_spectra(tmp_path / "broken")["step"]) == {0, 9}  # step 7 was taken again, without a log
    assert same_weights(tmp_path / "broken", tmp_path / "whole")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"learning_rate": 0.5}, "learning_rate 0.001, not 0.5"),
        ({"seed": 1}, "seed 0, not 1"),
        ({"batch_size": 5}, "batch_size"),
        ({"weight_decay": 0.0}, "weight_decay"),
        ({"beta2": 0.9}, "beta2"),
        ({"max_grad_norm": 9.0}, "max_grad_norm"),
        ({"precision": "bf16"}, "precision"),
        ({"compile": True}, "compile"),
        ({"gradient_checkpointing": True}, "gradient_checkpointing"),
        ({"max_steps": 9}, "max_steps 6, not 9"),
        ({"schedule": "cosine"}, "schedule"),
    ],
)
def test_another_run_is_refused_and_nothing_changes(changes, named, tiny, tmp_path):
    run = unfinished_run(tmp_path / "out", tiny())
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(OutputError, match=named) as caught:
        pretrain(tiny(**changes), tmp_path / "out", device="cpu", resume=True)
    assert "\n" not in str(caught.value)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def unfinished_run(out, config, read=None):
    """A run folder as `pretrain` leaves it at step 3, without the weights."""
    kept = training_run(config, out, "fp32", 1, read)
    with kept.open(resume=False, force=False):
        fake_snapshot(kept.folder, 3)
    run = kept.folder
    (run / "loss.csv").write_text("step,loss,learning_rate,grad_norm\n3,1.0,0.1,0.2\n4,1.0,0.1,0.2\n")
    return run


def test_what_else_a_run_is_a_function_of(tiny, tmp_path):
    unfinished_run(tmp_path / "out", tiny())
    for precision, processes, named in (
        ("bf16", 1, "arithmetic 'fp32', not 'bf16'"),
        ("fp32", 2, "processes 1, not 2"),
    ):
        with pytest.raises(OutputError, match=named):
            training_run(tiny(), tmp_path / "out", precision, processes).check(resume=True, force=False)
    wider = dataclasses.replace(tiny().model, d_model=32)
    with pytest.raises(OutputError, match=r"model\.d_model 16, not 32"):
        pretrain(tiny(model=wider), tmp_path / "out", device="cpu", resume=True)


@pytest.mark.slow
def test_a_run_goes_on_in_the_precision_that_it_began_with(tiny, tmp_path, monkeypatch, curve):
    config = tiny(precision="auto")
    monkeypatch.setattr("rankscope.train.loop.multiplies_bfloat16", lambda: True)
    pretrain(config, tmp_path / "whole", device="cpu")
    stopped(config, tmp_path / "out", 4)
    monkeypatch.setattr("rankscope.train.loop.multiplies_bfloat16", lambda: False)
    pretrain(config, tmp_path / "out", device="cpu", resume=True)
    assert curve(tmp_path / "out") == curve(tmp_path / "whole")
    pretrain(config, tmp_path / "other", device="cpu")
    assert curve(tmp_path / "other") != curve(tmp_path / "whole")


@pytest.mark.parametrize("begun", [1, None])
def test_a_run_does_not_go_on_with_another_corpus(begun, tiny, tmp_path):
    manifest = unfinished_run(tmp_path / "out", tiny()) / "_manifest.json"
    found = json.loads(manifest.read_text())
    assert found["settings"].pop("corpus_version") == CORPUS_VERSION
    found["settings"] |= {} if begun is None else {"corpus_version": begun}
    manifest.write_text(json.dumps(found))
    named = "with corpus_version 1" if begun else "without corpus_version"
    with pytest.raises(OutputError, match=f"begun {named}, not {CORPUS_VERSION}: go on as it was begun") as caught:
        pretrain(tiny(), tmp_path / "out", device="cpu", resume=True)
    assert "\n" not in str(caught.value)


@pytest.fixture(params=["files", "shards", "weights", "teacher", "inherited"])
def reading(request, tiny, tmp_path):
    """A run that reads something, and a file of that."""
    (tmp_path / "own.csv").write_text("".join(["id,time,value\n", *(f"a,{t},{t % 7}\n" for t in range(60))]))
    if request.param == "files":
        file = tmp_path / "own.csv"
        return tiny(mixture=Mixture(files=(str(file),), file_share=0.5)), file
    if request.param == "shards":
        write_shards(Synthesis("structured", 4, 48), tmp_path / "shards", workers=1)
        return tiny(shards=str(tmp_path / "shards")), tmp_path / "shards" / "shards.index.json"
    new_model(tiny()).save_pretrained(tmp_path / "model")
    name, file = str(tmp_path / "model"), tmp_path / "model" / "config.json"
    if request.param == "weights":
        return tiny(weights=name), file
    if request.param == "teacher":
        return tiny(teacher=Teacher(name)), file
    return tiny(embedding=EmbeddingStart("inherit", name)), file


def test_a_run_does_not_go_on_with_other_data(reading, tiny, tmp_path):
    config, file = reading
    run = unfinished_run(tmp_path / "out", config, read_checksums(config))
    training_run(config, tmp_path / "out", "fp32", 1, read_checksums(config)).check(resume=True, force=False)
    file.write_text(file.read_text() + "\n")
    with pytest.raises(OutputError, match=rf"with checksums\.{tmp_path}.*: go on as it was begun") as caught:
        pretrain(config, tmp_path / "out", device="cpu", resume=True)
    assert "\n" not in str(caught.value)
    manifest = json.loads((run / "_manifest.json").read_text())
    del manifest["settings"]["checksums"]  # as releases before this one began it
    (run / "_manifest.json").write_text(json.dumps(manifest))
    training_run(config, tmp_path / "out", "fp32", 1, read_checksums(config)).check(resume=True, force=False)


def test_a_run_that_reads_nothing_has_no_checksums(tiny, tmp_path):
    assert "checksums" not in training_run(tiny(), tmp_path / "out", "fp32", 1, read_checksums(tiny())).store.settings


def test_a_run_that_replaces_goes_on_without_being_told_again(tiny, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "config.json").write_text("{}")
    (tmp_path / "out" / "model.safetensors").write_text("old")
    kept = training_run(tiny(), tmp_path / "out", "fp32", 1)
    kept.check(resume=False, force=True)
    with kept.open(resume=False, force=True):
        fake_snapshot(kept.folder, 3)
    again = training_run(tiny(), tmp_path / "out", "fp32", 1)
    assert again.check(resume=True, force=False).step == 3
    assert again.replaces
    with pytest.raises(OptionError, match="mutually exclusive"):
        pretrain(tiny(), tmp_path / "out", device="cpu", resume=True, force=True)


def test_a_run_begun_with_force_is_gone_on_with_not_answered_by_what_it_replaces(tiny, curve, monkeypatch, tmp_path):
    pretrain(tiny(), tmp_path / "out", device="cpu")
    again = tiny(log_steps=2)
    with pytest.raises(Stop):
        pretrain(again, tmp_path / "out", device="cpu", force=True, progress=stop_at(4))
    with monkeypatch.context() as killed:
        killed.setattr(RunStore, "discard", lambda self: shutil.rmtree(self.root / "checkpoint-6"))
        pretrain(again, tmp_path / "out", device="cpu", resume=True)
    assert curve(tmp_path / "out", "step") == [2, 4, 6]
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    pretrain(again, tmp_path / "out", device="cpu", resume=True)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == files
    assert not (tmp_path / "out.run").exists()


@pytest.mark.slow
def test_the_end_may_move_before_the_decay_begins(tiny, same_weights, tmp_path):
    """The learning rate of the steps taken is the same under both ends, so the run is that of the later end."""
    late = tiny(schedule="warmup_stable_decay", max_steps=9, decay_steps=3)
    early = dataclasses.replace(late, max_steps=7, decay_steps=2)
    pretrain(late, tmp_path / "late", device="cpu")
    stopped(early, tmp_path / "moved", 5)
    pretrain(late, tmp_path / "moved", device="cpu", resume=True)
    assert same_weights(tmp_path / "moved", tmp_path / "late")

    stopped(dataclasses.replace(early, decay_steps=5), tmp_path / "begun", 5)
    with pytest.raises(OutputError, match="max_steps 7, not 9"):
        pretrain(late, tmp_path / "begun", device="cpu", resume=True)


@pytest.mark.slow
def test_a_run_without_a_snapshot_yet_starts_at_its_beginning(tiny, same_weights, tmp_path):
    config = tiny(save_steps=100)
    pretrain(config, tmp_path / "whole", device="cpu")
    stopped(config, tmp_path / "out", 2)
    pretrain(config, tmp_path / "out", device="cpu", resume=True)
    assert (tmp_path / "out" / "loss.csv").read_bytes() == (tmp_path / "whole" / "loss.csv").read_bytes()
    assert same_weights(tmp_path / "out", tmp_path / "whole")


@pytest.mark.slow
def test_a_run_stopped_after_its_last_step_takes_no_further_one(tiny, same_weights, monkeypatch, tmp_path):
    pretrain(tiny(), tmp_path / "whole", device="cpu")

    def fail(*args):
        raise Stop

    with monkeypatch.context() as broken:
        broken.setattr("rankscope.train.trainer._save", fail)
        with pytest.raises(Stop):
            pretrain(tiny(), tmp_path / "out", device="cpu")
    report = pretrain(tiny(), tmp_path / "out", device="cpu", resume=True)
    assert report.steps == 6
    assert (tmp_path / "out" / "loss.csv").read_bytes() == (tmp_path / "whole" / "loss.csv").read_bytes()
    assert same_weights(tmp_path / "out", tmp_path / "whole")


def test_a_finished_run_is_not_repeated_and_another_one_not_replaced(tiny, tmp_path):
    report = pretrain(tiny(), tmp_path / "out", device="cpu")
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    (tmp_path / "out.run").mkdir()
    assert pretrain(tiny(), tmp_path / "out", device="cpu", resume=True) == report
    assert not (tmp_path / "out.run").exists()
    with pytest.raises(OutputError, match="exists already"):
        pretrain(tiny(seed=1), tmp_path / "out", device="cpu", resume=True)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == files


@pytest.mark.parametrize("reading", ["files"], indirect=True)
def test_a_finished_run_on_other_data_is_another_one(reading, tiny, tmp_path):
    config, file = reading
    report = pretrain(config, tmp_path / "out", device="cpu")
    assert pretrain(config, tmp_path / "out", device="cpu", resume=True) == report
    file.write_text(file.read_text() + "\n")
    with pytest.raises(OutputError, match="exists already"):
        pretrain(config, tmp_path / "out", device="cpu", resume=True)
    record = json.loads((tmp_path / "out" / "pretrain.json").read_text())
    assert record.pop("conditions")["arithmetic"] in ("fp32", "bf16")  # as releases before this one wrote it
    (tmp_path / "out" / "pretrain.json").write_text(json.dumps(record))
    assert pretrain(config, tmp_path / "out", device="cpu", resume=True) == report


def fake_snapshot(run, step, whole=True):
    folder = run / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "trainer_state.json").write_text("{}")
    if whole:
        seal(folder, 1.5, 2)
    return folder


def test_a_snapshot_that_was_cut_off_does_not_count(tmp_path):
    fake_snapshot(tmp_path, 5)
    fake_snapshot(tmp_path, 10)
    fake_snapshot(tmp_path, 15, whole=False)
    assert [one.step for one in snapshots(tmp_path)] == [5, 10]
    (tmp_path / "checkpoint-10" / "model.safetensors").write_bytes(b"wei")
    assert newest(tmp_path).step == 5
    (tmp_path / "checkpoint-5" / "trainer_state.json").unlink()
    assert newest(tmp_path) is None


def test_old_snapshots_go_and_the_last_good_one_stays(tmp_path):
    for step in (5, 10, 100):
        fake_snapshot(tmp_path, step)
    for step in (105, 110, 115):
        fake_snapshot(tmp_path, step, whole=False)
    tidy(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-10", "checkpoint-100"]
    assert newest(tmp_path).loss_total == 1.5


def test_only_two_snapshots_are_kept(tiny, tmp_path):
    run = stopped(tiny(max_steps=9, save_steps=2), tmp_path / "out", 9)
    assert sorted(path.name for path in run.glob("checkpoint-*")) == ["checkpoint-6", "checkpoint-8"]
    assert all((path / SEAL).is_file() for path in run.glob("checkpoint-*"))


@pytest.mark.slow
def test_the_command_line_goes_on_after_sigkill(tiny, write_config, curve, same_weights, tmp_path):
    """Killed from outside: when a snapshot's folder appears, which is in the middle of writing it, and once later."""
    config = tiny(max_steps=40, save_steps=5, validation=Validation())
    pretrain(config, tmp_path / "whole", device="cpu")
    file = write_config(tmp_path / "run.yaml", config)
    command = [sys.executable, "-m", "rankscope_cli", "pretrain", str(file), "--out", str(tmp_path / "out")]
    command += ["--device", "cpu"]
    for step, delay in ((10, 0.0), (20, random.Random(1).uniform(0.0, 0.1))):
        resume = ["--resume"] if (tmp_path / "out.run").exists() else []
        process = subprocess.Popen(command + resume, env=ALONE, stderr=subprocess.PIPE)
        wait_for(tmp_path / "out.run" / f"checkpoint-{step}", process)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert not (tmp_path / "out").exists()
    done = subprocess.run([*command, "--resume"], env=ALONE, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert curve(tmp_path / "out") == curve(tmp_path / "whole")
    assert same_weights(tmp_path / "out", tmp_path / "whole")


def wait_for(path, process):
    deadline = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_what_a_killed_save_leaves_behind_is_removed(tiny, tmp_path):
    stopped(tiny(), tmp_path / "out", 4)
    (tmp_path / ".out.a1b2c3d4.partial").mkdir()
    pretrain(tiny(), tmp_path / "out", device="cpu", resume=True)
    assert not (tmp_path / ".out.a1b2c3d4.partial").exists()
    shutil.rmtree(tmp_path / "out")
