"""Points in other processes and on a Ray cluster: a killed worker's point goes on from its snapshot."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rankscope.engine.device import visible_gpus
from rankscope.train.sweeps import Engine, PointTask, run_sweep
from rankscope.train.sweeps.points import SweepFolder, lost, read_beat

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: it is the extra 'ray'")
TWO = {
    "small": {"model.d_model": 8},
    "large": {"max_steps": 200, "save_steps": 20, "log_steps": 5},  # long enough to be killed on its way
}


@contextlib.contextmanager
def killing(out: Path, point: str, step: int) -> Iterator[list[int]]:
    """Kill the process of a point, once, as soon as it has gone that far; yields the pids that were killed."""
    killed: list[int] = []
    over = threading.Event()

    def wait() -> None:
        while not over.is_set():
            beat = read_beat(SweepFolder(out), point)
            if beat.get("step", 0) >= step:
                os.kill(beat["pid"], signal.SIGKILL)
                killed.append(beat["pid"])
                return
            time.sleep(0.02)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    yield killed
    over.set()
    thread.join()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Sums depend on the number of threads: as many here as in the workers."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@contextlib.contextmanager
def cluster(engine: str) -> Iterator[str]:
    """A Ray cluster with room for two worker processes; it writes no token into the home folder."""
    if engine != "ray":
        yield ""
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        from ray.cluster_utils import Cluster

        started = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
        try:
            yield started.address
        finally:
            started.shutdown()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, write_sweep: Any) -> Path:
    """Points that nobody disturbed."""
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    with one_thread():
        report = run_sweep(write_sweep(out.parent, points=TWO), out, engine=Engine(device="cpu"))
    assert [row.error for row in report.points] == ["", ""]
    return out


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", pytest.param("ray", marks=needs_ray)])
def test_a_killed_worker_goes_on_from_its_snapshot(engine, whole, sweep, same_weights, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    out = tmp_path / "out"
    with cluster(engine) as address, killing(out, "large", 25) as killed:
        how = Engine(engine, jobs=2, address=address, device="cpu")
        small, large = run_sweep(sweep(points=TWO), out, engine=how).points
    assert len(killed) == 1
    assert (small.state, large.state) == ("done", "done")
    assert small.resumed_at == ()
    (step,) = large.resumed_at
    assert step > 20  # the first snapshot, at least
    assert (step - 5) % 20 == 0
    for name in ("small", "large"):
        assert same_weights(out / "points" / name, whole / "points" / name)


def test_visible_gpus_keep_the_names_of_the_environment(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_gpus() == ("0", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, MIG-7")
    assert visible_gpus() == ("5", "MIG-7")


def test_a_lost_point_names_its_log(sweep, tmp_path):
    (point,) = sweep(points={"a": {}}).expand()
    task = PointTask(point, str(tmp_path), (0.1,))
    log = SweepFolder(tmp_path).log("a")
    log.parent.mkdir()
    log.touch()
    assert lost(task, "it died").error == f"it died; see {log}"
