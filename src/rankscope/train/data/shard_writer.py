"""Write shards atomically in worker processes, with resume."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import ClassVar

from rankscope.engine import Progress, silent
from rankscope.engine.pool import Processes, Tick, WorkerLost, available_cores
from rankscope.errors import DataError, OutputError, RankscopeError
from rankscope.io import codec
from rankscope.io.atomic import atomic_file, publish_folder, refuse_existing, sweep
from rankscope.io.checksum import checksum
from rankscope.io.run_store import RunStore, differences, refuse_both
from rankscope.series import Columns
from rankscope.train.data.mixture import CORPUS_VERSION
from rankscope.train.data.pool import SeriesPool, read_pool
from rankscope.train.data.shard_files import (
    ShardFile,
    ShardIndex,
    read_index,
    write_shard,
)
from rankscope.train.data.synthesis import Synthesis, shard_series

PARTIAL_FOLDER, SHARDS = ".partial", "shards"
"""Subfolder of ``<out>.partial`` for shards of an unfinished run."""
POLL = 0.5
"""Seconds between progress reports."""


@dataclass(frozen=True)
class SynthReport:
    """Report of a synthesis run.

    Attributes:
        folder: output folder.
        kind: kind of series.
        series: number of series.
        length: maximum length of a series.
        shards: number of files.
        bytes: total file size.
        written: series written by this call; the others existed.
        seconds: wall time of this call.
        series_per_second: throughput in series.
        mb_per_second: throughput in MB (10⁶ bytes).
        left_out: skipped series of the user's files, by reason.
    """

    folder: str
    kind: str
    series: int
    length: int
    shards: int
    bytes: int
    written: int
    seconds: float
    series_per_second: float
    mb_per_second: float
    left_out: dict[str, int]

    SCHEMA: ClassVar = "rankscope/synth@1"


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

    Each shard is a bit-exact function of ``spec`` and its number, independent of the number of processes. Shards are
    written to ``<out>.partial/shards``, which becomes ``out`` when complete; an interrupted run can be resumed.

    Worker processes import the script that calls: there the call stands below ``if __name__ == "__main__":``.

    Args:
        spec: generation settings.
        out: output folder.
        workers: processes; 0 for one per CPU core.
        resume: keep the shards of an interrupted run; a finished folder is left unchanged.
        force: overwrite ``out`` and any unfinished run.
        progress: progress callback with series done and series per second.

    Returns:
        The report; ``out`` also contains the index.

    Raises:
        OutputError: ``out`` or an unfinished run exists, the run to resume has other settings, another process is
            writing to it, or the disk is full.
        OptionError: both ``resume`` and ``force``.
        DataError: the user's files are invalid.
        RankscopeError: a worker process was killed, or could not start.
    """
    refuse_both(resume, force)
    target, wanted = Path(out), _wanted(spec)
    settings = {**codec.plain(spec), "sources": wanted.sources, "corpus_version": CORPUS_VERSION}
    root = target.with_name(f"{target.name}{PARTIAL_FOLDER}")
    store = RunStore(root, "unfinished shards", "rankscope/synth-run@1", settings, owns=(SHARDS,))
    begun = store.manifest() if resume else None
    replaces = force or bool((begun or {}).get("replaces"))
    if resume and target.exists() and (begun is None or _is_whole(target, wanted)):
        found = _same(target, wanted)
        if begun is not None:  # killed after publishing its shards
            store.discard()
        return _report(found, target, 0, 0.0)
    store.check(resume, force)
    refuse_existing(target, replaces)
    store.facts = {"replaces": replaces or None}
    with store.open(resume, force):
        there = _finished(store)
        since = time.perf_counter()
        index = replace(wanted, files=_generate(spec, store, there, workers or available_cores(), progress))
        index.write(root / SHARDS)
        publish_folder(root / SHARDS, target, force=replaces)
        store.discard()
    return _report(index, target, spec.n - sum(file.rows for file in there), time.perf_counter() - since)


def _wanted(spec: Synthesis) -> ShardIndex:
    """Build the index of a new folder; reads the user's files once to validate them."""
    if not spec.files:
        return ShardIndex(spec, {}, {}, ())
    pool = read_pool(spec.files, spec.shortest, spec.columns, spec.freq)
    left_out = {"short": pool.short, "constant": pool.constant}
    return ShardIndex(spec, {file: checksum(Path(file)) for file in spec.files}, left_out, ())


def _same(folder: Path, wanted: ShardIndex) -> ShardIndex:
    """Read the index of a folder to resume, and check that the settings match."""
    try:
        found = read_index(folder)
    except DataError as error:
        raise OutputError(f"nothing to resume: {error} Start without --resume.") from error
    for name, was, now in differences(found.synthesis, wanted.synthesis):
        raise OutputError(f"{folder} has {name} {was!r}, not {now!r}: resume it as it was begun.")
    for file, digest in wanted.sources.items():
        if found.sources.get(file) != digest:
            raise OutputError(f"{file} has changed since {folder} was begun: start anew with --force.")
    return found


def _is_whole(folder: Path, wanted: ShardIndex) -> bool:
    with contextlib.suppress(OutputError):
        return _same(folder, wanted).complete
    return False


def _finished(store: RunStore) -> list[ShardFile]:
    """Return the complete shards; remove partial files of a killed process."""
    folder = store.root / SHARDS
    sweep(folder)
    records = [record for name in store.names() if (record := store.get(name, ShardFile)) is not None]
    sizes = {record: folder / record.name for record in records}
    return [record for record, path in sizes.items() if path.is_file() and path.stat().st_size == record.bytes]


def _generate(
    spec: Synthesis, store: RunStore, there: list[ShardFile], workers: int, progress: Progress
) -> tuple[ShardFile, ...]:
    """Generate the missing shards and record each; return all."""
    files = {file.name: file for file in there}
    todo = [n for n in range(spec.shards) if _file_name(spec, n) not in files]
    if not todo:
        return tuple(there)
    made, before, begun, reported = 0, sum(file.rows for file in there), time.perf_counter(), 0.0

    def tick(series: int) -> None:
        nonlocal made
        made += series

    # always in a worker process with one thread: rounding must not depend on the number of threads
    make = partial(make_shard, spec, store.root / SHARDS)
    with Processes(make, min(workers, len(todo)), tick, threads=1) as pool:
        while todo or pool.busy:
            while todo and pool.room:
                pool.start(todo.pop(0))
            for ended in pool.finished(POLL):
                if isinstance(ended.error, WorkerLost):
                    if ended.error.code == 1 and not made:  # no signal: it has not come so far as to do its task
                        raise RankscopeError(
                            "a worker process ended at its start, as it says above: workers import the script that "
                            "called, so write the call of write_shards below: if __name__ == '__main__'."
                        ) from ended.error
                    raise RankscopeError(
                        "a worker process was killed, perhaps for lack of memory: go on with --resume, and fewer "
                        f"--workers. {len(files)} finished shards are in {store.root}."
                    ) from ended.error
                if ended.error is not None:
                    raise ended.error
                file = files[ended.result.name] = ended.result
                store.put(Path(file.name).stem, file)
            seconds = time.perf_counter() - begun
            if made and pool.busy and seconds - reported >= POLL:
                reported = seconds
                progress(before + made, spec.n, _speed(made, spec, seconds))
    progress(spec.n, spec.n, _speed(made, spec, time.perf_counter() - begun))
    return tuple(files[name] for name in sorted(files))


def _file_name(spec: Synthesis, shard: int) -> str:
    return f"shard-{shard:05d}.{spec.format}"


def make_shard(spec: Synthesis, folder: Path, shard: int, tick: Tick) -> ShardFile:
    """Generate a shard and write it atomically; deterministic in ``spec`` and its number.

    Raises:
        OutputError: the file cannot be written.
    """
    file = folder / _file_name(spec, shard)
    pool = _pool(spec.files, spec.shortest, spec.columns, spec.freq)
    series, lengths = shard_series(spec, shard, pool, tick)
    with atomic_file(file) as path:
        write_shard(path, spec.kind, shard * spec.shard_size, series, lengths)
        digest = checksum(path)
    return ShardFile(file.name, len(series), int(lengths.min()), file.stat().st_size, digest)


@lru_cache(maxsize=1)
def _pool(files: tuple[str, ...], shortest: int, columns: Columns | None, freq: str | None) -> SeriesPool | None:
    """Read the user's series, once per process."""
    return read_pool(files, shortest, columns, freq) if files else None


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
