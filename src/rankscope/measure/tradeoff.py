"""The paper's Table 2 of one model: cost of every size ratio by every method, and the published rows beside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar

from rankscope.io import codec

if TYPE_CHECKING:
    import pandas as pd

DONE, OUT_OF_REACH, FAILED = "done", "out of reach", "failed"


@dataclass(frozen=True)
class Published:
    """A row of the paper's Table 2: plain truncated SVD, everything relative to the original."""

    ratio: float
    in_domain_WQL: float
    in_domain_MASE: float
    zero_shot_WQL: float
    zero_shot_MASE: float
    overlap: float
    text_LPPL: float
    text_overlap: float


PUBLISHED = (
    Published(0.073, 4.409, 4.095, 3.562, 3.435, 0.308, 3.313, 0.227),
    Published(0.151, 1.991, 2.412, 1.566, 1.576, 0.717, 2.530, 0.301),
    Published(0.237, 1.053, 1.005, 1.030, 1.011, 0.883, 1.652, 0.345),
    Published(0.393, 1.009, 1.024, 0.990, 0.994, 0.979, 1.544, 0.568),
    Published(0.569, 1.003, 0.952, 0.945, 0.995, 0.997, 1.290, 0.730),
    Published(0.755, 1.007, 1.021, 1.027, 1.000, 0.999, 1.085, 0.871),
    Published(0.889, 1.000, 0.960, 1.016, 1.001, 0.999, 1.028, 0.954),
    Published(1.000, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0),
)


@dataclass(frozen=True)
class Measures:
    """Measurements of one compressed model; None where it does not apply.

    Attributes:
        reached: size ratio over the attention matrices, at or below the one that was asked for.
        relative_WQL: geometric mean over the data sets of WQL / WQL of the original.
        relative_MASE: the same of MASE.
        relative_LPPL: of a text model, mean token cross-entropy / that of the original.
        overlap: mean Jaccard overlap of the ten likeliest next tokens with those of the original (Q8).
        quantile_distance: of a model without tokens, mean |q̃ − q| of the quantile forecasts over the standard deviation
            of the history.
        parameters: numbers stored in the whole model.
        bytes: of all stored tensors.
        cache_bytes: key/value cache of one series and one sample path, context and horizon full.
        compress_seconds: wall time of the compression, without the calibration.
        heal_seconds: wall time of the healing of a method that ends in ``+healed``.
        forecast_seconds: median wall time of a small batch; of a text model, of a teacher-forced pass.
        time_ratio: median over rounds of that time / the original's in the same round.
    """

    reached: float | None = None
    relative_WQL: float | None = None
    relative_MASE: float | None = None
    relative_LPPL: float | None = None
    overlap: float | None = None
    quantile_distance: float | None = None
    parameters: int | float | None = None
    bytes: int | float | None = None
    cache_bytes: int | float | None = None
    compress_seconds: float | None = None
    heal_seconds: float | None = None
    forecast_seconds: float | None = None
    time_ratio: float | None = None


_NAMED = ("ratio", "method", "allocation", "heal_steps", "seeds", "state", "reason")
MEASURES = tuple(one.name for one in fields(Measures))


@dataclass(frozen=True)
class DatasetScore:
    """Scores of one model on one data set.

    Data sets of one ``source`` are cuts of the same data; it is empty for the data set itself.
    """

    benchmark: str
    dataset: str
    WQL: float | None
    MASE: float | None
    source: str = ""


@dataclass(frozen=True)
class Original:
    """The model that is compressed.

    Attributes:
        parameters: numbers stored.
        bytes: of all stored tensors.
        cache_bytes: as in `Measures`.
        LPPL: mean token cross-entropy in nats of a text model.
        scores: on every data set of the suite.
    """

    parameters: int
    bytes: int
    cache_bytes: int
    LPPL: float | None = None
    scores: tuple[DatasetScore, ...] = ()


@dataclass(frozen=True)
class Table2Point:
    """One compressed model.

    Attributes:
        name: of its entry.
        ratio: size ratio that was asked for.
        method: how factors were found; with ``+healed`` the model was trained on afterwards.
        allocation: how ranks were allotted; ``default`` where the model was not made.
        seed: of the calibration set and of the healing, None for a method that has neither.
        state: ``done``, ``out of reach`` (no rank gives that ratio, or the family cannot be cut so) or ``failed``.
        reason: why it is not done, one line.
        measures: what was measured.
        scores: on every data set of the suite.
        heal_steps: optimiser steps of the healing, None where there was none.
    """

    name: str
    ratio: float
    method: str
    allocation: str
    seed: int | None
    state: str = DONE
    reason: str = ""
    measures: Measures = Measures()
    scores: tuple[DatasetScore, ...] = ()
    heal_steps: int | None = None


@dataclass(frozen=True)
class Verdict:
    """Verdict on a relative score, from an interval over data sets and series (`rankscope_eval.verdict` decides it).

    Attributes:
        word: ``held``: the interval lies within the margin on both sides. Else ``better`` or ``worse``: the 95 %
            interval of the score lies on one side of 1. Else ``no worse``: the upper end of the interval lies within
            the margin. Else, or without an interval, ``not shown``.
        margin: largest relative difference that counts as none.
        interval: 90 %, for two one-sided tests at 5 %; None where there is too little to resample.
        worst: data set with the largest ratio.
        worst_ratio: score over the baseline's there.
        worst_interval: over its series, at a level that allows for its being the worst of so many (Bonferroni).
    """

    word: str
    margin: float
    interval: tuple[float, float] | None = None
    worst: str | None = None
    worst_ratio: float | None = None
    worst_interval: tuple[float, float] | None = None

    def __str__(self) -> str:
        """Return the verdict in words.

        >>> str(Verdict("held", 0.02)), str(Verdict("no worse", 0.005)), str(Verdict("worse", 0.02))
        ('held within 2 %', 'at most 0.5 % worse', 'worse')
        """
        share = f"{100 * self.margin:g} %"
        return {"held": f"held within {share}", "no worse": f"at most {share} worse"}.get(self.word, self.word)

    @property
    def worse_there(self) -> bool:
        """True if the score on the worst data set is shown to be worse than the baseline's."""
        return self.worst_interval is not None and self.worst_interval[0] > 1


@dataclass(frozen=True)
class Judgement:
    """Relative scores of a row with 95 % intervals over data sets and series, and verdicts.

    Attributes:
        ratio: of the row, with the next three.
        method: as in `Table2Point`.
        allocation: as in `Table2Point`.
        heal_steps: as in `Table2Point`.
        relative_WQL: geometric mean over data sets of WQL, averaged over the seeds, / WQL of the original.
        relative_MASE: the same of MASE.
        WQL_interval: of ``relative_WQL``; None where there is too little to resample.
        MASE_interval: of ``relative_MASE``.
        WQL_verdict: on ``relative_WQL``.
        MASE_verdict: on ``relative_MASE``.
    """

    ratio: float
    method: str
    allocation: str
    heal_steps: int | None
    relative_WQL: float
    relative_MASE: float
    WQL_interval: tuple[float, float] | None
    MASE_interval: tuple[float, float] | None
    WQL_verdict: Verdict
    MASE_verdict: Verdict


@dataclass(frozen=True)
class Table2Row:
    """A row of the table: all seeds of one ratio, method, allocation and healing.

    Attributes:
        ratio: asked for.
        method: as in `Table2Point`.
        allocation: as in `Table2Point`.
        heal_steps: as in `Table2Point`.
        seeds: of the points that are done.
        state: ``done`` where any point is, else that of the first.
        reason: why a point is not done, of the first such.
        median: over seeds.
        low: minima over seeds.
        high: maxima over seeds.
        judgement: intervals and verdicts of the scores; None of a text model, and in tables of 0.1.
    """

    ratio: float
    method: str
    allocation: str
    heal_steps: int | None
    seeds: tuple[int, ...]
    state: str
    reason: str
    median: Measures
    low: Measures
    high: Measures
    judgement: Judgement | None = None


@dataclass(frozen=True)
class Table2Report:
    """The table of one model.

    Attributes:
        model: name it was opened by.
        family: its family.
        settings: what the numbers are a function of: suite, series, seeds of forecasts and of the overlap, device.
        original: the model itself.
        points: one per ratio, method, allocation and seed.
        judgements: one per row whose points have scores.
    """

    model: str
    family: str
    settings: dict[str, Any]
    original: Original
    points: tuple[Table2Point, ...] = field(repr=False)
    judgements: tuple[Judgement, ...] = field(default=(), repr=False)

    SCHEMA: ClassVar = "rankscope/table2@1"
    KEYS: ClassVar = ("model", "family", "settings", "original", "rows=spreads", "judgements", "points")

    @property
    def rows(self) -> tuple[Table2Row, ...]:
        """Points by ratio, method, allocation and healing, in the order of the points."""
        judged = {row_key(one): one for one in self.judgements}
        return tuple(_row(points, judged.get(key)) for key, points in by_row(self.points).items())

    @property
    def failed(self) -> tuple[Table2Point, ...]:
        """Points whose model was made and could not be measured."""
        return tuple(point for point in self.points if point.state == FAILED)

    @property
    def spreads(self) -> tuple[dict[str, Any], ...]:
        """The rows as a document holds them: of every measure ``{"median", "min", "max"}``."""
        return tuple(_spreads(row) for row in self.rows)

    def to_frame(self) -> pd.DataFrame:
        """One line per row: medians under the measures' names, extremes as ``<name>_min`` and ``<name>_max``."""
        import pandas as pd

        return pd.DataFrame([_flat(row) for row in self.rows])


def read_table2(path: str | Path) -> Table2Report:
    """Read a table: its folder, or a ``table2.json``.

    Raises:
        DataError: nothing is there, or it is not a table.
    """
    return codec.read(Table2Report, path, "table2.json")


def row_key(one: Table2Point | Judgement) -> tuple[float, str, str, int | None]:
    """Ratio, method, allocation and healing: what the points of a row have in common."""
    return one.ratio, one.method, one.allocation, one.heal_steps


def by_row(points: Sequence[Table2Point]) -> dict[tuple[float, str, str, int | None], list[Table2Point]]:
    """Points by row, in their order."""
    groups: dict[tuple[float, str, str, int | None], list[Table2Point]] = {}
    for point in points:
        groups.setdefault(row_key(point), []).append(point)
    return groups


def _row(points: Sequence[Table2Point], judgement: Judgement | None) -> Table2Row:
    first = points[0]
    done = [point for point in points if point.state == DONE]
    lost = [point for point in points if point.state != DONE]

    def over(reduce: Callable[[list[float]], float]) -> Measures:
        found = {name: [getattr(point.measures, name) for point in done] for name in MEASURES}
        known = {name: [value for value in values if value is not None] for name, values in found.items()}
        return Measures(**{name: reduce(values) if values else None for name, values in known.items()})

    return Table2Row(
        first.ratio,
        first.method,
        first.allocation,
        first.heal_steps,
        tuple(sorted({point.seed for point in done if point.seed is not None})),
        DONE if done else lost[0].state,
        lost[0].reason if lost else "",
        over(median),
        over(min),
        over(max),
        judgement,
    )


def _spreads(row: Table2Row) -> dict[str, Any]:
    plain = {name: getattr(row, name) for name in _NAMED}
    for name in MEASURES:
        middle = getattr(row.median, name)
        spread = {"median": middle, "min": getattr(row.low, name), "max": getattr(row.high, name)}
        plain[name] = None if middle is None else spread
    return plain


def _flat(row: Table2Row) -> dict[str, Any]:
    flat: dict[str, Any] = {name: getattr(row, name) for name in _NAMED}
    flat["seeds"] = " ".join(map(str, row.seeds))
    for name in MEASURES:
        middle, low, high = (getattr(one, name) for one in (row.median, row.low, row.high))
        flat |= {name: middle, f"{name}_min": low, f"{name}_max": high}
    return flat | _flat_judgement(row.judgement)


def _flat_judgement(judged: Judgement | None) -> dict[str, Any]:
    if judged is None:
        return {}
    flat: dict[str, Any] = {}
    for metric in ("WQL", "MASE"):
        verdict: Verdict = getattr(judged, f"{metric}_verdict")
        low, high = getattr(judged, f"{metric}_interval") or (None, None)
        flat |= {f"{metric}_mean": getattr(judged, f"relative_{metric}"), f"{metric}_low": low, f"{metric}_high": high}
        flat |= {f"{metric}_verdict": verdict.word, f"{metric}_worst": verdict.worst}
        flat |= {f"{metric}_worst_ratio": verdict.worst_ratio}
    return flat
