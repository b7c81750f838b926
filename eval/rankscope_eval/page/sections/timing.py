"""Times and memory, side by side."""

from __future__ import annotations

from functools import partial

from rankscope_eval.bench import BenchReport
from rankscope_eval.page.charts import times
from rankscope_eval.page.numbers import count, duration, percent, plural, ratio, size
from rankscope_eval.page.parts import Part, Row, Table, number
from rankscope_eval.page.svg import chart


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
    base = next((one.baseline for one in report.ratios), None)
    failed = [f"{one.label} at batch {one.batch}: {one.reason}" for one in report.failures]
    return Part(
        "Time and memory" + (f", beside {base}" if base else ""),
        text=f"{first.context} values in, {first.horizon} steps out, {plural(report.rounds, 'round')} in turns, "
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
