"""The whole study: runs in, tables and findings out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, ClassVar

from rankscope.errors import OptionError
from rankscope.measure.spectrum import DEFAULT_EPS, eps_key
from rankscope.numerics import validate_eps
from rankscope_lab.measure.sites import ATTENTION, PROJECTION
from rankscope_lab.ranks.compress import JOINT, RATIOS, CurvePoint
from rankscope_lab.ranks.questions import claims
from rankscope_lab.ranks.runs import RankedRun, RunSet
from rankscope_lab.ranks.statistics import Claim, Finding, judged
from rankscope_lab.ranks.tables import CurveRow, RankRow, RunCurve, curve_rows, rank_rows

if TYPE_CHECKING:
    import pandas as pd

CUT_PAIRS = (("whitened", "svd"), (JOINT, "whitened"))
"""Methods, the better one as claimed first."""
EQUAL_SIZES = 0.02
"""Two cuts whose sizes differ by a larger share are not compared: ranks are whole, so a ratio is met from below."""


@dataclass(frozen=True)
class RankStudy:
    """What runs of the lab say about ranks.

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
    """Answer the questions from runs.

    Args:
        found: runs with their ranks.
        curves: what cutting did to them, where that was measured.
        eps: tolerances; those of the stored records.

    Raises:
        OptionError: an ε that the records do not have.
    """
    levels = tuple(eps_key(validate_eps(level)) for level in eps)
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
    """Question d: which method loses less; whether attention or projection does, at the same share of their numbers."""
    points: dict[tuple[str, str], dict[_Cut, dict[int, CurvePoint]]] = {}
    for one in curves:
        if one.point.ratio is not None and one.point.asked < 1:
            cut = (one.point.kind, one.point.method, one.point.asked)
            points.setdefault((one.setting, one.variant), {}).setdefault(cut, {})[one.seed] = one.point
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
    """Losses of two cuts over the whole model's, of the seeds in which both reached the same size."""
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
