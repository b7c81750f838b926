"""Writing shards by worker processes: each file whole or not at all, a stopped run goes on where it was."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rankscope.engine.pool import available_cores
from rankscope.engine.progress import Progress, silent
from rankscope.errors import DataError, OutputError, RankscopeError
from rankscope.io import codec
from rankscope.io.atomic import publish_folder, refuse_existing
from rankscope.train.data import shard_worker
from rankscope.train.data.pool import read_pool
from rankscope.train.data.shard_index import ShardFile, ShardIndex, checksum, read_index
from rankscope.train.data.synth_report import SynthReport
from rankscope.train.data.synthesis import Synthesis

PARTIAL_FOLDER = ".partial"
"""Unfinished shards lie in this folder beside the target."""
POLL = 0.5
"""Seconds between two reports of progress, and between two looks for an interrupt."""


def write_shards(
    spec: Synthesis,
    out: Path | str,
    *,
    workers: int = 0,
    resume: bool = False,
    force: bool = False,
    progress: Progress = silent,
) -> SynthReport:
    """Generate series and write them to a folder of shards.

    Every shard is a function of ``spec`` and its number, to the bit, however many processes there are: each is made
    in one of them with one thread. Files are finished one by one in ``<out>.partial``, which becomes ``out`` when
    all are there; a run that was killed leaves them for ``resume``.

    Args:
        spec: what to generate.
        out: folder of the shards.
        workers: processes; 0 for one per CPU core.
        resume: keep the files that an unfinished run has finished; a finished folder is left as it is.
        force: replace ``out``, and what an unfinished run left, if they exist.
        progress: told how many series there are, and how many per second.

    Returns:
        The report; ``out`` also holds the index.

    Raises:
        OutputError: ``out`` or an unfinished run of it exists, there is nothing to resume or it is of another kind,
            or the disk is full.
        DataError: the user's files cannot be used.
        RankscopeError: a worker process was killed.
    """
    target = Path(out)
    partial = target.with_name(f"{target.name}{PARTIAL_FOLDER}")
    wanted = _wanted(spec)
    if resume and target.exists() and not partial.exists():
        return _report(_same(target, wanted), target, 0, 0.0)
    refuse_existing(target, force)
    if resume:
        index = replace(wanted, files=_finished(partial, _same(partial, wanted)))
    elif partial.exists() and not force:
        raise OutputError(f"an unfinished run lies in {partial}: go on with --resume, or start anew with --force.")
    else:
        shutil.rmtree(partial, ignore_errors=True)
        index = wanted
    _make_folder(partial)
    index.write(partial)
    begun = time.perf_counter()
    complete = _generate(index, partial, workers or available_cores(), progress)
    publish_folder(partial, target, force=force)
    return _report(complete, target, spec.n - sum(f.rows for f in index.files), time.perf_counter() - begun)


def _wanted(spec: Synthesis) -> ShardIndex:
    """Index of a folder with no files yet; the user's files are read once to see that they can be used."""
    if not spec.files:
        return ShardIndex(spec, {}, {}, ())
    pool = read_pool(spec.files, spec.shortest)
    left_out = {"short": pool.short, "constant": pool.constant}
    return ShardIndex(spec, {file: checksum(Path(file)) for file in spec.files}, left_out, ())


def _same(folder: Path, wanted: ShardIndex) -> ShardIndex:
    """Read the index of a folder that a run goes on with, and refuse to make another one of it."""
    try:
        found = read_index(folder)
    except DataError as error:
        raise OutputError(f"nothing to resume: {error} Start without --resume.") from error
    was, now = codec.plain(found.synthesis), codec.plain(wanted.synthesis)
    for name in now:
        if was[name] != now[name]:
            raise OutputError(f"{folder} has {name} {was[name]!r}, not {now[name]!r}: resume it as it was begun.")
    for file, digest in wanted.sources.items():
        if found.sources.get(file) != digest:
            raise OutputError(f"{file} has changed since {folder} was begun: start anew with --force.")
    return found


def _finished(partial: Path, index: ShardIndex) -> tuple[ShardFile, ...]:
    """Shards that are there whole; what a killed process left half-written is removed."""
    for rest in partial.glob(".*"):
        rest.unlink()
    sizes = {file: partial / file.name for file in index.files}
    return tuple(file for file, path in sizes.items() if path.is_file() and path.stat().st_size == file.bytes)


def _make_folder(partial: Path) -> None:
    try:
        partial.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {partial}: {error.strerror or error}.") from error


def _generate(index: ShardIndex, partial: Path, workers: int, progress: Progress) -> ShardIndex:
    """Make the shards that are missing; the index is written anew after each."""
    spec, there = index.synthesis, {file.name for file in index.files}
    todo = [n for n in range(spec.shards) if f"shard-{n:05d}.{spec.format}" not in there]
    if not todo:
        return index
    context = get_context("spawn")  # a forked process would inherit threads and locks in any state
    # without locks: a worker that is killed while it holds one would let all others wait for ever
    made, stop = context.RawArray("q", spec.shards), context.RawValue("b", 0)
    before = sum(file.rows for file in index.files)
    settings = (spec, str(partial), made, stop)
    begun = time.perf_counter()
    executor = ProcessPoolExecutor(min(workers, len(todo)), context, shard_worker.start, settings)
    try:
        with held_back() as let_through:
            with shard_worker.quiet_children():
                pending: set[Future[ShardFile]] = {executor.submit(shard_worker.make, number) for number in todo}
            while pending:
                done, pending = wait(pending, POLL, FIRST_COMPLETED)
                for future in done:
                    files = sorted((*index.files, future.result()), key=lambda file: file.name)
                    index = replace(index, files=tuple(files))
                    index.write(partial)
                count = sum(made)
                if count and pending:
                    progress(before + count, spec.n, _speed(count, spec, time.perf_counter() - begun))
                let_through()
    except BrokenProcessPool as error:
        raise RankscopeError(
            f"a worker process was killed, perhaps for lack of memory: go on with --resume, and fewer --workers. "
            f"{len(index.files)} finished shards are in {partial}."
        ) from error
    finally:
        stop.value = 1  # the shards at hand are given up at their next chunk
        executor.shutdown(wait=True, cancel_futures=True)
    progress(spec.n, spec.n, _speed(sum(made), spec, time.perf_counter() - begun))
    return index


@contextmanager
def held_back() -> Iterator[Callable[[], None]]:
    """Hold SIGINT and SIGTERM back while the block runs; what it gets lets the first that came through, if any did.

    An exception in the middle of a wait would leave a future's lock taken, and the pool's own thread waiting for it.
    """
    came: list[tuple[int, Any]] = []

    def let_through() -> None:
        if came:
            number, frame = came.pop(0)
            handler = before[number]
            if callable(handler):
                handler(number, frame)

    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        before = {number: handler for number, handler in before.items() if callable(handler)}
    for number in before:
        signal.signal(number, lambda *what: came.append(what))
    try:
        yield let_through
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    let_through()


def _speed(made: int, spec: Synthesis, seconds: float) -> str:
    return f"{made / seconds:,.0f} series/s, {made * spec.length * 4 / 1e6 / seconds:,.1f} MB/s"


def _report(index: ShardIndex, target: Path, written: int, seconds: float) -> SynthReport:
    size = sum(file.bytes for file in index.files)
    rate = written / seconds if seconds else 0.0
    return SynthReport(
        folder=str(target),
        kind=index.synthesis.kind,
        series=index.synthesis.n,
        length=index.synthesis.length,
        shards=len(index.files),
        bytes=size,
        written=written,
        seconds=round(seconds, 2),
        series_per_second=round(rate, 1),
        mb_per_second=round(rate * size / index.synthesis.n / 1e6, 2),
        left_out=dict(index.left_out),
    )
