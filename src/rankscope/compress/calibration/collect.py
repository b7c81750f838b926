"""Collection of calibration statistics: passes over a calibration set, resumable, and their report."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

import torch

from rankscope.checkpoints import Checkpoint
from rankscope.choices import DECODERS
from rankscope.compress.calibration.moments import WIDE, InputMoments, MomentSink
from rankscope.compress.calibration.passes import (
    MEMORY,
    CalibrationSet,
    by_length,
    pass_inputs,
    positions_of,
    stream_of,
    watch_streams,
    watched_modules,
    with_partners,
)
from rankscope.compress.calibration.sources import cap_note, named_set
from rankscope.compress.calibration.statistics import (
    SUFFIX,
    Calibration,
    CalibrationSettings,
    digest,
    fingerprint,
    finished_moments,
    is_saved,
    load_calibration,
    load_moments,
    save_moments,
    series_for,
)
from rankscope.engine import Progress, silent
from rankscope.engine.device import fast_products, in_bfloat16, resolve_device, resolve_dtype
from rankscope.engine.interrupts import uninterrupted
from rankscope.engine.memory import give_back
from rankscope.errors import FamilyError, OptionError, check_count, unknown_choice
from rankscope.families import Site, compressible
from rankscope.io.run_store import RunStore
from rankscope.numerics import effective_rank
from rankscope.numerics.parallel import parallel_map
from rankscope.series import Columns

PARTIAL = "moments"
"""Item of an unfinished calibration: the sums so far."""
SAVE_SECONDS = 30.0
"""Least time between two saves of an unfinished calibration, which follow whole batches; an interrupt saves, too."""
SAVING = 10
"""Least time between two saves, in times that the last one took: moments of large models are gigabytes."""
_FIRST = ("encoder.block.0.layer.0.SelfAttention.q", "encoder.block.0.layer.0.self_attention.q")
SILENT = torch.finfo(torch.float32).eps
"""Share of the largest eigenvalue below which float32 cannot distinguish a direction from one that no input has."""


_GROUPED = 8
"""Series of a batch of which four are a group, see `rankscope.families.chronos2.mixed_groups`."""
BATCH = 16
"""Series per forward pass, by default."""


def calibrate(
    checkpoint: Checkpoint,
    series: CalibrationSet,
    *,
    sites: tuple[Site, ...] | None = None,
    decoder: str = "teacher",
    batch_size: int = BATCH,
    seed: int | None = None,
    device: str = "cpu",
    dtype: str | torch.dtype | None = None,
    file: str | Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Calibration:
    """Run a model over a calibration set and sum the second moments of its layer inputs, every series alike.

    A stream of width d keeps d² numbers, and d for each of the first 2d series; more series add nothing. Batches are
    made of series of like length. Wide models multiply in bfloat16 on processors that have instructions for it
    (`rankscope.engine.device.fast_products`); moments are summed in float32 within a batch and, as
    `InputMoments` says, mostly in float64 over batches.

    Args:
        checkpoint: any family, stock or compressed.
        series: histories and what followed.
        sites: matrices whose inputs are wanted; those of attention by default.
        decoder: what the decoder reads, ``teacher`` (the values that followed) or ``sampled`` (the model's own paths).
        batch_size: series per forward pass; of families whose series attend to each other at least eight, as groups
            are of four, between four that are alone.
        seed: of sample paths; the set's own by default.
        device: ``cpu``, ``cuda`` or ``auto``.
        dtype: number format of the forward passes, float32 by default.
        file: keep the moments in this file. A run that is stopped goes on, from what lies in ``<file>.run``, when it is
            started again with the same settings; one that is finished is read back. Ctrl-C waits for the batch at hand
            and saves, a second one does not wait.
        force: begin anew, and replace ``file`` at the end.
        progress: told the number of series done.

    Raises:
        OptionError: an unknown decoder, a batch size below 1, or ``file`` holds a calibration with other settings.
        OutputError: an unfinished one has other settings, or another process is at work on it.
        DataError: a layer's input is not finite.
        FamilyError: a family that is not compressed, or sample paths of a text model.
    """
    if checkpoint.family.low_rank is None:
        raise FamilyError(
            f"{checkpoint.source} is a {checkpoint.family.title} model: {compressible()} can be calibrated, since "
            "they can be compressed."
        )
    if decoder not in DECODERS:
        raise OptionError(unknown_choice("decoder", decoder, DECODERS))
    if decoder == "sampled" and not checkpoint.family.forecastable:
        raise FamilyError(f"a {checkpoint.family.title} model draws no sample paths: leave its decoder at teacher.")
    check_count("batch_size", batch_size)
    seed = series.seed if seed is None else seed
    batch_size = max(batch_size, _GROUPED) if checkpoint.family.grouped else batch_size
    kind = resolve_dtype(dtype) or torch.float32
    chosen = checkpoint.sites() if sites is None else sites
    place, width = resolve_device(device), int(checkpoint.config.get("d_model", 0))
    rounds = kind == torch.float32 and in_bfloat16(place, width)
    settings = CalibrationSettings(
        checkpoint.source,
        fingerprint(checkpoint),
        series.name,
        digest(series.context, series.future),
        len(series),
        decoder,
        batch_size,
        seed,
        "float32, products bfloat16" if rounds else str(kind).removeprefix("torch."),
        series.columns,
        series.freq,
        "series",
    )
    needed = {stream_of(site) for site in chosen}
    report = progress or silent
    store = None if file is None else unfinished(file, settings, needed)
    if store is not None and not (force or store.root.exists()) and Path(str(file)).exists():
        streams = finished_moments(Path(str(file)), settings, needed)
        report(len(series), len(series), "calibrating")
        return Calibration(settings, streams)
    with contextlib.nullcontext() if store is None else store.open(resume=not force, force=force):
        partial = None if store is None else store.path(PARTIAL, SUFFIX)
        _, before, done = load_moments(partial) if partial is not None and partial.exists() else (None, {}, 0)
        module = checkpoint.module(kind).to(place)
        order = by_length(series.context)
        watched = watched_modules(module, chosen)
        sinks = {stream: MomentSink(before.get(stream)) for stream in watched}
        saved, due = done, time.monotonic() + SAVE_SECONDS

        def save() -> None:
            nonlocal saved, due
            if partial is None or done <= saved:
                return
            begun = time.monotonic()
            save_moments(partial, settings, _moments(sinks), done)
            saved, now = done, time.monotonic()
            due = now + max(SAVE_SECONDS, SAVING * (now - begun))

        try:
            for start in range(done, len(series), batch_size):
                report(start, len(series), "calibrating")
                end = min(start + batch_size, len(series))
                part = order[start:end]
                given = (series.context[part], series.future[part])
                # by the place of the batch: a run that is resumed draws what it would have drawn
                inputs = pass_inputs(module, checkpoint.family, *given, decoder, seed + start)
                # sample paths are drawn by now: what enters the layers meanwhile, token by token, is not to be counted
                products = fast_products(place, width) if rounds else contextlib.nullcontext()
                with contextlib.nullcontext() if partial is None else uninterrupted():
                    done = 0  # a pass that does not end leaves sums of which only some have its batch
                    with torch.no_grad(), watch_streams(module, watched, sinks), products:
                        module(**inputs)
                    done = end
                if time.monotonic() >= due:
                    save()
            if file is None:
                for sink in sinks.values():
                    sink.to_disk()
            found = Calibration(settings, _moments(sinks))
            if file is not None:
                found.save(file)
        except KeyboardInterrupt:
            save()
            raise
        if store is not None:
            store.discard()
    report(len(series), len(series), "calibrating")
    give_back()
    return found


def unfinished(file: str | Path, settings: CalibrationSettings | None = None, streams: Iterable[str] = ()) -> RunStore:
    """The store of an unfinished calibration into a file."""
    known = {**asdict(settings), "streams": sorted(streams)} if settings else {}
    facts, folder = {"model": known.pop("model", None)}, Path(f"{file}.run")
    return RunStore(folder, "an unfinished calibration", "rankscope/calibration-run@1", known, facts=facts)


def calibration_for(
    checkpoint: Checkpoint,
    sites: Sequence[Site],
    source: Calibration | CalibrationSet | str | Path | None,
    *,
    decoder: str | None = None,
    seed: int = 0,
    columns: Columns | None = None,
    freq: str | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Calibration:
    """Return moments of the inputs of the sites and of their partners.

    Args:
        checkpoint: the model.
        sites: matrices that will be cut.
        source: moments, a file of them (told by its content), a calibration set or its name as
            `rankscope.compress.calibration.named_set` takes it; the default set without.
        decoder: what the decoder reads, ``teacher`` by default; given moments have to have it.
        seed: of a set that is named, and of its sample paths; a set that is given has its own.
        columns: non-default column names of its files.
        freq: frequency of its files (default: inferred).
        device: where the model runs.
        progress: told the number of series done.

    Raises:
        OptionError: the moments are another model's, another decoder's, or those of other sites.
        DataError: the set cannot be used.
    """
    if isinstance(source, (str, Path)) and is_saved(source):
        source = load_calibration(source)
    if isinstance(source, Calibration):
        source.check(checkpoint)
        source.decoder(decoder)
        return source
    if isinstance(source, CalibrationSet):
        series = source
    else:
        series = named_set(checkpoint, source, seed=seed, columns=columns, freq=freq)
    watched = with_partners(checkpoint, sites)
    return calibrate(
        checkpoint,
        series,
        sites=watched,
        decoder=decoder or "teacher",
        device=device,
        progress=progress,
    )


def _moments(sinks: Mapping[str, MomentSink]) -> dict[str, InputMoments]:
    return {stream: sink.moments for stream, sink in sinks.items() if sink.moments is not None}


@dataclass(frozen=True)
class StreamReport:
    """Inputs of matrices that read the same stream.

    Attributes:
        name: of the stream.
        stack: ``encoder``, ``decoder``, ``memory`` (the encoder's output, read by cross-attention) or the patch
            embedding.
        layer: 0-based layer of the first matrix that reads it, None outside the layers.
        role: role of that matrix.
        matrices: modules that read it.
        width: size of the input.
        ranks: largest rank that one of the matrices can have.
        tokens: positions.
        effective_rank: exponential of the entropy of the shares of energy of the inputs' principal components.
        shown: directions that carry any energy.
    """

    name: str
    stack: str
    layer: int | None
    role: str
    matrices: tuple[str, ...]
    width: int
    ranks: int
    tokens: int
    effective_rank: float
    shown: int


@dataclass(frozen=True)
class CalibrationReport:
    """Summary of a calibration.

    Attributes:
        model: what was calibrated.
        out: the file of moments.
        corpus: name of the set.
        series: how many there were, or windows of a text.
        decoder: what the decoder read.
        batch_size: series per forward pass.
        seed: of the set and of sample paths.
        dtype: number format of the passes.
        streams: one by one.
        notes: warnings.
    """

    model: str
    out: str
    corpus: str
    series: int
    decoder: str
    batch_size: int
    seed: int
    dtype: str
    streams: tuple[StreamReport, ...]
    notes: tuple[str, ...] = ()

    SCHEMA: ClassVar = "rankscope/calibrate@1"


def report_on(
    calibration: Calibration,
    checkpoint: Checkpoint,
    sites: Sequence[Site],
    out: str = "",
    *,
    progress: Progress = silent,
) -> CalibrationReport:
    """Sum up a calibration of some matrices of a checkpoint.

    Raises:
        OptionError: a site was not calibrated.
    """
    readers: dict[str, list[Site]] = {}
    for site in sites:
        readers.setdefault(stream_of(site), []).append(site)
    ordered = sorted(readers.items(), key=_place)

    def work(item: tuple[str, list[Site]]) -> StreamReport:
        name, found = item
        return _stream(name, calibration.of(found[0]), found, checkpoint)

    summed: list[StreamReport] = []
    for one in parallel_map(work, ordered):
        summed.append(one)
        progress(len(summed), len(ordered), "summing up")
    streams = tuple(summed)
    said = calibration.settings
    return CalibrationReport(
        model=checkpoint.source,
        out=out,
        corpus=said.corpus,
        series=said.series,
        decoder=said.decoder,
        batch_size=said.batch_size,
        seed=said.seed,
        dtype=said.dtype,
        streams=streams,
        notes=(*cap_note(checkpoint, said.corpus), *_notes(streams, said.series)),
    )


def _stream(name: str, moments: InputMoments, sites: Sequence[Site], checkpoint: Checkpoint) -> StreamReport:
    second = moments.second
    energies = torch.linalg.eigvalsh(second if len(second) < WIDE else second.float()).clamp(min=0.0)
    return StreamReport(
        name=name,
        stack=MEMORY if name == MEMORY else positions_of(name),
        layer=sites[0].layer,
        role=sites[0].role,
        matrices=tuple(site.module for site in sites),
        width=len(moments.total),
        ranks=max(min(checkpoint.shape(site)) for site in sites),
        tokens=moments.tokens,
        effective_rank=float(effective_rank(energies.sqrt())),
        shown=int((energies > SILENT * energies.max()).sum()),
    )


def _notes(streams: Sequence[StreamReport], series: int) -> list[str]:
    notes = []
    for stack in dict.fromkeys(stream.stack for stream in streams):
        few = [stream for stream in streams if stream.stack == stack and stream.tokens < stream.width]
        if few:
            worst = max(few, key=lambda stream: stream.width / stream.tokens)
            notes.append(
                f"{stack}: {worst.tokens} positions in {series} series, fewer than the {worst.width} inputs of "
                f"{worst.matrices[0]}: directions that the data do not cover get the same small variance; "
                f"use at least {series_for(worst.width, worst.tokens, series)} series."
            )
    first = next((stream for stream in streams if stream.name in _FIRST), None)
    if first is not None and first.tokens >= first.width and first.shown < first.width / 2:
        notes.append(
            f"{first.tokens} positions show {first.shown} of the {first.width} directions of the first layer's input: "
            "the series are alike, constant, or copies of few; behaviour on other series may be lost."
        )
    return notes


def _place(item: tuple[str, Sequence[Site]]) -> tuple[int, int]:
    """Encoder, memory, decoder; layer by layer."""
    name, sites = item
    order = {"encoder": 1, MEMORY: 2, "decoder": 3}
    return order.get(MEMORY if name == MEMORY else positions_of(name), 0), sites[0].layer or 0
