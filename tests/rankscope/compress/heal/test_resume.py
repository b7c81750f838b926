"""Going on after a stop: the very healing, or none."""

import os
import signal
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from rankscope.checkpoints import open_checkpoint
from rankscope.compress.heal import heal
from rankscope.compress.heal.distillation import CLOCK, seconds_before
from rankscope.errors import DataError, OutputError
from rankscope.train.run_folder import newest

# as many threads as this process has: another number adds up in another order
ALONE = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads()), "CUDA_VISIBLE_DEVICES": ""}


class Stop(Exception):
    pass


def stop_at(step):
    def stop(done, total, what):
        if "loss" in what and done >= step:
            raise Stop

    return stop


def stopped(small, whole, config, out, step):
    """Leave an unfinished healing behind."""
    with pytest.raises(Stop):
        heal(small, whole, config, out=out, device="cpu", progress=stop_at(step))
    return out.with_name(f"{out.name}.run")


def same(folder, other):
    one, two = (load_file(at / "model.safetensors") for at in (folder, other))
    return one.keys() == two.keys() and all(bool((one[name] == two[name]).all()) for name in one)


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


KILLED = """
import os, signal, sys
from rankscope.compress.heal import HealConfig, heal

def kill(done, total, what):
    if "loss" in what and done == 4:
        os.kill(os.getpid(), signal.SIGKILL)

small, whole, out, train = sys.argv[1:]
config = HealConfig(steps=7, batch_size=4, log_steps=2, save_seconds=0.0, train=train)
heal(small, whole, config, out=out, device="cpu", progress=kill)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "method", "train"), [("chronos-t5", "svd", "all"), ("chronos-bolt", "joint", "compressed")]
)
def test_killed_it_goes_on_to_the_undisturbed_weights(kind, method, train, teacher, student, short, tmp_path):
    whole = teacher(kind)
    small = student(whole, method)
    config = short(steps=7, train=train)
    heal(small, whole, config, out=tmp_path / "whole", device="cpu")
    words = [str(word) for word in (small, whole, tmp_path / "broken", train)]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *words], env=ALONE, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert newest(tmp_path / "broken.run").step == 3
    report = heal(small, whole, config, out=tmp_path / "broken", device="cpu", resume=True)
    assert report.steps == 7
    assert same(tmp_path / "broken", tmp_path / "whole")
    assert (tmp_path / "broken" / "loss.csv").read_bytes() == (tmp_path / "whole" / "loss.csv").read_bytes()
    assert not (tmp_path / "broken.run").exists()


def test_ctrl_c_keeps_every_step(teacher, student, short, tmp_path):
    whole = teacher("chronos-bolt")
    small, config = student(whole), short(steps=7, save_seconds=60.0)
    heal(small, whole, config, out=tmp_path / "whole", device="cpu")

    def interrupt(done, total, what):
        if "loss" in what and done == 4:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        heal(small, whole, config, out=tmp_path / "broken", device="cpu", progress=interrupt)
    assert newest(tmp_path / "broken.run").step == 5  # the loss of step 4 is told within step 5
    heal(small, whole, config, out=tmp_path / "broken", device="cpu", resume=True)
    assert same(tmp_path / "broken", tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.usefixtures("clock")
def test_the_time_before_a_stop_counts(teacher, student, short, tmp_path):
    whole = teacher("chronos-bolt")
    small = student(whole)
    config = short(minutes=0.1, log_steps=1)
    run = stopped(small, whole, config, tmp_path / "out", 4)  # seconds, not steps
    spent, steps = seconds_before(newest(run).folder), newest(run).step
    assert 3 < spent < 5
    report = heal(small, whole, config, out=tmp_path / "out", device="cpu", resume=True)
    assert 6 <= report.seconds < 7
    rates = [float(line.split(",")[2]) for line in (tmp_path / "out" / "loss.csv").read_text().splitlines()[1:]]
    assert report.steps == len(rates)
    assert 0 < report.steps - steps < steps
    assert rates[steps] < 0.6 * max(rates)


@pytest.mark.slow
def test_stopped_after_its_last_step_it_takes_no_further_one(teacher, student, short, tmp_path, monkeypatch):
    whole = teacher("chronos-bolt")
    small = student(whole)
    heal(small, whole, short(), out=tmp_path / "whole", device="cpu")

    def fail(*args):
        raise Stop

    with monkeypatch.context() as broken:
        broken.setattr("rankscope.compress.heal.run._save", fail)
        with pytest.raises(Stop):
            heal(small, whole, short(), out=tmp_path / "out", device="cpu")
    assert heal(small, whole, short(), out=tmp_path / "out", device="cpu", resume=True).steps == 6
    assert same(tmp_path / "out", tmp_path / "whole")


@pytest.mark.slow
def test_another_healing_is_refused_and_nothing_changes(teacher, student, short, tmp_path):
    whole = teacher("chronos-bolt")
    small = student(whole)
    run = stopped(small, whole, short(), tmp_path / "out", 4)
    before = files(run)
    other = student(whole, name="other", seed=0, sites=["q", "k"])
    for pupil, changes, named in (
        (small, {"seed": 1}, "seed 0, not 1"),
        (small, {"learning_rate": 1e-5}, "learning_rate"),
        (small, {"batch_size": 5}, "batch_size 4, not 5"),
        (small, {"steps": 9}, "steps 6, not 9"),
        (small, {"train": "compressed"}, "train 'all'"),
        (small, {"precision": "bf16"}, "precision"),
        (other, {}, "student"),
    ):
        with pytest.raises(OutputError, match=named) as caught:
            heal(pupil, whole, short(**changes), out=tmp_path / "out", device="cpu", resume=True)
        assert "\n" not in str(caught.value)
    with pytest.raises(OutputError, match="--resume"):
        heal(small, whole, short(), out=tmp_path / "out", device="cpu")
    assert files(run) == before
    assert heal(small, whole, short(), out=tmp_path / "out", device="cpu", force=True).steps == 6


def test_a_finished_healing_is_not_repeated_and_another_one_not_replaced(teacher, student, short, tmp_path):
    whole = teacher("chronos-bolt")
    small = student(whole)
    report = heal(small, whole, short(), out=tmp_path / "out", device="cpu")
    before = files(tmp_path / "out")
    assert heal(small, whole, short(), out=tmp_path / "out", device="cpu", resume=True) == report
    for resume in (True, False):
        with pytest.raises(OutputError, match="exists already"):
            heal(small, whole, short(seed=1), out=tmp_path / "out", device="cpu", resume=resume)
    assert files(tmp_path / "out") == before


@pytest.mark.slow
def test_a_folder_is_healed_in_place_where_out_names_it(teacher, student, short, tmp_path, monkeypatch):
    whole = teacher("chronos-bolt")
    small = student(whole)
    beside = heal(small, whole, short(), device="cpu")
    assert beside.out == str(tmp_path / "student-healed")
    before = files(small)
    with pytest.raises(Stop):
        heal(small, whole, short(), out=small, device="cpu", force=True, progress=stop_at(4))
    assert files(small) == before
    with monkeypatch.context() as broken:
        broken.setattr("rankscope.io.run_store.RunStore.discard", lambda self: None)  # killed before it cleans up
        report = heal(small, whole, short(), out=small, device="cpu", resume=True)
    assert report.out == str(small)
    assert same(small, tmp_path / "student-healed")
    assert before.keys() < files(small).keys()
    assert heal(small, whole, short(), out=small, device="cpu", resume=True) == report
    assert not (tmp_path / "student.run").exists()
    assert same(small, tmp_path / "student-healed")


def test_what_was_healed_in_place_before_a_kill_is_healed_again_by_the_next_command_only(
    teacher, student, short, tmp_path, monkeypatch
):
    whole = teacher("chronos-bolt")
    small = student(whole)
    how = {"device": "cpu", "force": True}
    heal(small, whole, short(), device="cpu")
    with monkeypatch.context() as broken:
        broken.setattr("rankscope.io.run_store.RunStore.discard", lambda self: None)  # killed before it cleans up
        report = heal(small, whole, short(), out=small, **how)
    replaced = tmp_path / ".student.ab12cd34.partial"
    replaced.mkdir()
    assert heal(small, whole, short(), out=small, **how) == report
    assert not replaced.exists()
    assert not (tmp_path / "student.run").exists()
    assert same(small, tmp_path / "student-healed")
    assert len(heal(small, whole, short(), out=small, **how).earlier) == 1
    assert not same(small, tmp_path / "student-healed")


def test_force_without_out_replaces_what_an_earlier_healing_wrote(teacher, student, short, tmp_path):
    whole = teacher("chronos-bolt")
    small = student(whole)
    before = files(small)
    for how in ({}, {"force": True}):
        assert heal(small, whole, short(steps=2), device="cpu", **how).out == str(tmp_path / "student-healed")
    assert files(small) == before
    with pytest.raises(OutputError, match=r"student-healed exists already: .*replace it by force"):
        heal(small, whole, short(), device="cpu")


def test_the_teacher_is_not_replaced(teacher, student, short):
    whole = teacher("chronos-bolt")
    with pytest.raises(OutputError, match="teacher's folder"):
        heal(student(whole), whole, short(), out=whole, device="cpu", force=True)
    assert open_checkpoint(whole).parameters


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"secon',
        b"\xff",
        b"[1]",
        b"{}",
        b'{"seconds": "x"}',
        b'{"seconds": null}',
        b'{"seconds": true}',
        b'{"seconds": NaN}',
        b'{"seconds": -1}',
        None,
    ],
)
def test_a_damaged_clock_is_told_in_one_line(tmp_path, content):
    if content is not None:
        (tmp_path / CLOCK).write_bytes(content)
    with pytest.raises(DataError, match="Delete the folder") as caught:
        seconds_before(tmp_path)
    assert str(tmp_path / CLOCK) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_data_under_the_name_of_the_old_are_another_healing(teacher, student, short, tmp_path):
    whole = teacher("chronos-bolt")
    small, file = student(whole), tmp_path / "mine.csv"

    def write(scale):
        rows = [f"a,{2000 + n // 12}-{n % 12 + 1:02d}-01,{scale * (n % 7)}" for n in range(60)]
        file.write_text("item_id,timestamp,target\n" + "\n".join(rows) + "\n")

    write(1)
    config = short(steps=2, files=(str(file),))
    report = heal(small, whole, config, out=tmp_path / "out", device="cpu")
    assert heal(small, whole, config, out=tmp_path / "out", device="cpu", resume=True) == report
    write(50)
    with pytest.raises(OutputError, match="exists"):
        heal(small, whole, config, out=tmp_path / "out", device="cpu", resume=True)
