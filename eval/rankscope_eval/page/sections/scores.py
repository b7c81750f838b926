"""Scores of an evaluation: relative, drawn, and one by one."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from jaxtyping import Float
from markupsafe import Markup

from rankscope.measure.tradeoff import Verdict
from rankscope_eval.numbers import MISSING, count, plural, ratio, significant
from rankscope_eval.page.charts import coverage_by_step, relative_scores
from rankscope_eval.page.parts import Cell, Part, Row, Table, number
from rankscope_eval.page.svg import chart
from rankscope_eval.relative import Interval
from rankscope_eval.report import EvalReport, EvalRow


def eval_part(report: EvalReport, name: str) -> Part:
    """Scores of one suite: relative, drawn, and one by one."""
    over = f", relative to {report.baseline}" if report.baseline else ""
    cut = f", first {report.max_series} series of each data set" if report.max_series else ""
    skipped = [f"{one.benchmark}/{one.dataset}: {one.reason}" for one in report.skipped]
    relative, slices = _summary(report, f"{name}-summary"), _slices(report, f"{name}-slices")
    compared = bool(relative.rows)
    means = "; relative scores are geometric means of score over baseline’s score" if compared else ""
    spans = ", 95 % intervals by bootstrap over data sets and series." if compared and _known(report) else "."
    return Part(
        f"Scores on {report.suite}{over}",
        text=f"{_sets(report)}{cut}. Lower is better{means}{spans}",
        notes=_rule(report) if compared else [],
        lead=relative if compared else None,
        charts=[*_dots(report, name), *_coverage(report, name)],
        tables=[slices] if slices.rows else [],
        left=f"Left out: {'; '.join(skipped)}." if skipped else "",
        folded=("Every data set", _scores(report, f"{name}-table")),
    )


def _known(report: EvalReport) -> bool:
    """Return True if a relative score has an interval."""
    return any(one.WQL_interval or one.MASE_interval for one in report.summary)


def _summary(report: EvalReport, name: str) -> Table:
    rows: list[Row] = []
    for one in report.summary:
        if one.model == one.baseline:
            continue
        for metric, value, ends, verdict, skill, wins in (
            ("WQL", one.relative_WQL, one.WQL_interval, one.WQL_verdict, one.WQL_skill, one.WQL_win_rate),
            ("MASE", one.relative_MASE, one.MASE_interval, one.MASE_verdict, one.MASE_skill, one.MASE_win_rate),
        ):
            sets = number(one.datasets, count(one.datasets))
            score, rest = number(value, ratio(value)), [number(each, ratio(each)) for each in (skill, wins)]
            says, worst = verdict_cells(verdict)
            rows.append([one.model, one.benchmark, metric, score, says, _span(ends), worst, *rest, sets])
    heads = ["model", "benchmark", "metric", "relative", "verdict", "95 %", "worst data set", "skill", "wins"]
    heads.append("data sets")
    return Table(f"Scores over those of {report.baseline}", heads, rows, name, texts=(1, 2, 4, 6))


def _slices(report: EvalReport, name: str) -> Table:
    """Worst parts of the data of each model."""
    rows: list[Row] = [
        [
            one.model,
            one.by,
            one.part,
            number(one.WQL, ratio(one.WQL)),
            _span(one.WQL_interval),
            number(one.MASE, ratio(one.MASE)),
            _span(one.MASE_interval),
            number(one.series, count(one.series)),
            number(one.datasets, count(one.datasets)),
        ]
        for one in report.slices
        if one.WQL_interval is not None
    ]
    heads = ["model", "part of the data by", "part", "WQL", "95 %", "MASE", "95 %", "series", "data sets"]
    caption = (
        f"Worst parts of the data: scores over those of {report.baseline}, with intervals of 95 % for all parts of a "
        "model together"
    )
    return Table(caption, heads, rows, name, texts=(1, 2))


def _coverage(report: EvalReport, name: str) -> list[Markup]:
    """Coverage of the central 80 % interval by position in the horizon, means over data sets."""
    models = dict.fromkeys(row.model for row in report.rows if row.model != report.baseline)
    means: list[tuple[str, np.ndarray]] = []
    for model in (*models, report.baseline):
        steps = [row.steps.coverage for row in report.rows if row.model == model and row.steps is not None]
        if steps:
            means.append((model, np.nanmean([_at_places(np.array(one, dtype=float)) for one in steps], axis=0)))
    if not any(np.nanmax(shares, initial=0.0) > 0 for _, shares in means):  # point forecasts have no interval
        return []
    title = "Coverage of the central 80 % interval by position in the horizon"
    ends = [f"{model} {ratio(float(one[0]))} at the start, {ratio(float(one[-1]))} at the end" for model, one in means]
    draw = partial(coverage_by_step, PLACES, means)
    return [chart(draw, f"{name}-coverage", title, "; ".join(ends), f"{title}, mean over data sets. Calibrated: 0.8.")]


PLACES = np.linspace(0.05, 0.95, 19)
"""Positions in a horizon, as shares of it."""


def _at_places(steps: Float[np.ndarray, " steps"]) -> Float[np.ndarray, " places"]:
    """Values at `PLACES`, between the steps that have one; NaN where none has."""
    known = np.isfinite(steps)
    return np.interp(PLACES, _middles(len(steps))[known], steps[known]) if known.any() else np.full(len(PLACES), np.nan)


def _middles(horizon: int) -> np.ndarray:
    """Middles of the steps of a horizon, as shares of it."""
    return (np.arange(horizon) + 0.5) / horizon


def _rule(report: EvalReport) -> list[str]:
    """Say how verdicts are found."""
    known = [one.WQL_verdict for one in report.summary if one.WQL_verdict is not None]
    return [
        f"Held: within {100 * one.margin:g} % by two one-sided tests at 5 %; better and worse: the 95 % interval is "
        "beyond 1. A worst data set with ✗ is worse by its own interval, which allows for the choice of the worst."
        for one in known[:1]
    ]


def verdict_cells(verdict: Verdict | None) -> list[str | Cell]:
    """Verdict in its tone, and the worst data set."""
    if verdict is None:
        return [MISSING, MISSING]
    worst = MISSING if verdict.worst is None else f"{verdict.worst} {ratio(verdict.worst_ratio)}"
    return [Cell(str(verdict), tone=TONES[verdict.word]), Cell(worst, tone="worse" if verdict.worse_there else "")]


TONES = {"held": "better", "better": "better", "no worse": "better", "worse": "worse", "not shown": "open"}
"""Tone of every verdict: a colour and, for those who see none, a sign."""


def _span(interval: Interval | None) -> Cell:
    """Both ends; it sorts by the upper one."""
    low, high = interval or (None, None)
    return number(high, f"{ratio(low)} – {ratio(high)}")


def _scores(report: EvalReport, name: str) -> Table:
    further = ("SQL", "WAPE", "MSIS", "coverage")
    heads = ["data set", "model", "series", "steps", "WQL", "MASE", "published WQL", "published MASE", *further]
    rows: list[Row] = [
        [
            row.dataset,
            row.model,
            number(row.series or None, count(row.series)),
            number(row.prediction_length or None, count(row.prediction_length)),
            number(row.WQL, significant(row.WQL, 4)),
            number(row.MASE, significant(row.MASE, 4)),
            number(row.published_WQL, significant(row.published_WQL, 4)),
            number(row.published_MASE, significant(row.published_MASE, 4)),
            *(number(getattr(row, metric), significant(getattr(row, metric), 4)) for metric in further),
        ]
        for row in report.rows
    ]
    return Table(f"Scores on {report.suite}", heads, rows, name, texts=(1,))


def _dots(report: EvalReport, name: str) -> list[Markup]:
    """WQL and MASE of every model over the baseline's, data set by data set."""
    if not report.baseline:
        return []
    drawn = []
    sets = list(dict.fromkeys((row.benchmark, row.dataset) for row in report.rows))
    models = [model for model in dict.fromkeys(row.model for row in report.rows) if model != report.baseline]
    found = {(row.benchmark, row.dataset, row.model): row for row in report.rows}
    for metric in ("WQL", "MASE"):
        scores = [(model, [_over(found, *one, model, report.baseline, metric) for one in sets]) for model in models]
        if not any(math.isfinite(value) for _, values in scores for value in values):
            continue
        spans = [[_ends(found.get((*one, model)), metric) for one in sets] for model in models]
        names = [dataset for _, dataset in sets]
        for benchmark in dict.fromkeys(one.benchmark for one in report.summary):
            whole = {one.model: one for one in report.summary if one.benchmark == benchmark}
            names.append(f"mean: {benchmark}")
            for (model, values), ends in zip(scores, spans, strict=True):
                one = whole.get(model)
                values.append(getattr(one, f"relative_{metric}", math.nan))
                ends.append(getattr(one, f"{metric}_interval", None))
        title = f"{metric} over that of {report.baseline}, data set by data set"
        means = [
            f"{one.model} {ratio(getattr(one, f'relative_{metric}'))} on {one.benchmark}" for one in report.summary
        ]
        draw = partial(relative_scores, names, scores, spans, metric, report.baseline)
        drawn.append(
            chart(
                draw,
                f"{name}-{metric}",
                title,
                "; ".join(means) or title,
                f"{title}; left of the line is better. Bars: 95 %.",
            )
        )
    return drawn


def _ends(row: EvalRow | None, metric: str) -> Interval | None:
    return None if row is None else getattr(row, f"{metric}_interval")


def _over(
    found: dict[tuple[str, str, str], EvalRow], benchmark: str, dataset: str, model: str, base: str, metric: str
) -> float:
    one, other = found.get((benchmark, dataset, model)), found.get((benchmark, dataset, base))
    if one is None or other is None:
        return math.nan
    above, below = float(getattr(one, metric)), float(getattr(other, metric))
    return above / below if below > 0 and above > 0 else math.nan


def _sets(report: EvalReport) -> str:
    sets = len({(row.benchmark, row.dataset) for row in report.rows})
    seed = f", seed {report.seed}" if report.summary else ""
    return f"{plural(sets, 'data set')}{seed}"
