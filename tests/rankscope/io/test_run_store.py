"""What may be begun, gone on with and started anew, on a toy: squares of four numbers, one item each."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rankscope.errors import DataError, OptionError, OutputError
from rankscope.io import codec
from rankscope.io.atomic import PARTIAL
from rankscope.io.run_store import FINISHED, LOCK, MANIFEST, RunStore, locked

SETTINGS = {"power": 2, "shape": {"rows": 1, "columns": 4}}
NUMBERS = ("0", "1", "2", "3")
NOW = {"resume": False, "force": False}
RESUME, FORCE = {"resume": True}, {"force": True}


@dataclass(frozen=True)
class Square:
    value: int


def store(root: Path, settings: Any = SETTINGS, **options: Any) -> RunStore:
    return RunStore(root, "squares", "test/squares@1", settings, owns=("total.txt",), **options)


def work(run: RunStore, stop: int = len(NUMBERS), **how: bool) -> list[str]:
    """Do what is left, at most ``stop`` items; return the names of what was done now."""
    made = []
    with run.open(**how):
        for name in NUMBERS:
            if name not in run and len(made) < stop:
                run.put(name, Square(int(name) ** (run.settings or SETTINGS)["power"]))
                made.append(name)
        if run.names() == list(NUMBERS) and not run.finished:
            total = sum(square.value for name in NUMBERS if (square := run.get(name, Square)))
            codec.write(run.root / "total.txt", {"total": total})
            run.seal(total=total)
    return made


def contents(root: Path) -> dict[str, str]:
    files = (path for path in root.rglob("*") if path.is_file() and path.name != LOCK)
    return {str(path.relative_to(root)): path.read_text() for path in sorted(files)}


def folder(root: Path, state: str) -> None:
    """Make a folder as it is found."""
    if state != "absent":
        root.mkdir()
    if state == "killed before its manifest":
        (root / LOCK).touch()
        (root / f".{MANIFEST}.x1y2z3_4{PARTIAL}").mkdir()
        (root / f".{MANIFEST}.x1y2z3_4{PARTIAL}" / MANIFEST).write_text('{"sche')
    if state == "someone's":
        (root / "thesis.txt").write_text("mine")
    if state == "another kind":
        (root / MANIFEST).write_text('{"schema": "test/cubes@1", "settings": {}, "state": "finished"}')
    if state in ("begun", "damaged", "finished"):
        work(store(root), 4 if state == "finished" else 2)
    if state == "damaged":
        (root / MANIFEST).write_text('{"schema')


ANEW, REST, NONE = list(NUMBERS), ["2", "3"], []


@pytest.mark.parametrize(
    ("state", "how", "made"),
    [
        *[
            (state, how, ANEW)
            for state in ("absent", "empty", "killed before its manifest")
            for how in (NOW, RESUME, FORCE)
        ],
        ("begun", NOW, "holds squares already: go on with --resume, or start anew with --force"),
        ("begun", RESUME, REST),
        ("begun", FORCE, ANEW),
        ("finished", NOW, "holds squares already"),
        ("finished", RESUME, NONE),
        ("finished", FORCE, ANEW),
        ("damaged", NOW, "_manifest.json is damaged: start anew with --force"),
        ("damaged", RESUME, "is damaged"),
        ("damaged", FORCE, ANEW),
        *[
            (state, how, "holds something else than squares: choose another --out")
            for state in ("someone's", "another kind")
            for how in (NOW, RESUME, FORCE)
        ],
    ],
)
def test_what_becomes_of_a_folder(state: str, how: dict[str, bool], made: list[str] | str, tmp_path: Path) -> None:
    root = tmp_path / "out"
    folder(root, state)
    before = contents(root) if root.exists() else {}
    if isinstance(made, str):
        with pytest.raises(OutputError, match=made) as caught:
            work(store(root), **how)
        assert "\n" not in str(caught.value)
        assert contents(root) == before
        return
    assert work(store(root), **how) == made
    work(store(tmp_path / "whole"))
    assert contents(root) == contents(tmp_path / "whole")


OTHERS = [
    ({**SETTINGS, "power": 3}, "was begun with power 2, not 3: go on as it was begun"),
    ({**SETTINGS, "shape": {"rows": 2, "columns": 4}}, r"shape\.rows 1, not 2"),
    ({**SETTINGS, "sign": -1}, "without sign, not -1"),
    ({"power": 2}, r"shape\.rows 1, not without it"),
]


@pytest.mark.parametrize(("settings", "message"), OTHERS)
@pytest.mark.parametrize("state", ["begun", "finished"])
def test_another_run_is_not_gone_on_with(settings: Any, message: str, state: str, tmp_path: Path) -> None:
    folder(tmp_path / "out", state)
    before = contents(tmp_path / "out")
    with pytest.raises(OutputError, match=message):
        work(store(tmp_path / "out", settings), resume=True)
    assert contents(tmp_path / "out") == before
    assert work(store(tmp_path / "out", settings), force=True) == ANEW


def test_what_may_change(tmp_path: Path) -> None:
    folder(tmp_path / "out", "begun")
    wider = {**SETTINGS, "shape": {"rows": 1, "columns": 9}}
    assert work(store(tmp_path / "out", wider, may_change=("shape",)), stop=1, **RESUME) == ["2"]
    told: list[Any] = []

    def may(*change: Any) -> bool:
        told.append(change)
        return change[0] == "power"

    again = store(tmp_path / "out", {**wider, "power": 4}, may_change=may)
    assert work(again, **RESUME) == ["3"]
    assert set(told) == {("power", 2, 4)}  # the wider shape is what the run is a function of by now
    assert json.loads((tmp_path / "out" / MANIFEST).read_text())["settings"] == {**wider, "power": 4}


def test_facts_beside_the_settings(tmp_path: Path) -> None:
    run = store(tmp_path / "out", facts={"model": "a"})
    with run.open():
        run.put("0", Square(0))
        run.note(diverged="the loss is NaN")
    again = store(tmp_path / "out", facts={"model": "b"})
    with again.open(resume=True):
        assert again.facts == {"model": "b", "diverged": "the loss is NaN"}
        again.note(diverged=None)
        again.seal(items=1)
    found = again.manifest()
    assert found is not None
    assert (found["model"], found["items"], found["state"]) == ("b", 1, FINISHED)
    assert "diverged" not in found


def test_a_finished_run_is_not_written_to(tmp_path: Path) -> None:
    folder(tmp_path / "out", "finished")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    run = store(tmp_path / "out")
    assert work(run, **RESUME) == []
    assert run.finished
    assert run.facts == {"total": 14}
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before


@pytest.mark.parametrize("place", [".", "items", "calibration"])
def test_going_on_sweeps_what_a_kill_left_in_the_folder_and_below(place: str, tmp_path: Path) -> None:
    work(store(tmp_path / "run"), stop=2)
    left = tmp_path / "run" / place / f".moments.a1b2c3d4{PARTIAL}"
    left.mkdir(parents=True)
    (left / "moments").touch()
    work(store(tmp_path / "run"), **RESUME)
    assert not left.exists()


def test_an_error_before_the_first_item_leaves_nothing(tmp_path: Path) -> None:
    for items in (0, 1):
        run = store(tmp_path / "out")

        def fail(run: RunStore = run, items: int = items) -> None:
            with run.open():
                work_on = NUMBERS[:items]
                for name in work_on:
                    run.put(name, Square(0))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert (tmp_path / "out").exists() == bool(items)


def test_force_leaves_what_is_not_the_run_s(tmp_path: Path) -> None:
    folder(tmp_path / "out", "finished")
    (tmp_path / "out" / "notes.txt").write_text("mine")
    assert work(store(tmp_path / "out"), stop=0, **FORCE) == []
    assert sorted(contents(tmp_path / "out")) == [MANIFEST, "notes.txt"]


def test_options_and_places_that_make_no_sense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="--resume and --force are mutually exclusive"):
        work(store(tmp_path / "out"), resume=True, force=True)
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="is a file: name a folder"):
        work(store(tmp_path / "file"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputError, match="is the working folder"):
        work(store(Path(".")))
    with pytest.raises(OutputError, match="cannot write"):
        work(store(Path("/proc/rankscope")))


def test_a_damaged_item_is_named(tmp_path: Path) -> None:
    folder(tmp_path / "out", "begun")
    for text, reason in (("[", "is not valid JSON"), ('{"value": "two"}', "value is 'two': it must be a whole number")):
        store(tmp_path / "out").path("1").write_text(text)
        with pytest.raises(DataError, match=rf"1\.json.*{reason}.* Delete the file, and it is made anew"):
            store(tmp_path / "out").get("1", Square)
    assert store(tmp_path / "out").get("9", Square) is None


def test_a_folder_without_a_manifest_is_shared_with_anything(tmp_path: Path) -> None:
    folder(tmp_path / "out", "someone's")
    for made in (["0", "1"], []):
        run = store(tmp_path / "out", None, items="")
        with run.open():
            new = [name for name in ("0", "1") if name not in run]
            for name in new:
                run.put(name, Square(1))
        assert new == made
    assert sorted(contents(tmp_path / "out")) == ["0.json", "1.json", "thesis.txt"]


def test_what_another_process_began_meanwhile_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*args: Any) -> Any:
        monkeypatch.undo()
        folder(tmp_path / "out", "begun")
        return locked(*args)

    monkeypatch.setattr("rankscope.io.run_store.locked", late)
    with pytest.raises(OutputError, match="holds squares already"):
        work(store(tmp_path / "out"))


HOLD = """
import sys, time
from pathlib import Path
from rankscope.io.run_store import RunStore, locked
run = RunStore(sys.argv[1], "squares", "test/squares@1", {"power": 2, "shape": {"rows": 1, "columns": 4}})
with run.open(resume=True), run.claim("a"):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process at work on an unfinished run."""
    folder(tmp_path / "out", "begun")
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "out")], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"held\n"
    yield child
    child.kill()
    child.wait()
    child.stdout.close()


@pytest.mark.slow
def test_a_run_is_made_by_one_process_and_its_lock_dies_with_it(holder: Any, tmp_path: Path) -> None:
    before = contents(tmp_path / "out")
    for how in (NOW, RESUME, FORCE):
        with pytest.raises(OutputError, match=r"squares in .*out is being made by another process, which holds .*lock"):
            work(store(tmp_path / "out"), **how)
    with pytest.raises(OutputError, match="a is being made by another"), store(tmp_path / "out").claim("a"):
        pass
    with store(tmp_path / "out").claim("b"):
        pass
    assert {name: text for name, text in contents(tmp_path / "out").items() if ".lock" not in name} == {
        name: text for name, text in before.items() if ".lock" not in name
    }
    threading.Timer(0.3, holder.kill).start()
    with locked(tmp_path / "out" / LOCK, "it runs", wait=100.0):
        assert holder.wait() == -signal.SIGKILL
    assert work(store(tmp_path / "out"), **RESUME) == REST


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_run_store import RunStore, contents, store, work
import filelock  # before the forks

ROOT = Path(sys.argv[1])
os.fsync = lambda handle: None  # a kill loses nothing that the system was told

def attempt(out, limit, how):
    "Work in a child that dies at file operation number ``limit``; return whether it did."
    child = os.fork()
    if child:
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])
    seen = 0
    def count():
        nonlocal seen
        seen += 1
        if seen == limit:
            os.kill(os.getpid(), signal.SIGKILL)
    def hook(event, args):
        writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
        if (writes or event in ("os.rename", "os.remove", "os.mkdir")) and str(args[0]).startswith(str(ROOT)):
            count()
    whole = Path.write_text
    def in_halves(path, text, **how):
        whole(path, text[: len(text) // 2], **how)
        count()
        whole(path, text, **how)
    Path.write_text = in_halves
    sys.addaudithook(hook)
    work(store(out), **how)
    os._exit(0)

work(store(ROOT / "whole"))
for begun in (False, True):  # from nothing, and anew in place of another run
    number = 0
    died = True
    while died:
        number += 1
        out = ROOT / f"{begun}-{number}"
        if begun:
            work(store(out, {"power": 9}))
            before = contents(out)
        died = attempt(out, number, {"force": True} if begun else {})
        if begun and store(out).manifest()["settings"]["power"] == 9:  # the other run is there, and whole
            assert {name: text for name, text in contents(out).items() if not name.startswith(".")} == before
            continue
        attempt(out, 1 + number % 5, {"resume": True})
        work(store(out), resume=True)
        assert contents(out) == contents(ROOT / "whole"), (begun, number)
    print(number - 1)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="every attempt is a fork of one process")
def test_killed_at_any_file_operation_and_again_it_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    here = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), here], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(int(count) > 15 for count in done.stdout.split()), done.stdout


@pytest.mark.parametrize("state", ["absent", "killed before its manifest", "empty", "hidden"])
@pytest.mark.parametrize("done", [False, True])
def test_what_the_run_did_not_make_outlives_it(state: str, done: bool, tmp_path: Path) -> None:
    root = tmp_path / "out"
    folder(root, state)
    if state == "hidden":
        (root / ".keep").write_text("mine")
        (root / ".git").mkdir()
    run = store(root)
    error = None if done else ZeroDivisionError
    with contextlib.nullcontext() if error is None else pytest.raises(error), run.open():
        if error is not None:
            raise error
        run.put("0", Square(0))
        run.discard()
    left = sorted(path.name for path in root.iterdir()) if root.exists() else None
    assert left == ([".git", ".keep"] if state == "hidden" else None)
