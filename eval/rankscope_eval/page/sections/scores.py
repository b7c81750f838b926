"""Scores of an evaluation: relative, drawn, and one by one."""

from __future__ import annotations

import math
from functools import partial

from markupsafe import Markup

from rankscope.measure.tradeoff import Verdict
from rankscope_eval.page.charts import relative_scores
from rankscope_eval.page.numbers import MISSING, count, duration, plural, ratio, significant
from rankscope_eval.page.parts import Cell, Part, Row, Table, number
from rankscope_eval.page.svg import chart
from rankscope_eval.relative import Interval
from rankscope_eval.report import EvalReport, EvalRow


def eval_part(report: EvalReport, name: str) -> Part:
    """Scores of one suite: relative, drawn, and one by one."""
    over = f", relative to {report.baseline}" if report.baseline else ""
    cut = f", first {report.max_series} series of each data set" if report.max_series else ""
    skipped = [f"{one.benchmark}/{one.dataset}: {one.reason}" for one in report.skipped]
    means = "; relative scores are geometric means of score over baseline’s score" if report.summary else ""
    spans = ", 95 % intervals by bootstrap over data sets and series." if _known(report) else "."
    return Part(
        f"Scores on {report.suite}{over}",
        text=f"{_sets(report)}{cut}. Lower is better{means}{spans}",
        notes=_rule(report),
        lead=_summary(report, f"{name}-summary") if report.summary else None,
        charts=_dots(report, name),
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
        for metric, value, ends, verdict in (
            ("WQL", one.relative_WQL, one.WQL_interval, one.WQL_verdict),
            ("MASE", one.relative_MASE, one.MASE_interval, one.MASE_verdict),
        ):
            sets = number(one.datasets, count(one.datasets))
            score = number(value, ratio(value))
            says, worst = verdict_cells(verdict)
            rows.append([one.model, one.benchmark, metric, score, says, _span(ends), worst, sets])
    heads = ["model", "benchmark", "metric", "relative", "verdict", "95 %", "worst data set", "data sets"]
    return Table(f"Scores over those of {report.baseline}", heads, rows, name, texts=(1, 2, 4, 6))


def _rule(report: EvalReport) -> list[str]:
    """Say how verdicts are found."""
    known = [one.WQL_verdict for one in report.summary if one.WQL_verdict is not None]
    return [
        f"Verdicts are those of two one-sided tests at 5 % within {100 * one.margin:g} %. A worst data set with ✗ is "
        "worse by its own interval, which allows for the choice of the worst."
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
    heads = ["data set", "model", "series", "steps", "WQL", "MASE", "published WQL", "published MASE", "time"]
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
            number(row.seconds, duration(row.seconds)),
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
