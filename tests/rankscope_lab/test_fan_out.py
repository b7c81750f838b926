"""Tasks in processes and on a cluster: what ends them, and what they reserve."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rankscope.errors import RankscopeError
from rankscope_lab import fan_out as module
from rankscope_lab.fan_out import Engine, fan_out

pytestmark = pytest.mark.slow

SCRIPT = """
    import signal, sys, time
    from pathlib import Path
    from rankscope_lab.fan_out import Engine, fan_out

    def work(task, ticks):
        folder, number, fails = task
        (Path(folder) / f"begun-{number}").touch()
        if fails and number == 0:
            raise ValueError("broken")
        time.sleep(2)
        (Path(folder) / f"done-{number}").touch()

    if __name__ == "__main__":
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs begin with it ignored
        tasks = [(sys.argv[1], number, sys.argv[2] == "fails") for number in range(6)]
        list(fan_out(work, tasks, Engine(jobs=2), lambda units: None))
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
        if one.poll() is None:
            os.killpg(one.pid, signal.SIGKILL)
        one.wait()


def settled(folder: Path) -> list[str]:
    """What is there, and is still all after as long as a task takes."""
    time.sleep(2.5)
    return sorted(file.name for file in folder.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="process groups are of Unix")
@pytest.mark.parametrize("reaches", ["the group", "the first"])
def test_an_interrupt_ends_what_runs_and_what_waits(
    started: Callable[[str], subprocess.Popen[str]], tmp_path: Path, reaches: str
) -> None:
    """As from a terminal, where every process of the group gets it; and to the first process alone."""
    one, seen = started("works"), tmp_path / "seen"
    while len(list(seen.iterdir())) < 2:
        assert one.poll() is None
        time.sleep(0.05)
    (os.killpg if reaches == "the group" else os.kill)(one.pid, signal.SIGINT)
    one.communicate()
    assert one.returncode != 0
    assert settled(seen) == ["begun-0", "begun-1"]


def test_an_error_ends_what_runs_and_what_waits(
    started: Callable[[str], subprocess.Popen[str]], tmp_path: Path
) -> None:
    one = started("fails")
    said = one.communicate()[1]
    assert "ValueError: broken" in said
    assert not [name for name in settled(tmp_path / "seen") if name.startswith("done")]


class Cluster(SimpleNamespace):
    """A stand-in for Ray that runs a task when it is submitted, and notes what was reserved for it."""

    def remote(self, function: Callable[..., Any]) -> Any:
        def options(**how: Any) -> Any:
            self.reserved.append(how["num_gpus"])
            return SimpleNamespace(remote=lambda task, one: task(one, lambda units: None))

        return SimpleNamespace(options=options)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(
        reserved=[],
        gpus=1,
        is_initialized=lambda: True,
        wait=lambda running, num_returns: (running[:1], running[1:]),
        get=lambda one: one,
        cancel=lambda one, force: None,
        exceptions=SimpleNamespace(RayTaskError=ZeroDivisionError, RayError=ZeroDivisionError),
    )
    made.cluster_resources = lambda: {"GPU": made.gpus, "CPU": 64}
    monkeypatch.setattr(module, "import_ray", lambda: made)
    return made


def double(task: int, ticks: Callable[[int], None]) -> int:
    return 2 * task


def test_a_gpu_is_reserved_for_tasks_that_use_one(cluster: Cluster) -> None:
    def run(device: str) -> list[int]:
        return list(fan_out(double, [1, 2], Engine("ray"), lambda units: None, device=device))

    assert run("cpu") == [2, 4]
    assert run("cuda") == [2, 4]
    assert cluster.reserved == [0, 1]
    cluster.gpus = 0
    with pytest.raises(RankscopeError, match="has no GPU: choose --device cpu"):
        run("cuda")
