"""The evidence: everything that was scored, timed or checked; here sizes by methods, times, sweeps and theorems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from markupsafe import Markup

from rankscope import plots
from rankscope.measure.sweep import SweepReport
from rankscope.measure.tradeoff import DONE, Table2Report, Table2Row
from rankscope_eval.bench import BenchReport
from rankscope_eval.numbers import MISSING, count, duration, percent, plural, ratio, significant, size
from rankscope_eval.page.charts import plain_text, shortened, times
from rankscope_eval.page.documents import TheoryReport, checks_held
from rankscope_eval.page.lineage import Library
from rankscope_eval.page.parts import Cell, Part, Row, Section, Table, number
from rankscope_eval.page.sections.scores import eval_part, verdict_cells
from rankscope_eval.page.svg import chart


def evidence_section(library: Library) -> Section:
    """Everything that was scored, timed or checked."""
    made: dict[str, Callable[[Any, str], Part | None]] = {
        "eval": eval_part,
        "table2": table2_part,
        "bench": bench_part,
        "sweep": sweep_part,
        "theory": theory_part,
    }
    parts = [
        make(one.content, f"{kind}-{place}")
        for kind, make in made.items()
        for place, one in enumerate(library.of(kind))
    ]
    return Section("evidence", "The evidence", "Evidence", [part for part in parts if part is not None])


def table2_part(report: Table2Report, name: str) -> Part:
    """Cost of every size by every method."""
    drawn: list[Markup] = []
    for measure, title in (("relative_WQL", "WQL"), ("relative_MASE", "MASE"), ("relative_LPPL", "LPPL")):
        if not any(getattr(row.median, measure) is not None for row in report.rows if row.state == DONE):
            continue
        draw = partial(plots.table2, report, measure=measure)
        says = "; ".join(
            f"{row.method} at {row.ratio:g}: {ratio(getattr(row.median, measure))}"
            for row in report.rows
            if row.state == DONE
        )
        drawn.append(chart(draw, f"{name}-{title}", f"{title} over the original’s against size, {report.model}", says))
    judged = [f"{metric}: {what}" for metric in ("WQL", "MASE") for what in ("mean, 95 %", "verdict", "worst set")]
    scores = ["WQL", "MASE", *judged, "LPPL", "top-10 overlap", "quantile distance"]
    heads = ["of the attention, wanted", "method", "ranks by", "reached", *scores, "bytes", "cache", "time"]
    rows: list[Row] = []
    for row in report.rows:
        found = row.median
        healed = f", {row.heal_steps} steps" if row.heal_steps else ""
        rows.append(
            [
                Cell(f"{row.ratio:g}", row.ratio),
                row.method + healed,
                row.allocation if row.state == DONE else row.state,
                *[number(value, ratio(value)) for value in (found.reached, found.relative_WQL, found.relative_MASE)],
                *_judged(row),
                *[
                    number(value, ratio(value))
                    for value in (found.relative_LPPL, found.overlap, found.quantile_distance)
                ],
                number(found.bytes, size(found.bytes)),
                number(found.cache_bytes, size(found.cache_bytes)),
                number(found.time_ratio, ratio(found.time_ratio)),
            ]
        )
    suite = report.settings.get("suite")
    caption = f"Medians over seeds; WQL, MASE, LPPL and time are over the original’s, {report.model}"
    return Part(
        f"Cost of each size, {report.model}",
        text=f"{plural(len(report.rows), 'row')}" + (f", scored on {suite}." if suite else "."),
        charts=drawn,
        folded=("Every ratio and method", Table(caption, heads, rows, f"{name}-table", (1, 2, 7, 8, 10, 11))),
    )


def _judged(row: Table2Row) -> list[str | Cell]:
    """Means with their intervals, verdicts and worst data sets."""
    one = row.judgement
    if one is None:
        return [MISSING] * 6
    cells: list[str | Cell] = []
    for value, ends, verdict in (
        (one.relative_WQL, one.WQL_interval, one.WQL_verdict),
        (one.relative_MASE, one.MASE_interval, one.MASE_verdict),
    ):
        span = "" if ends is None else f" ({ratio(ends[0])}–{ratio(ends[1])})"
        cells += [number(value, ratio(value) + span), *verdict_cells(verdict)]
    return cells


def sweep_part(report: SweepReport, name: str) -> Part:
    """Trained points of a sweep."""
    keys = [str(eps) for eps in report.eps]
    scores = list(dict.fromkeys(key for row in report.points for key in row.scores))
    rows: list[Row] = []
    for row in report.points:
        mean = row.ranks.mean_ranks.get("all", {}) if row.ranks is not None else {}
        rows.append(
            [
                row.point,
                ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in row.fields.items()) or MISSING,
                row.state if not row.error else f"{row.state}: {row.error}",
                number(row.parameters, count(row.parameters)),
                number(row.steps, count(row.steps)),
                number(row.loss, significant(row.loss)),
                *[number(mean.get(key), significant(mean.get(key))) for key in keys],
                *[number(row.scores.get(key), significant(row.scores.get(key))) for key in scores],
            ]
        )
    heads = [
        "point",
        "differs in",
        "state",
        "parameters",
        "steps",
        "loss",
        *[f"rank of W_Q, ε = {key}" for key in keys],
        *scores,
    ]
    table = Table(f"Points of {report.name}", heads, rows, f"{name}-table", (1, 2))
    return Part(f"Sweep {report.name}", text=report.about, charts=_front(report, name), tables=[table])


def theory_part(report: TheoryReport, name: str) -> Part:
    """Theorems checked on numbers."""
    rows: list[Row] = [
        [
            one.id,
            one.title or MISSING,
            number(one.instances, count(one.instances)),
            number(one.worst_ratio, significant(one.worst_ratio, 4)),
            ("yes" if one.passed else "no") if one.applies else "; ".join(("not applicable", *one.unmet)),
        ]
        for one in report.checks
    ]
    heads = ["check", "what", "instances", "worst measured / bound", "holds"]
    return Part(
        "Theorems, checked on numbers",
        text=checks_held(report.checks),
        tables=[Table("Measured over bound, at its worst", heads, rows, f"{name}-table", (1, 4))],
    )


def _front(report: SweepReport, name: str) -> list[Markup]:
    """Accuracy against time of the points, where they were scored and timed."""
    known = {key for row in report.done for key, value in row.scores.items() if value is not None}
    if not {"relative_WQL", "relative_MASE", "forecast_seconds"} <= known:
        return []
    named = tuple(replace(row, point=plain_text(shortened(row.point))) for row in report.points)
    draw = partial(plots.pareto, replace(report, points=named))
    says = "; ".join(
        f"{row.point}: " + ", ".join(f"{k} {significant(v)}" for k, v in row.scores.items()) for row in report.done
    )
    return [chart(draw, f"{name}-chart", f"Accuracy against time, sweep {report.name}", says)]


def bench_part(report: BenchReport, name: str) -> Part | None:
    """Times and memory, side by side."""
    if not report.rows:
        return None
    first = report.rows[0]
    where = str(report.machine.get("device", first.device))
    processor = report.machine.get("cpu") if first.device == "cpu" else None
    machine = f"{processor or where}, {plural(first.threads, 'thread')}"
    says = "; ".join(f"{row.label} at batch {row.batch}: {duration(row.seconds.median)}" for row in report.rows)
    drawing = chart(
        partial(times, report.rows),
        f"{name}-chart",
        "Time of a forecast",
        says,
        "Time of a forecast: median (dot), range over rounds (bar), and the least the work can take here (tick).",
    )
    contexts = {row.context for row in report.rows}
    longest = f"{max(contexts)}" if len(contexts) == 1 else f"At most {max(contexts)}"
    base = next((one.baseline for one in report.ratios), None)
    failed = [f"{one.label} at batch {one.batch}: {one.reason}" for one in report.failures]
    return Part(
        "Time and memory" + (f", beside {base}" if base else ""),
        text=f"{longest} values in, {first.horizon} steps out, {plural(report.rounds, 'round')} in turns, "
        f"on {machine}. The roofline is the least time that the work can take at the rates measured there.",
        charts=[drawing],
        tables=[_times(report, f"{name}-table")],
        left=f"Left out: {'; '.join(failed)}." if failed else "",
    )


def _times(report: BenchReport, name: str) -> Table:
    over = {(one.label, one.batch): one for one in report.ratios}
    rows: list[Row] = []
    for row in report.rows:
        beside = over.get((row.label, row.batch))
        span = f"{duration(row.seconds.min)} – {duration(row.seconds.max)}"
        rows.append(
            [
                row.label,
                row.dtype,
                number(row.batch, count(row.batch)),
                number(row.seconds.median, duration(row.seconds.median)),
                number(row.seconds.max, span),
                number(beside.seconds.median if beside else None, ratio(beside.seconds.median if beside else None)),
                number(row.peak_bytes, size(row.peak_bytes)),
                number(row.weight_bytes, size(row.weight_bytes)),
                number(row.cache_bytes, size(row.cache_bytes)),
                number(row.achieved, percent(row.achieved)),
            ]
        )
    heads = [
        "case",
        "format",
        "batch",
        "median",
        "range",
        "ratio",
        "peak memory",
        "weights",
        "cache",
        "of the roofline",
    ]
    return Table("Time of a forecast of the batch, and memory", heads, rows, name, texts=(1,))
