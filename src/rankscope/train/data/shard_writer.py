"""Writing shards by worker processes: each file whole or not at all, a stopped run goes on where it was."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

from rankscope.engine.pool import Processes, Tick, WorkerLost, available_cores
from rankscope.engine.progress import Progress, silent
from rankscope.errors import DataError, OutputError, RankscopeError
from rankscope.io import codec
from rankscope.io.atomic import atomic_file, publish_folder, refuse_existing
from rankscope.train.data.pool import SeriesPool, read_pool
from rankscope.train.data.shard_files import write_shard
from rankscope.train.data.shard_index import INDEX, ShardFile, ShardIndex, checksum, read_index
from rankscope.train.data.synth_report import SynthReport
from rankscope.train.data.synthesis import Synthesis, shard_series

PARTIAL_FOLDER = ".partial"
"""Unfinished shards lie in this folder beside the target."""
POLL = 0.5
"""Seconds between two reports of progress."""


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
    unfinished = target.with_name(f"{target.name}{PARTIAL_FOLDER}")
    wanted = _wanted(spec)
    if resume and target.exists() and not unfinished.exists():
        return _report(_same(target, wanted), target, 0, 0.0)
    refuse_existing(target, force)
    if resume and (unfinished / INDEX).exists():
        index = replace(wanted, files=_finished(unfinished, _same(unfinished, wanted)))
    elif unfinished.exists() and not (resume or force):
        raise OutputError(f"an unfinished run lies in {unfinished}: go on with --resume, or start anew with --force.")
    else:
        shutil.rmtree(unfinished, ignore_errors=True)
        index = wanted
    _make_folder(unfinished)
    index.write(unfinished)
    begun = time.perf_counter()
    complete = _generate(index, unfinished, workers or available_cores(), progress)
    publish_folder(unfinished, target, force=force)
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


def _generate(index: ShardIndex, folder: Path, workers: int, progress: Progress) -> ShardIndex:
    """Make the shards that are missing; the index is written anew after each."""
    spec, there = index.synthesis, {file.name for file in index.files}
    todo = [n for n in range(spec.shards) if f"shard-{n:05d}.{spec.format}" not in there]
    if not todo:
        return index
    made, before, begun, told = 0, sum(file.rows for file in index.files), time.perf_counter(), 0.0

    def tick(series: int) -> None:
        nonlocal made
        made += series

    # processes, even if it is one: rounding must not depend on a number of threads
    with Processes(partial(make_shard, spec, folder), min(workers, len(todo)), tick, threads=1) as pool:
        while todo or pool.busy:
            while todo and pool.room:
                pool.start(todo.pop(0))
            for ended in pool.finished(POLL):
                if isinstance(ended.error, WorkerLost):
                    raise RankscopeError(
                        "a worker process was killed, perhaps for lack of memory: go on with --resume, and fewer "
                        f"--workers. {len(index.files)} finished shards are in {folder}."
                    ) from ended.error
                if ended.error is not None:
                    raise ended.error
                index = replace(index, files=tuple(sorted((*index.files, ended.result), key=lambda file: file.name)))
                index.write(folder)
            seconds = time.perf_counter() - begun
            if made and pool.busy and seconds - told >= POLL:
                told = seconds
                progress(before + made, spec.n, _speed(made, spec, seconds))
    progress(spec.n, spec.n, _speed(made, spec, time.perf_counter() - begun))
    return index


def make_shard(spec: Synthesis, folder: Path, shard: int, tick: Tick) -> ShardFile:
    """Generate one shard and write it whole: a function of ``spec`` and its number.

    Raises:
        OutputError: it cannot be written.
    """
    file = folder / f"shard-{shard:05d}.{spec.format}"
    series, lengths = shard_series(spec, shard, _pool(spec.files, spec.shortest), tick)
    with atomic_file(file) as path:
        write_shard(path, spec.kind, shard * spec.shard_size, series, lengths)
        digest = checksum(path)
    return ShardFile(file.name, len(series), int(lengths.min()), file.stat().st_size, digest)


@lru_cache(maxsize=1)
def _pool(files: tuple[str, ...], shortest: int) -> SeriesPool | None:
    """The user's series, read once in a process."""
    return read_pool(files, shortest) if files else None


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
