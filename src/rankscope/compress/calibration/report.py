"""Report of a calibration: positions and ranks of every stream of inputs, and where they are too few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from rankscope.checkpoints import Checkpoint
from rankscope.compress.calibration._calibration import Calibration
from rankscope.compress.calibration.moments import InputMoments
from rankscope.compress.calibration.passes import MEMORY, positions_of, stream_of
from rankscope.families import Site
from rankscope.numerics import effective_rank

_FIRST = ("encoder.block.0.layer.0.SelfAttention.q", "encoder.block.0.layer.0.self_attention.q")
SILENT = torch.finfo(torch.float32).eps
"""Share of the largest eigenvalue below which float32 cannot tell a direction from one that was never shown."""


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
    calibration: Calibration, checkpoint: Checkpoint, sites: Sequence[Site], out: str = ""
) -> CalibrationReport:
    """Sum up a calibration of some matrices of a checkpoint.

    Raises:
        OptionError: a site was not calibrated.
    """
    readers: dict[str, list[Site]] = {}
    for site in sites:
        readers.setdefault(stream_of(site), []).append(site)
    streams = tuple(
        _stream(name, calibration.of(found[0]), found, checkpoint)
        for name, found in sorted(readers.items(), key=_place)
    )
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
        notes=tuple(_notes(streams, said.series, checkpoint)),
    )


def series_for(ranks: int, tokens: int, series: int) -> int:
    """Series that show at least as many positions as there are ranks to tell apart.

    >>> series_for(256, 8, 8), series_for(256, 1056, 32), series_for(64, 100, 3)
    (256, 8, 2)
    """
    return -(-ranks * series // tokens)


def _stream(name: str, moments: InputMoments, sites: Sequence[Site], checkpoint: Checkpoint) -> StreamReport:
    energies = torch.linalg.eigvalsh(moments.second).clamp(min=0.0)
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


def _notes(streams: Sequence[StreamReport], series: int, checkpoint: Checkpoint) -> list[str]:
    notes = []
    for stack in dict.fromkeys(stream.stack for stream in streams):
        same = [stream for stream in streams if stream.stack == stack]
        few = [stream for stream in same if stream.tokens < stream.ranks]
        if few:
            worst = max(few, key=lambda stream: stream.ranks / stream.tokens)
            heads = int(checkpoint.config.get("d_kv") or 0)
            enough = series_for(worst.ranks, worst.tokens, series)
            joint = f" ({series_for(heads, worst.tokens, series)} for the heads of method joint)" if heads else ""
            notes.append(
                f"{stack}: {worst.tokens} positions in {series} series, fewer than the {worst.ranks} ranks of "
                f"{worst.matrices[0]}: directions that they do not show will count as equally loud and very quiet; "
                f"{enough} series would do{joint}."
            )
    first = next((stream for stream in streams if stream.name in _FIRST), None)
    if first is not None and first.tokens >= first.ranks and first.shown < first.width / 2:
        notes.append(
            f"{first.tokens} positions show {first.shown} of the {first.width} directions of the first layer's input: "
            "the series are alike, constant, or copies of few; what others would do is not kept."
        )
    return notes


def _place(item: tuple[str, Sequence[Site]]) -> tuple[int, int]:
    """Encoder, memory, decoder; layer by layer."""
    name, sites = item
    order = {"encoder": 1, MEMORY: 2, "decoder": 3}
    return order.get(MEMORY if name == MEMORY else positions_of(name), 0), sites[0].layer or 0
