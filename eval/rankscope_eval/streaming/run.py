"""Forecasts of a file of any length: chunks in, parts out."""

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
from rankscope.engine.pool import Engine, Tick, fan_out
from rankscope.errors import DataError, OptionError, unknown_choice
from rankscope.series import Columns
from rankscope.series.files import Rows
from rankscope.series.stream import Stream, open_stream
from rankscope_eval.baselines import BASELINES
from rankscope_eval.forecast import check_context, check_horizon, check_quantiles, check_season
from rankscope_eval.forecasters import Forecaster, Forecasting, check_counts, open_forecaster, quiet_imports
from rankscope_eval.metrics import QUANTILES
from rankscope_eval.streaming.folder import NAMED, PartFolder, StreamReport
from rankscope_eval.streaming.job import Job, Part, forecast_chunk

if TYPE_CHECKING:
    from rankscope.checkpoints import Checkpoint

CHUNK = 4096
AHEAD = 2
"""Chunks that are read ahead on a cluster, for every one that is forecast."""
SAMPLED = 64
"""Places, of a MiB each, at which a large input is looked at to tell it from another."""


def forecast_stream(
    model: str | Forecaster,
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
    on_error: str = "stop",
    engine: Engine | None = None,
    resume: bool = False,
    force: bool = False,
    progress: Progress = silent,
) -> StreamReport:
    """Forecast every series of a file that may be larger than memory into a folder of parts.

    Memory is that of the model, a chunk and its forecasts, however long the file is, and eight bytes per series to
    notice names that come twice. A run that was stopped goes on behind its last whole part, and ends with the same
    bytes as one that was not: chunks depend on the file alone, random numbers on the seed and the chunk.

    Args:
        model: a baseline, a checkpoint, or an open forecaster.
        input: Parquet, Arrow, CSV or JSON lines, see `open_stream`.
        horizon: steps.
        out: the folder.
        how: the model forecasts.
        chunk: series per part.
        quantiles: levels in (0, 1).
        columns: names of the id, time and target columns, where they are not the usual ones.
        freq: frequency, where the file does not tell it.
        season_length: of the baselines.
        context: values of each series that the model sees; as many as it can by default.
        shape: ``rows`` (one per series and step) or ``lists`` (one row per series).
        format: of the parts: ``parquet``, ``csv`` or ``arrow``.
        on_error: ``stop`` at a damaged row, or ``skip`` it and count it; finished parts stay either way.
        engine: where chunks are forecast: one after the other here, or on a cluster, whose machines need rankscope and
            the model (a hub id, a bundled name, or a folder that all see under one path) and share no storage.
        resume: go on with what is in the folder, if anything is.
        force: start anew.
        progress: told how many series are done, and how many per second.

    Raises:
        RankscopeError: the file, the model or an option cannot be used, or the folder holds something else.
    """
    how = how or Forecasting()
    engine = replace(engine or Engine(), device=how.device)
    levels = check_quantiles(quantiles)
    check_horizon(horizon)
    check_season(season_length)
    check_counts(chunk=chunk)
    for name, value, choices in (
        ("on_error", on_error, ON_DAMAGE),
        ("layout", shape, PART_LAYOUTS),
        ("format", format, PART_FORMATS),
    ):
        if value not in choices:
            raise OptionError(unknown_choice(name, value, choices))
    if (shape, format) == ("lists", "csv"):
        raise OptionError("layout 'lists' has no place in CSV: use format parquet or arrow, or layout rows.")
    begun = time.perf_counter()
    source, weights = _opened(model, context, how.revision)
    title = model.name if isinstance(model, Forecaster) else str(model)
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
    }
    stream = open_stream(input, chunk, columns=names, freq=freq)
    job = Job(
        model=model if isinstance(model, Forecaster) else title,
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
    """Make the parts that are missing; return series per second."""
    if folder.finished:
        return 0.0
    if engine.name == "local" and not isinstance(source, Forecaster):  # before the clock starts
        quiet_imports()
        job = replace(job, model=open_forecaster(source, job.how))
    before = sum(record.series for record in folder.records.values())
    done, begun = 0, time.perf_counter()
    todo = _missing(stream.chunks, folder)
    # Ray Data reads files in blocks of its own; a part, its random numbers with it, is to depend on the file alone
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
    """Speed, and the count of series where a file does not tell their total."""
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
    model: str | Forecaster, context: int | None, revision: str | None
) -> tuple[Forecaster | Checkpoint | str, str]:
    """The model, its checkpoint where it has one, and a hash of its weights; the name where it has none.

    Raises:
        CheckpointError: there is no such model.
        OptionError: it does not see that long a context.
    """
    if isinstance(model, Forecaster):
        check_context(context, model.context, model.name)
        return model, model.name
    if model in BASELINES:
        check_context(context, None, model)
        return model, model
    from rankscope.checkpoints import open_checkpoint
    from rankscope.compress.calibration import fingerprint

    checkpoint = open_checkpoint(model, revision=revision)
    check_context(context, checkpoint.family.context(checkpoint.config), str(model))
    return checkpoint, fingerprint(checkpoint)


def _digest(file: Path) -> str:
    """Size and hash of a file; of a large one the hash of many places in it, which takes no minutes.

    Raises:
        DataError: there is no such file.
    """
    if not file.is_file():
        raise DataError(f"data file {file} does not exist.")
    size, piece = file.stat().st_size, 1 << 20
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        if size <= SAMPLED * piece:
            digest.update(stream.read())
        else:
            for place in range(SAMPLED):
                stream.seek((size - piece) * place // (SAMPLED - 1))
                digest.update(stream.read(piece))
    return f"{size}-{digest.hexdigest()[:16]}"
