"""Writes that happen whole or not at all: full disks, interrupts, kills, existing targets."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from rankscope.checkpoints.sources import COMPANIONS
from rankscope.checkpoints.tensors import SHARDED, SINGLE
from rankscope.compress.heal.config import FILE
from rankscope.compress.heal.student import KEPT
from rankscope.compress.recipe import RECIPE
from rankscope.compress.write import REPORT
from rankscope.errors import OutputError
from rankscope.io import atomic
from rankscope.io.atomic import _partial, atomic_file, atomic_folder, publish_folder, refuse_existing, sweep
from rankscope.train.data.shard_files import INDEX
from rankscope.train.logs import LOSSES, SCORES, TENSORBOARD
from rankscope.train.recipe import RECORD, RUN
from rankscope.train.recipe import REPORT as DESIGN
from rankscope.train.run_folder import KEPT_MODELS
from rankscope.train.spectra import SPECTRA


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Make a folder that was written before."""
    folder = tmp_path / "out"
    (folder / "kept").mkdir(parents=True)
    (folder / "kept" / "a.txt").write_text("old")
    (folder / "model.safetensors").write_text("{}")
    return folder


def listing(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


HELD = {"kept/a.txt": "old", "model.safetensors": "{}"}
OLD = {f"out/{name}": text for name, text in HELD.items()}


def two_steps(monkeypatch: Any) -> None:
    monkeypatch.setattr(atomic, "_exchange", lambda first, second: False)


def one_step(monkeypatch: Any) -> None:
    """Use what the system has."""


both = pytest.mark.parametrize("system", [one_step, two_steps])
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux exchanges two folders in one step")


def test_new_folder(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "deep" / "er" / "out") as work:
        assert not (tmp_path / "deep" / "er" / "out").exists()
        assert work.parent == tmp_path / "deep" / "er"
        (work / "b.txt").write_text("new")
    assert listing(tmp_path) == {"deep/er/out/b.txt": "new"}
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "deep" / "er" / "out").stat().st_mode & 0o777 == 0o777 & ~umask


@both
def test_force_replaces_the_whole_folder(system: Callable[[Any], None], old: Path, monkeypatch: Any) -> None:
    system(monkeypatch)
    with atomic_folder(old, force=True) as work:
        (work / "b.txt").write_text("new")
        assert listing(old) == HELD
    assert listing(old.parent) == {"out/b.txt": "new"}
    assert [path.name for path in old.parent.iterdir()] == ["out"]


@linux
def test_linux_replaces_in_one_step(old: Path, monkeypatch: Any) -> None:
    """No moment without a folder: the two-step way would call os.replace."""
    monkeypatch.setattr(os, "replace", full)
    with atomic_folder(old, force=True) as work:
        (work / "b.txt").write_text("new")
    assert listing(old.parent) == {"out/b.txt": "new"}


@both
def test_force_replaces_a_link(system: Callable[[Any], None], old: Path, monkeypatch: Any) -> None:
    system(monkeypatch)
    (old.parent / "link").symlink_to(old)
    with atomic_folder(old.parent / "link", force=True) as work:
        (work / "b.txt").write_text("new")
    assert (old.parent / "link" / "b.txt").read_text() == "new"
    assert listing(old) == HELD
    assert sorted(path.name for path in old.parent.iterdir()) == ["link", "out"]


def test_a_folder_never_replaces_a_file_nor_a_file_a_folder(old: Path) -> None:
    data = old.parent / "mydata.csv"
    data.write_text("a,1")
    for write in (atomic_folder, partial(publish_folder, old)):
        with pytest.raises(OutputError, match=r"mydata.csv is a file: name a folder"), contextlib.ExitStack() as stack:
            stack.enter_context(write(data, force=True))
    with pytest.raises(OutputError, match="is a file: name a folder"):
        refuse_existing(data, force=True)
    with pytest.raises(OutputError, match="out is a folder: name a file"), atomic_file(old):
        pass
    assert data.read_text() == "a,1"
    assert listing(old) == HELD


def test_a_replaced_file_keeps_its_mode_and_a_link_its_target(tmp_path: Path) -> None:
    real, link = tmp_path / "real.csv", tmp_path / "link.csv"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to(real.name)
    with atomic_file(link) as work:
        work.write_text("new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o600


def test_a_new_file_is_readable_like_any_other_whatever_wrote_it(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with atomic_file(tmp_path / "one.safetensors") as work:
        save_file({"x": torch.zeros(2)}, work)
    assert (tmp_path / "one.safetensors").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_refused_without_force(old: Path) -> None:
    began = False
    with pytest.raises(OutputError, match=r"exists already: .*--force"), atomic_folder(old):
        began = True
    with pytest.raises(OutputError, match=r"exists already: .*--force"):
        refuse_existing(old, force=False)
    with pytest.raises(OutputError, match="exists already"), atomic_file(old / "kept" / "a.txt", force=False):
        began = True
    assert not began
    assert listing(old.parent) == OLD
    refuse_existing(old, force=True)
    refuse_existing(old.parent / "other", force=False)


def test_force_spares_folders_that_hold_something_else(tmp_path: Path) -> None:
    """A store of models, or somebody's papers: neither is a checkpoint itself."""
    store, made = tmp_path / "models", tmp_path / "made"
    (store / "small").mkdir(parents=True)
    (store / "small" / "config.json").write_text("{}")
    made.mkdir()
    context = atomic_folder(store, force=True)
    with (
        pytest.raises(OutputError, match=r"models holds 'small' and no checkpoint or shards, so --force does not"),
        context,
    ):
        pass
    with pytest.raises(OutputError, match="holds 'small'"):
        publish_folder(made, store, force=True)
    with pytest.raises(OutputError, match="holds 'small'"):
        refuse_existing(store, force=True)
    assert sorted(listing(tmp_path)) == ["models/small/config.json"]
    refuse_existing(made, force=True)
    (made / "shards.index.json").write_text("{}")
    refuse_existing(made, force=True)


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["config.json", "thesis.tex"], "'thesis.tex' and no checkpoint or shards"),
        (["config.json"], "'config.json' and no checkpoint or shards"),
        (["config.json", "model.safetensors", "thesis.tex"], "'thesis.tex', which rankscope does not write there"),
        (["shards.index.json", ".git"], "'.git', which rankscope does not write there"),
    ],
)
def test_force_spares_folders_that_only_look_like_ours(names: list[str], why: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).write_text("mine")
    with pytest.raises(OutputError, match=f"holds {why}, so --force does not replace it"):
        refuse_existing(tmp_path, force=True)


def test_force_replaces_whatever_the_library_writes(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    files = (*COMPANIONS, *KEPT, REPORT, RECIPE, FILE, RECORD, RUN, DESIGN, LOSSES, SCORES, SPECTRA, SINGLE, SHARDED)
    for name in (*files, KEPT_MODELS, TENSORBOARD, INDEX):
        (tmp_path / "out" / name).touch()
    with atomic_folder(tmp_path / "out", force=True) as folder:
        (folder / "new").touch()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["new"]


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that even root cannot write to")
def test_where_nothing_can_be_written_it_is_said_beforehand(tmp_path: Path) -> None:
    for target in ("/proc/out.csv", "/proc/deep/er/out"):
        with pytest.raises(OutputError, match=r"cannot write beside /proc/.*: /proc: "):
            refuse_existing(target, force=False)
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match=r"cannot write beside .*: Not a directory"):
        refuse_existing(tmp_path / "file" / "out.csv", force=False)
    refuse_existing(tmp_path / "deep" / "er" / "out", force=False)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("target", [".", "..", "../..", "~"])
def test_working_and_home_folders_are_never_replaced(target: str, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "a" / "b")
    context = atomic_folder(Path(target).expanduser(), force=True)
    with pytest.raises(OutputError, match=r"is the working folder, a parent of it, or home"), context:
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "home"]


def fail_half_way(file: Path, error: BaseException) -> None:
    file.write_text("half")
    raise error


class Stop(Exception):
    """An error of the block's own."""


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, Stop])
def test_an_error_in_the_block_leaves_the_old_and_no_partial(error: type[BaseException], old: Path) -> None:
    for target in (old, old.parent / "new"):
        with pytest.raises(error), atomic_folder(target, force=True) as work:
            fail_half_way(work / "b.txt", error())
    for file in (old / "kept" / "a.txt", old / "new.txt"):
        with pytest.raises(error), atomic_file(file) as path:
            fail_half_way(path, error())
    assert listing(old.parent) == OLD
    assert [path.name for path in old.parent.iterdir()] == ["out"]


def full(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(("call", "system"), [("fsync", one_step), ("fsync", two_steps), ("replace", two_steps)])
def test_disk_full_keeps_the_old_folder(call: str, system: Callable[[Any], None], old: Path, monkeypatch: Any) -> None:
    system(monkeypatch)
    monkeypatch.setattr(os, call, full)
    with (
        pytest.raises(OutputError, match=r"No space left on device\. Nothing there was changed"),
        atomic_folder(old, force=True) as work,
    ):
        (work / "b.txt").write_text("new")
    assert listing(old.parent) == OLD
    with pytest.raises(OutputError, match="No space left on device"), atomic_file(old / "kept" / "a.txt") as path:
        path.write_text("new")
    assert listing(old.parent) == OLD


def test_a_file_system_that_cannot_sync_folders_is_no_reason_to_fail(tmp_path: Path, monkeypatch: Any) -> None:
    fsync = os.fsync

    def files_alone(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", files_alone)
    with atomic_folder(tmp_path / "out") as work:
        (work / "a.txt").write_text("new")
    assert (tmp_path / "out" / "a.txt").read_text() == "new"


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "No such file or directory", "/elsewhere/tokenizer.json"),
        ConnectionResetError("the hub is gone"),
    ],
)
def test_errors_of_what_the_block_reads_keep_their_name(error: OSError, tmp_path: Path) -> None:
    for context in (atomic_folder(tmp_path / "out"), atomic_file(tmp_path / "out.txt")):
        with pytest.raises(type(error)) as caught, context:
            raise error
        assert caught.value is error


def test_disk_full_while_the_block_writes(old: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot write .*out: No space left"), atomic_folder(old, force=True) as work:
        fail_half_way(work / "b.txt", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert listing(old.parent) == OLD
    assert [path.name for path in old.parent.iterdir()] == ["out"]


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), KeyboardInterrupt()])
def test_the_second_of_two_steps_fails(error: BaseException, old: Path, monkeypatch: Any) -> None:
    two_steps(monkeypatch)
    rename, calls = os.replace, []

    def replace(first: Any, second: Any) -> None:
        calls.append(first)
        if len(calls) == 2:
            raise error
        rename(first, second)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises((OutputError, KeyboardInterrupt)), atomic_folder(old, force=True) as work:
        (work / "b.txt").write_text("new")
    assert listing(old.parent) == OLD
    assert [path.name for path in old.parent.iterdir()] == ["out"]


def test_a_parent_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for context in (atomic_folder(tmp_path / "file" / "out"), atomic_file(tmp_path / "file" / "out.json")):
        with pytest.raises(OutputError, match="cannot write beside"), context:
            pass


def test_new_and_replaced_file(tmp_path: Path) -> None:
    for content in ("one", "two"):
        with atomic_file(tmp_path / "deep" / "a.json") as path:
            assert path.suffix == ".json"
            path.write_text(content)
        assert listing(tmp_path) == {"deep/a.json": content}


_KILLED = """
import sys
from rankscope.io.atomic import atomic_folder
turn = 0
while True:
    turn += 1
    with atomic_folder(sys.argv[1], force=True) as work:
        for part in range(3):
            (work / f"shard-{part}").write_text(str(turn))
        (work / "shards.index.json").write_text(str(turn))
    if turn == 1:
        print("begun", flush=True)
"""


@linux
def test_a_killed_run_leaves_a_whole_folder(tmp_path: Path) -> None:
    for patience in (0.0, 0.003, 0.011):
        target = tmp_path / "work" / "out"
        child = subprocess.Popen([sys.executable, "-c", _KILLED, str(target)], stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert child.stdout.readline() == b"begun\n"
        time.sleep(patience)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        contents = listing(target)
        assert contents.keys() == {"shard-0", "shard-1", "shard-2", "shards.index.json"}
        assert len(set(contents.values())) == 1


_STOPPED = """
import sys, time
from rankscope.io.atomic import atomic_file, atomic_folder
opened = atomic_folder if sys.argv[2] == "folder" else atomic_file
with opened(sys.argv[1]) as work:
    print("begun", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_what_a_killed_process_left_is_swept_and_what_another_writes_is_not(kind: str, tmp_path: Path) -> None:
    children = []
    for _ in range(2):
        command = [sys.executable, "-c", _STOPPED, str(tmp_path / "out"), kind]
        children.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        assert children[-1].stdout.readline() == b"begun\n"
    assert len(list(tmp_path.iterdir())) == 2
    for child, left in zip(children, (1, 0), strict=True):
        child.kill()
        child.wait()
        refuse_existing(tmp_path / "out", force=False)
        assert len(list(tmp_path.iterdir())) == left
    for child in children:
        child.stdout.close()


def test_writing_a_folder_sweeps_what_is_left_of_another_try(tmp_path: Path) -> None:
    (tmp_path / ".out.a1b2c3d4.partial").mkdir()
    with atomic_folder(tmp_path / "out"):
        assert not (tmp_path / ".out.a1b2c3d4.partial").exists()


@pytest.mark.parametrize("name", ["é" * 120 + ".json", "売" * 82 + ".json", "a" * 250], ids=["two", "three", "one"])
def test_the_longest_names_that_the_file_system_takes_are_written(name: str, tmp_path: Path) -> None:
    left = _partial(tmp_path / name)
    with atomic_file(tmp_path / name) as work:
        work.write_text("whole")
    assert (tmp_path / name).read_text() == "whole"
    sweep(tmp_path, name)
    assert not left.exists()


@pytest.mark.parametrize("target", [None, "eval"])
def test_only_folders_of_unfinished_writes_are_swept(target: str | None, tmp_path: Path) -> None:
    others = (
        ".eval.csv.partial",
        ".eval.partial",
        ".eval.a1b2c3d4.rows",
        ".eval.A1B2C3D4.partial",
        "eval.a1b2c3d4.partial",
    )
    for name in (*others, ".eval.a1b2c3d4.partial"):
        (tmp_path / name).mkdir()
    sweep(tmp_path, target)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)


def test_a_partial_folder_that_is_swept_before_it_is_locked_is_made_again(tmp_path: Path, monkeypatch: Any) -> None:
    lock, seen = atomic._lock, []

    def late(folder: Path) -> int | None:
        seen.append(folder)
        if len(seen) == 1:
            folder.rmdir()
        return lock(folder)

    monkeypatch.setattr(atomic, "_lock", late)
    with atomic_file(tmp_path / "a.json") as path:
        path.write_text("{}")
    assert len(seen) == 2
    assert listing(tmp_path) == {"a.json": "{}"}


def by_python(_: Path) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def by_rust(_: Path) -> None:
    from safetensors import SafetensorError

    raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


def by_torch(_: Path) -> None:
    raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534")


def by_torchs_stream(_: Path) -> None:
    raise RuntimeError("basic_ios::clear: iostream error")


@pytest.mark.parametrize("write", [by_python, by_rust, by_torch, by_torchs_stream])
@pytest.mark.parametrize("opened", [atomic_file, atomic_folder])
def test_a_full_disk_is_told_in_one_line_whoever_writes(write: Any, opened: Any, tmp_path: Path) -> None:
    told = r"cannot write .*out: .*(No space left on device|is the disk full)"
    with pytest.raises(OutputError, match=told), opened(tmp_path / "out") as work:
        write(work)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [RuntimeError("a shape"), ValueError("no number")])
def test_other_errors_stay_as_they_are(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(type(error), match=str(error)), atomic_file(tmp_path / "out"):
        raise error


@pytest.mark.parametrize("force", [False, True])
def test_a_link_to_nothing_is_refused(force: bool, tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "gone")
    told = r"--out .*out is a link to .*gone, which does not exist"
    with pytest.raises(OutputError, match=told), atomic_folder(tmp_path / "out", force):
        raise AssertionError
    assert (tmp_path / "out").is_symlink()
