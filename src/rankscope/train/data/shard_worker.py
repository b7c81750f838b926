"""The process that makes shards: one at a time, with one thread, and never longer than the process that started it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import connection, parent_process
from pathlib import Path
from typing import Any

from rankscope.errors import RankscopeError
from rankscope.io.atomic import atomic_file
from rankscope.train.data.pool import SeriesPool, read_pool
from rankscope.train.data.shard_files import write_shard
from rankscope.train.data.shard_index import ShardFile, checksum
from rankscope.train.data.synthesis import Synthesis, shard_series

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Set to 1 for workers: they are the parallelism, and rounding must not depend on a number of threads."""

_state: dict[str, Any] = {}


class Stopped(RankscopeError):
    """The run was interrupted: the shard at hand is given up."""


@contextmanager
def quiet_children() -> Iterator[None]:
    """Let processes that are started inside compute with one thread each and never hear Ctrl-C, not even at first."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def start(spec: Synthesis, folder: str, made: Any, stop: Any) -> None:
    """Prepare this process.

    Args:
        spec: what to generate.
        folder: where the shards go.
        made: shared numbers of series generated, one per shard.
        stop: shared flag after which they give up.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process: the first one decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    _state.update(spec=spec, folder=Path(folder), made=made, stop=stop, pool=_pool(spec))


def make(shard: int) -> ShardFile:
    """Generate one shard and write it whole.

    Raises:
        OutputError: it cannot be written.
        Stopped: the run was interrupted.
    """
    spec, folder = _state["spec"], _state["folder"]
    name = f"shard-{shard:05d}.{spec.format}"
    tick = partial(_tick, shard)
    tick(0)
    series, lengths = shard_series(spec, shard, _state["pool"], tick)
    with atomic_file(folder / name) as path:
        write_shard(path, spec.kind, shard * spec.shard_size, series, lengths)
        digest = checksum(path)
    return ShardFile(name, len(series), int(lengths.min()), (folder / name).stat().st_size, digest)


def _pool(spec: Synthesis) -> SeriesPool | None:
    return read_pool(spec.files, spec.shortest) if spec.files else None


def _tick(shard: int, done: int) -> None:
    if _state["stop"].value:
        raise Stopped("interrupted")
    _state["made"][shard] += done


def _leave_with_parent() -> None:
    """A killed parent cannot tell its children; they would wait for work for ever."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
