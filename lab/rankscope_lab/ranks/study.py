"""Rank study: means over seeds, compression curves and findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, ClassVar

from rankscope.errors import OptionError
from rankscope.measure.spectrum import DEFAULT_EPS, eps_key
from rankscope.numerics import validate_levels
from rankscope_lab.measure import Ranks, StreamRanks
from rankscope_lab.measure.sites import ATTENTION, PROJECTION
from rankscope_lab.ranks.compress import JOINT, RATIOS, CurvePoint
from rankscope_lab.ranks.questions import claims
from rankscope_lab.ranks.runs import RankedRun, RunSet
from rankscope_lab.statistics import Claim, Finding, judged, spread

if TYPE_CHECKING:
    import pandas as pd


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


RunCurve = tuple[RankedRun, CurvePoint]
"""Run with the result of truncating one layer type."""


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
    groups: dict[tuple[str, str, str, str, str, float], list[tuple[float, float]]] = {}
    for run, point in curves:
        if point.ratio is not None and point.relative is not None:
            key = (run.study, run.setting, run.variant, point.kind, point.method, point.asked)
            groups.setdefault(key, []).append((point.ratio, point.relative))
    rows = []
    for key, found in groups.items():
        ratio, relative = (spread(values) for values in zip(*found, strict=True))
        rows.append(CurveRow(*key, ratio.mean, relative.mean, relative.std, relative.n))
    return tuple(rows)


CUT_PAIRS = (("whitened", "svd"), (JOINT, "whitened"))
"""Methods, the better one as claimed first."""
EQUAL_SIZES = 0.02
"""Maximum relative size difference of comparable cuts; ranks are integers, so sizes stay below the ratio."""


@dataclass(frozen=True)
class RankStudy:
    """Ranks of the lab's runs: means over seeds, curves of cutting, findings.

    Attributes:
        eps: tolerances, as they print.
        runs: how many, by study.
        diverged: runs that diverged, part of no number.
        unmeasured: runs without a record of ranks, part of no row.
        cut_short: runs that ended before their last epoch; they count like others.
        rows: means over seeds.
        curves: of cutting.
        findings: claims with their verdicts.
    """

    eps: tuple[str, ...]
    runs: dict[str, int]
    diverged: int
    unmeasured: int
    rows: tuple[RankRow, ...]
    curves: tuple[CurveRow, ...]
    findings: tuple[Finding, ...]
    cut_short: int = 0

    SCHEMA: ClassVar = "rankscope/lab-ranks@1"
    KEYS: ClassVar = ("eps", "runs", "diverged", "unmeasured", "cut_short", "rows", "curves", "findings")
    DIGITS: ClassVar = 6

    def to_frame(self) -> pd.DataFrame:
        """The findings, one a row."""
        import pandas as pd

        names = [one.name for one in fields(Finding)]
        return pd.DataFrame([asdict(one) for one in self.findings], columns=names)


def study_runs(found: RunSet, curves: Sequence[RunCurve] = (), eps: Sequence[float] = DEFAULT_EPS) -> RankStudy:
    """Compute the rank study from runs.

    Args:
        found: runs with their ranks.
        curves: what cutting did to them, where that was measured.
        eps: tolerances; those of the stored records.

    Raises:
        OptionError: an ε that the records do not have.
    """
    levels = tuple(map(eps_key, validate_levels(eps)))
    for run in found.runs:
        _check_eps(run, levels)
    asked = [*claims(found.runs, levels), *curve_claims(curves)]
    counts: dict[str, int] = {}
    for run in found.runs:
        counts[run.study] = counts.get(run.study, 0) + 1
    bare = sum(run.ranks is None and not run.spectra for run in found.runs)
    rows = rank_rows(found.runs, levels)
    short = sum(run.stopped is not None for run in found.runs)
    return RankStudy(levels, counts, len(found.diverged), bare, rows, curve_rows(curves), judged(asked), short)


def curve_claims(curves: Sequence[RunCurve]) -> Iterator[Claim]:
    """Return the claims of question d: losses of methods, and of attention against projection, at equal size ratios."""
    points: dict[tuple[str, str], dict[_Cut, dict[int, CurvePoint]]] = {}
    for run, point in curves:
        if point.ratio is not None and point.asked < 1:
            cut = (point.kind, point.method, point.asked)
            points.setdefault((run.setting, run.variant), {}).setdefault(cut, {})[run.seed] = point
    for (setting, variant), found in points.items():
        for ratio in RATIOS[1:]:
            for kind in dict.fromkeys(kind for kind, _, _ in found):
                for better, other in CUT_PAIRS:
                    sides = _losses(found, (kind, other, ratio), (kind, better, ratio))
                    text = f"{variant}: cutting {kind} to {ratio:g} costs more by {other} than by {better}"
                    yield Claim("d", setting, text, "loss over whole", other, better, *sides)
            for method in ("whitened",):
                sides = _losses(found, (ATTENTION, method, ratio), (PROJECTION, method, ratio))
                text = f"{variant}: cut to {ratio:g} ({method}), attention costs more than projection"
                yield Claim("d", setting, text, "loss over whole", ATTENTION, PROJECTION, *sides)


_Cut = tuple[str, str, float]
"""Kind of layer, method, ratio asked for."""


def _losses(
    found: Mapping[_Cut, Mapping[int, CurvePoint]], first: _Cut, second: _Cut
) -> tuple[dict[int, float], dict[int, float]]:
    """Return the relative losses of two cuts, for seeds where both reached the same size."""
    one, other = found.get(first, {}), found.get(second, {})
    sides: tuple[dict[int, float], dict[int, float]] = {}, {}
    for seed in one.keys() & other.keys():
        a, b = one[seed], other[seed]
        if a.relative is None or b.relative is None or not _same_size(a, b):
            continue
        sides[0][seed], sides[1][seed] = a.relative, b.relative
    return sides


def _same_size(one: CurvePoint, other: CurvePoint) -> bool:
    return one.ratio is not None and other.ratio is not None and abs(one.ratio / other.ratio - 1) <= EQUAL_SIZES


def _check_eps(run: RankedRun, levels: Sequence[str]) -> None:
    known = [eps_key(level) for level in run.ranks.eps] if run.ranks else None
    if known is None and run.spectra:
        known = list(next(iter(run.spectra.values())).eps_ranks)
    missing = [level for level in levels if known is not None and level not in known]
    if missing:
        raise OptionError(
            f"{run.source} has no ranks at ε {', '.join(missing)}, only at {', '.join(known or [])}: choose of those."
        )
