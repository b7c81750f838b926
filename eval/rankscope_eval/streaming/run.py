"""Streaming forecasts of files of any length."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.choices import ON_DAMAGE, PART_FORMATS, PART_LAYOUTS
from rankscope.engine import Progress, silent
from rankscope.engine.fan_out import fan_out
from rankscope.engine.pool import Engine, Tick
from rankscope.errors import DataError, OptionError, check_count, unknown_choice
from rankscope.io.checksum import checksum
from rankscope.series import Columns
from rankscope.series.files import data_files
from rankscope.series.formats import Rows
from rankscope.series.stream import Stream, open_stream
from rankscope_eval.baselines import BASELINES
from rankscope_eval.forecast import check_context, check_quantiles
from rankscope_eval.forecasters import Forecaster, Forecasting, model_name, open_forecaster, quiet_imports
from rankscope_eval.metrics import QUANTILES
from rankscope_eval.streaming.folder import NAMED, PartFolder, StreamReport
from rankscope_eval.streaming.job import Job, Part, forecast_chunk

if TYPE_CHECKING:
    from rankscope.checkpoints import Checkpoint

CHUNK = 4096
AHEAD = 2
"""Chunks to prefetch on a cluster per chunk in progress."""


def forecast_stream(
    model: str | Path | Checkpoint | Forecaster,
    input: str | Path,
    horizon: int,
    out: str | Path,
    how: Forecasting | None = None,
    *,
    chunk: int = CHUNK,
    quantiles: Sequence[float] = QUANTILES,
    columns: Columns | None = None,
    freq: str | None = None,
    season_length: int | None = None,
    context: int | None = None,
    shape: str = "rows",
    format: str = "parquet",
    csv_safe: bool = False,
    on_error: str = "stop",
    engine: Engine | None = None,
    resume: bool = False,
    force: bool = False,
    progress: Progress = silent,
) -> StreamReport:
    """Stream forecasts of a file of any size to a folder of parts.

    Memory use is that of the model, a chunk and its forecasts, plus eight bytes per series to detect repeated ids
    and the rows that are left out. A resumed run continues after the last complete part and gives byte-identical
    results: chunks depend only on the file, and random numbers only on the seed and the chunk number.

    Args:
        model: baseline, checkpoint, or open forecaster.
        input: Parquet, Arrow, CSV or JSON-lines file, see `open_stream`.
        horizon: forecast horizon in steps.
        out: output folder.
        how: forecasting settings.
        chunk: series per part.
        quantiles: quantile levels in (0, 1).
        columns: non-default names of the id, time and target columns.
        freq: frequency (default: from the file).
        season_length: season length of the baselines.
        context: context length (default: the model's).
        shape: ``rows`` (one row per series and step) or ``lists`` (one row per series).
        format: file format of the parts: ``parquet``, ``csv`` or ``arrow``.
        csv_safe: put an apostrophe before item ids in CSV that a spreadsheet would take for formulas.
        on_error: ``stop`` at a damaged row, or ``skip`` and count it; finished parts are kept in both cases.
        engine: local engine, which computes one part at a time, or cluster. Cluster nodes need rankscope and the model
            (a hub id, a bundled name, or a folder available under the same path) but no shared storage.
        resume: continue an interrupted run, if there is one.
        force: start over.
        progress: progress callback with series done and series per second.

    Raises:
        RankscopeError: invalid file, model or option, or the folder holds something else.
    """
    how = how or Forecasting()
    engine = replace(engine or Engine(), device=how.device)
    if engine.name == "local" and engine.jobs > 1:
        raise OptionError(f"jobs is {engine.jobs}: on this machine parts are computed one at a time; use engine ray.")
    levels = check_quantiles(quantiles)
    horizon, chunk = check_count("horizon", horizon), check_count("chunk", chunk)
    season_length = None if season_length is None else check_count("season_length", season_length)
    for name, value, choices in (
        ("on_error", on_error, ON_DAMAGE),
        ("layout", shape, PART_LAYOUTS),
        ("format", format, PART_FORMATS),
    ):
        if value not in choices:
            raise OptionError(unknown_choice(name, value, choices))
    if (shape, format) == ("lists", "csv"):
        raise OptionError("layout 'lists' is not supported in CSV; use format parquet or arrow, or layout rows.")
    if csv_safe and format != "csv":
        raise OptionError(f"csv-safe is about CSV, and the parts are {format}: leave it out, or use format csv.")
    begun = time.perf_counter()
    source, weights = _opened(model, context, how.revision)
    title = model_name(model)
    names = columns or Columns()
    settings = {
        "weights": weights,
        "horizon": horizon,
        "quantiles": levels,
        "context": context,
        "season_length": season_length,
        "seed": how.seed,
        "num_samples": how.num_samples,
        "batch_size": how.batch_size,
        "device": how.device.partition(":")[0],
        "dtype": str(how.dtype),
        "runtime": how.runtime,
        "chunk": chunk,
        "layout": shape,
        "format": format,
        "freq": freq,
        "columns": [names.id, names.time, names.target],
        "input": _digest(Path(input)),
        **({"csv_safe": True} if csv_safe else {}),  # else absent: folders of earlier releases go on
    }
    stream = open_stream(input, chunk, columns=names, freq=freq)
    job = Job(
        model=model if isinstance(model, Forecaster) else title,
        weights=weights,
        how=how,
        horizon=horizon,
        levels=levels,
        season_length=season_length,
        context=context,
        stop=on_error == "stop",
        path=str(input),
        unit=stream.source.unit,
        layout=stream.layout,
        shape=shape,
        format=format,
        csv_safe=csv_safe,
    )
    folder = PartFolder(Path(out), title, settings)
    with folder.opened(resume, force):
        kept = len(folder.records)
        speed = _fill(folder, job, source, stream, engine, progress)
    return _report(folder, title, horizon, kept, time.perf_counter() - begun, speed)


def _fill(
    folder: PartFolder,
    job: Job,
    source: Forecaster | Checkpoint | str,
    stream: Stream,
    engine: Engine,
    progress: Progress,
) -> float:
    """Compute the missing parts; return series per second."""
    if folder.finished:
        return 0.0
    if engine.name == "local" and not isinstance(source, Forecaster):  # before the clock starts
        quiet_imports()
        job = replace(job, model=open_forecaster(source, job.how))
    before = sum(record.series for record in folder.records.values())
    done, begun = 0, time.perf_counter()
    todo = _missing(stream.chunks, folder)
    # not Ray Data, which reads files in its own blocks: parts and random numbers must depend only on the file
    for part in fan_out(partial(_part, job), todo, engine, 1, ahead=AHEAD):
        if part.bad and job.stop:
            raise DataError(_stopped(part.bad[0].reason, folder))
        folder.add(part)
        done += part.series
        seconds = time.perf_counter() - begun
        progress(before + done, stream.series or 0, _speed(before, done, seconds, stream))
    folder.finish()
    return done / max(1e-9, time.perf_counter() - begun)


def _part(job: Job, chunk: Rows, tick: Tick) -> Part:
    return forecast_chunk(job, chunk)


def _missing(chunks: Iterator[Rows], folder: PartFolder) -> Iterator[Rows]:
    there = set(folder.records)
    return (chunk for chunk in chunks if chunk.number not in there)


def _speed(before: int, done: int, seconds: float, stream: Stream) -> str:
    """Format the throughput, with the series so far if the total is unknown."""
    speed = f"{done / max(1e-9, seconds):,.0f} series/s"
    return speed if stream.series else f"{before + done:,} series, {min(stream.source.share(), 1.0):.0%} read, {speed}"


def _stopped(reason: str, folder: PartFolder) -> str:
    parts = len(folder.records)
    kept = f"{parts} finished part{'' if parts == 1 else 's'} in {folder.root} {'is' if parts == 1 else 'are'} kept: "
    how = "go on with --resume --on-error skip, or mend the file and start anew with --force."
    return f"{reason} {kept if parts else ''}{how}"


def _report(folder: PartFolder, title: str, horizon: int, kept: int, seconds: float, speed: float) -> StreamReport:
    records = [folder.records[number] for number in sorted(folder.records)]
    bad = [row for record in records for row in record.left_out]
    return StreamReport(
        folder=str(folder.root),
        model=title,
        horizon=horizon,
        series=sum(record.series for record in records),
        parts=len(records),
        parts_kept=kept,
        nan_only=sum(record.nan_only for record in records),
        left_out=len(bad),
        named=tuple(bad[:NAMED]),
        seconds=round(seconds, 2),
        series_per_second=round(speed, 1),
    )


def _opened(
    model: str | Path | Checkpoint | Forecaster, context: int | None, revision: str | None
) -> tuple[Forecaster | Checkpoint | str, str]:
    """The model, its checkpoint where it has one, and a hash of its weights; the name where it has none.

    Raises:
        CheckpointError: there is no such model.
        OptionError: it does not see that long a context.
    """
    if isinstance(model, Forecaster):
        check_context(context, model.context, model.name)
        return model, model.name
    if isinstance(model, str) and model in BASELINES:
        check_context(context, None, model)
        return model, model
    from rankscope.checkpoints import open_checkpoint
    from rankscope.compress.calibration import fingerprint

    checkpoint = open_checkpoint(model, revision=revision)
    check_context(context, checkpoint.family.context(checkpoint.config), model_name(model))
    return checkpoint, fingerprint(checkpoint)


def _digest(file: Path) -> str:
    """Size and hash of a file; of a folder the number of its files and the hash of their names and digests.

    Raises:
        DataError: there is no such file.
    """
    if file.is_dir():
        files = data_files(file)
        listed = "".join(f"{one.relative_to(file).as_posix()} {_digest(one)}\n" for one in files)
        return f"{len(files)}-{hashlib.sha256(listed.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"
    if not file.is_file():
        raise DataError(f"data file {file} does not exist.")
    return f"{file.stat().st_size}-{checksum(file)[:16]}"
