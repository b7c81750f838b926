"""Tasks in processes and on a cluster: what ends them, what becomes of a lost one, and what they reserve."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rankscope.engine import cluster
from rankscope.engine.fan_out import fan_out, open_pool
from rankscope.engine.pool import Engine, InProcess, Processes, Tick, WorkerLost, WorkerTraceback
from rankscope.errors import OptionError, RankscopeError

LOCAL = Engine()
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: it is the extra 'ray'")

SCRIPT = """
    import os, signal, sys, time
    from pathlib import Path
    from rankscope.engine.fan_out import fan_out
    from rankscope.engine.pool import Engine

    def work(task, tick):
        folder, number, fails = task
        (Path(folder) / f"begun-{number}").touch()
        if fails and number == 0:
            raise ValueError("broken")
        time.sleep(2)
        (Path(folder) / f"done-{number}").touch()

    if __name__ == "__main__":
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs begin with it ignored
        tasks = [(sys.argv[1], number, sys.argv[2] == "fails") for number in range(6)]
        list(fan_out(work, tasks, Engine(), 2))
"""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Start six tasks of two seconds in two processes; files in the folder ``seen`` say which began and ended."""
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    (tmp_path / "seen").mkdir()
    running: list[subprocess.Popen[str]] = []

    def start(how: str) -> subprocess.Popen[str]:
        command = [sys.executable, "script.py", "seen", how]
        running.append(
            subprocess.Popen(command, cwd=tmp_path, start_new_session=True, stderr=subprocess.PIPE, text=True)
        )
        return running[0]

    yield start
    for one in running:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(one.pid, signal.SIGKILL)
        one.wait()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="process groups are of Unix")
@pytest.mark.parametrize("how", ["interrupts the group", "interrupts the first", "kills the first", "fails"])
def test_what_ends_the_first_process_ends_what_runs_and_what_waits(
    started: Callable[[str], subprocess.Popen[str]],
    tmp_path: Path,
    how: str,
    group_ends: Callable[[int], bool],
) -> None:
    """An interrupt as from a terminal, where every process of the group gets it, or of the first process alone."""
    one, seen = started(how), tmp_path / "seen"
    if how != "fails":
        while len(list(seen.iterdir())) < 2:
            assert one.poll() is None
            time.sleep(0.05)
        number = signal.SIGKILL if how == "kills the first" else signal.SIGINT
        (os.killpg if how == "interrupts the group" else os.kill)(one.pid, number)
    said = one.communicate()[1]
    assert one.returncode != 0
    assert group_ends(one.pid)
    assert not [path.name for path in seen.iterdir() if path.name.startswith("done")]
    if how == "fails":
        assert "ValueError: broken" in said
        assert 'raise ValueError("broken")' in said  # where in the worker
    else:
        assert {path.name for path in seen.iterdir()} == {"begun-0", "begun-1"}
        assert said.count("KeyboardInterrupt") == how.startswith("interrupts")


class Unpicklable(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one}, {two}")


def act(task: tuple[str, str], tick: Tick) -> Any:
    """What a worker is told to do, and what it is told to do it with."""
    what, value = task
    tick(2)
    if what == "die" and not Path(value).exists():
        Path(value).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "die always":
        os._exit(3)
    if what == "refuse":
        raise RankscopeError(value)
    if what == "unpicklable":
        raise Unpicklable(1, 2)
    return os.environ.get(value, "") if what == "environment" else os.getpid()


def test_a_task_is_not_given_to_an_idle_process_that_died() -> None:
    with open_pool(act, LOCAL, 2, retries=0) as pool:
        ended = []
        for _ in range(2):
            pool.start(("stay", ""))
            while pool.busy:
                ended += pool.finished()
            if len(ended) == 1:
                os.kill(ended[0].result, signal.SIGKILL)
                time.sleep(0.2)
    assert [one.error for one in ended] == [None, None]
    assert ended[0].result != ended[1].result


@pytest.mark.slow
def test_a_lost_task_is_begun_again_and_the_others_go_on(tmp_path: Path) -> None:
    units: list[int] = []
    with open_pool(act, LOCAL, 2, tick=units.append, retries=1) as pool:
        assert isinstance(pool, Processes)
        tasks = [("die", str(tmp_path / "once")), ("stay", ""), ("die always", "")]
        ended = []
        for task in tasks:
            while not pool.room:
                ended += pool.finished()
            pool.start(task)
        while pool.busy:
            ended += pool.finished()
    results = {one.task[0]: one for one in ended}
    assert results["die"].error is None
    assert results["stay"].error is None
    lost = results["die always"].error
    assert isinstance(lost, WorkerLost)
    assert str(lost) == "its process died 2 times, last with exit code 3"
    assert sum(units) == 2 * 5  # each beginning counts


def test_errors_of_workers_say_where_they_arose() -> None:
    with open_pool(act, LOCAL, 2) as pool:
        for what in ("refuse", "unpicklable"):
            pool.start((what, "bad input"))
        ended = []
        while pool.busy:
            ended += pool.finished()
    said = {one.task[0]: one.error for one in ended}
    assert isinstance(said["refuse"], RankscopeError)
    assert str(said["refuse"]) == "bad input"
    assert isinstance(said["refuse"].__cause__, WorkerTraceback)
    assert "in act" in str(said["refuse"].__cause__)
    assert str(said["unpicklable"]) == "Unpicklable: 1, 2"


@pytest.mark.slow
def test_threads_and_gpus_of_processes() -> None:
    with open_pool(act, LOCAL, 3, threads=2, gpus=("0", "3")) as pool:
        for _ in range(3):
            pool.start(("environment", "CUDA_VISIBLE_DEVICES"))
        gpus = []
        while pool.busy:
            gpus += [one.result for one in pool.finished()]
        pool.start(("environment", "OMP_NUM_THREADS"))
        (threads,) = next(filter(None, iter(pool.finished, None)))
    assert sorted(gpus) == ["0", "0", "3"]
    assert threads.result == "2"
    assert os.environ.get("CUDA_VISIBLE_DEVICES") not in ("0", "3")


def test_tasks_are_taken_when_there_is_room() -> None:
    taken: list[int] = []

    def tasks() -> Iterator[int]:
        for number in range(4):
            taken.append(number)
            yield number

    results = fan_out(lambda task, tick: task * task, tasks(), LOCAL, 1)
    for number in range(4):
        assert next(results) == number**2
        assert taken == list(range(number + 1))
    assert next(results, None) is None


@pytest.mark.parametrize(
    ("jobs", "gpus", "kind"),
    [(1, (), InProcess), (1, ("0",), InProcess), (3, (), Processes), (1, ("0", "1"), Processes)],
)
def test_which_pool_it_is(jobs: int, gpus: tuple[str, ...], kind: type) -> None:
    assert isinstance(open_pool(act, LOCAL, jobs, gpus=gpus), kind)


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ({"name": "locl"}, "did you mean 'local'"),
        ({"jobs": -1}, "jobs is -1"),
        ({"address": "auto"}, "needs engine ray"),
    ],
)
def test_engines_that_make_no_sense(engine: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Engine(**engine)


class Cluster(SimpleNamespace):
    """A stand-in for Ray that runs a task when it is submitted, and notes what was reserved for it."""

    def remote(self, function: Callable[..., Any]) -> Any:
        def options(**how: Any) -> Any:
            self.reserved.append({name: value for name, value in how.items() if name != "max_retries"})
            return SimpleNamespace(remote=lambda shared, task: (function(shared, task), task))

        return SimpleNamespace(options=options)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(
        reserved=[],
        owned={"GPU": 1, "CPU": 64},
        is_initialized=lambda: True,
        put=lambda value: value,
        wait=lambda running, num_returns, timeout: (running[:1], running[1:]),
        get=lambda one: one[0],
        cancel=lambda one, force: None,
        exceptions=SimpleNamespace(RayTaskError=ZeroDivisionError, RayError=ZeroDivisionError),
    )
    made.cluster_resources = lambda: made.owned
    made.nodes = lambda: [{"Alive": True, "Resources": {"CPU": 32.0}}] * 2
    monkeypatch.setattr(cluster, "import_ray", lambda: made)
    return made


def double(task: int, tick: Tick) -> int:
    return 2 * task


@pytest.mark.parametrize(
    ("engine", "gpus", "reserved"),
    [
        ({"device": "cpu"}, 1, {"num_cpus": 1}),
        ({"device": "cpu", "jobs": 4}, 1, {"num_cpus": 16}),
        ({"device": "cpu", "jobs": 1}, 1, {"num_cpus": 32}),
        ({"device": "cuda"}, 1, {"num_gpus": 1}),
        ({"device": "auto"}, 1, {"num_gpus": 1}),
        ({"device": "auto"}, 0, {"num_cpus": 1}),
    ],
)
def test_what_is_reserved_for_a_task(fake: Cluster, engine: dict[str, Any], gpus: int, reserved: Any) -> None:
    fake.owned["GPU"] = gpus
    assert list(fan_out(double, [1, 2], Engine("ray", **engine), 0)) == [2, 4]
    assert fake.reserved == [reserved]


def test_how_many_tasks_are_submitted(fake: Cluster) -> None:
    for jobs, ahead, most in ((3, 0, 3), (3, 2, 6), (0, 2, 128), (0, 0, None)):
        pool = open_pool(double, Engine("ray", jobs=jobs, device="cpu"), 0, ahead=ahead)
        for task in range(most or 500):
            assert pool.room
            pool.start(task)
        assert pool.room == (most is None)


def test_a_cluster_without_a_gpu(fake: Cluster) -> None:
    fake.owned["GPU"] = 0
    with pytest.raises(RankscopeError, match="has no GPU: choose --device cpu"):
        open_pool(double, Engine("ray", device="cuda"), 0)


def test_without_ray_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(OptionError, match=r"needs Ray: pip install 'rankscope\[ray\]'"):
        open_pool(double, Engine("ray"), 0)


@pytest.mark.slow
@needs_ray
def test_an_address_where_no_cluster_answers() -> None:
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for written in (address, f"ray://{address}"):
            with pytest.raises(OptionError, match=f"no Ray cluster answers at '{written}': ConnectionRefusedError"):
                open_pool(double, Engine("ray", address=written), 0)


@pytest.mark.parametrize("blocked", [set(), {signal.SIGINT}])
def test_signals_that_the_caller_blocks_stay_blocked(blocked: set[signal.Signals]) -> None:
    before = signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    try:
        with Processes(print, 1, lambda _: None) as pool:
            pool.start(0)
        assert signal.pthread_sigmask(signal.SIG_SETMASK, blocked) == blocked
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
