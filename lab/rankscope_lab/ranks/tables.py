"""Means over seeds of what runs say about ranks: the numbers behind the findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rankscope_lab.measure import Ranks, StreamRanks
from rankscope_lab.ranks.compress import CurvePoint
from rankscope_lab.ranks.runs import RankedRun
from rankscope_lab.statistics import spread


@dataclass(frozen=True)
class RankRow:
    """One place of one variant, over its seeds.

    Attributes:
        study: ``encoders``, ``slt`` or ``tokenizers``.
        setting: what compared runs share.
        variant: encoder, model, or number of codes.
        what: ``input``, ``between`` or ``output`` of a layer, ``codebook``, ``stream`` (of a tokenizer), or the role of
            a matrix.
        stack: of layers, where the model has one: ``blocks``, ``encoder``, ``decoder``; empty for codebooks.
        layer: from 0; None outside of layers.
        kind: of the layer; of a matrix ``weight``.
        seeds: runs.
        size: largest rank possible.
        effective: mean effective rank.
        effective_std: over the seeds; None of one.
        centred: mean effective rank less the mean row; None of matrices and tokenizers.
        eps_ranks: mean ε-ranks by ε.
    """

    study: str
    setting: str
    variant: str
    what: str
    stack: str
    layer: int | None
    kind: str
    seeds: int
    size: int
    effective: float
    effective_std: float | None
    centred: float | None
    eps_ranks: Mapping[str, float]


Key = tuple[str, str, str, str, str, int | None, str]


def rank_rows(runs: Sequence[RankedRun], eps: Sequence[str]) -> tuple[RankRow, ...]:
    """Average over seeds: streams by layer and place, matrices by layer and role, codebooks."""
    plain: dict[Key, list[Ranks]] = {}
    centred: dict[Key, list[Ranks]] = {}
    for run in runs:
        for key, ranks, less in _spectra(run):
            plain.setdefault(key, []).append(ranks)
            if less is not None:
                centred.setdefault(key, []).append(less)
    return tuple(_row(key, ranks, centred.get(key, []), eps) for key, ranks in plain.items())


def _spectra(run: RankedRun) -> list[tuple[Key, Ranks, Ranks | None]]:
    def key(stack: str, what: str, layer: int | None, kind: str) -> Key:
        return run.study, run.setting, run.variant, stack, what, layer, kind

    found: list[tuple[Key, Ranks, Ranks | None]] = []
    if run.ranks is not None:
        streams: tuple[StreamRanks, ...] = run.ranks.streams
        found += [(key(one.stack, one.place, one.layer, one.kind), one.ranks, one.centred) for one in streams]
        for weight in run.ranks.weights:
            found.append((key(weight.stack, weight.role, weight.layer, "weight"), weight.ranks, None))
    return found + [(key("", name, None, name), ranks, None) for name, ranks in run.spectra.items()]


def _row(key: Key, ranks: Sequence[Ranks], centred: Sequence[Ranks], eps: Sequence[str]) -> RankRow:
    study, setting, variant, stack, what, layer, kind = key
    effective = spread([one.effective_rank for one in ranks])
    return RankRow(
        study,
        setting,
        variant,
        what,
        stack,
        layer,
        kind,
        len(ranks),
        max(one.size for one in ranks),
        effective.mean,
        effective.std,
        spread([one.effective_rank for one in centred]).mean if centred else None,
        {level: spread([float(one.eps_ranks[level]) for one in ranks]).mean for level in eps},
    )


@dataclass(frozen=True)
class RunCurve:
    """What cutting did to one run.

    Attributes:
        study: of the run.
        setting: likewise.
        variant: likewise.
        seed: likewise.
        point: one kind of layer, one method, one size.
    """

    study: str
    setting: str
    variant: str
    seed: int
    point: CurvePoint


@dataclass(frozen=True)
class CurveRow:
    """One kind of layer cut by one method to one size, over the seeds of a variant.

    Attributes:
        study: of the runs.
        setting: likewise.
        variant: likewise.
        kind: of layer.
        method: of the cut.
        asked: ratio asked for.
        ratio: mean of those reached.
        relative: mean of loss over the whole model's.
        relative_std: over the seeds; None of one.
        seeds: runs that reached the ratio.
    """

    study: str
    setting: str
    variant: str
    kind: str
    method: str
    asked: float
    ratio: float
    relative: float
    relative_std: float | None
    seeds: int


def curve_rows(curves: Sequence[RunCurve]) -> tuple[CurveRow, ...]:
    """Average over seeds; sizes that no run reached are left out."""
    groups: dict[tuple[str, str, str, str, str, float], list[CurvePoint]] = {}
    for one in curves:
        if one.point.loss is not None:
            point = one.point
            key = (one.study, one.setting, one.variant, point.kind, point.method, point.asked)
            groups.setdefault(key, []).append(point)
    rows = []
    for key, points in groups.items():
        relative = spread([_number(one, lambda point: point.relative) for one in points])
        ratio = spread([_number(one, lambda point: point.ratio) for one in points])
        rows.append(CurveRow(*key, ratio.mean, relative.mean, relative.std, relative.n))
    return tuple(rows)


def _number(point: CurvePoint, read: Callable[[CurvePoint], float | None]) -> float:
    value = read(point)
    assert value is not None
    return value
