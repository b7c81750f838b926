"""Tables of an evaluation: relative scores with verdicts, worst slices, scores by data set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rankscope_cli.tables import add_columns, plain_table, print_table
from rankscope_eval.numbers import MISSING, interval, ratio

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope_eval.report import EvalReport, EvalRow, EvalSummary, Slice


def show_eval(report: EvalReport, console: Console, metrics: Sequence[str] = ("MASE", "WQL")) -> None:
    """Print relative scores, worst slices, scores by data set and model, and skipped data sets."""
    _show_summary(report, console)
    console.print()
    _show_rows(report, console, metrics)
    for skipped in report.skipped:
        console.print(f"skipped {skipped.benchmark}/{skipped.dataset}: {skipped.reason}")
    for row in report.rows:
        if row.fallbacks:
            console.print(
                f"{row.model} failed to fit in {row.fallbacks} of {row.windows} windows of {row.dataset}: "
                "replaced by seasonal-naive."
            )
    for row in {row.key: row for row in report.rows}.values():
        if row.unscaled:
            console.print(
                f"{row.unscaled} of {row.windows} windows of {row.dataset} do not count in MASE: "
                "the values before them are constant or a single one (or there are none: then the window counts in no "
                "score)."
            )


def _show_rows(report: EvalReport, console: Console, metrics: Sequence[str]) -> None:
    cut = f", first {report.max_series} series of each" if report.max_series else ""
    console.print(f"suite {report.suite}{cut}, seed {report.seed}", style="bold")
    # Published scores cover all series.
    published = (
        tuple(metrics) == ("MASE", "WQL") and not cut and any(row.published_MASE is not None for row in report.rows)
    )
    table = plain_table()
    sizes = ["MASE", "WQL", "published", "WQL"] if published else ["series", "steps", *metrics]
    add_columns(table, ["model", "data set", *sizes], left=2, folds=True)
    last: EvalRow | None = None
    for row in report.rows:
        same = last is not None and (last.benchmark, last.dataset) == (row.benchmark, row.dataset)
        if last is not None and not same:
            table.add_section()
        scores = [ratio(getattr(row, name), 4) for name in metrics]
        if published:
            cells = [*scores, _published(row.published_MASE), _published(row.published_WQL)]
        else:
            steps = ["", ""] if same else [str(row.series), str(row.prediction_length)]
            cells = [*steps, *scores]
        table.add_row(row.model, "" if same else row.dataset, *cells)
        last = row
    print_table(table, console)


def _show_summary(report: EvalReport, console: Console) -> None:
    from rankscope_eval.relative import FEWEST

    console.print(f"relative to {report.baseline}: geometric means, lower is better", style="bold")
    table = plain_table()
    add_columns(table, ["model", "benchmark", "", "ratio", "95 %", "wins", "verdict"], left=3, folds=True)
    table.columns[-1].justify = "left"
    for row in report.summary:
        sets = f"{row.benchmark} ({row.datasets})"
        for metric in ("WQL", "MASE"):
            value, ends, wins, verdict = (getattr(row, name.format(metric)) for name in _MEASURED)
            first = [row.model, sets] if metric == "WQL" else ["", ""]
            won = ratio(wins if row.datasets > 1 else None, 2)
            cells = [ratio(value), interval(ends), won, str(verdict or MISSING)]
            table.add_row(*first, metric, *cells)
    print_table(table, console)
    for line in (*_legend(report.summary), *_worst_slices(report.slices)):
        console.print(line)
    if any(row.WQL_interval is None and 0 < row.datasets < FEWEST for row in report.summary):
        console.print(f"–: an interval needs {FEWEST} data sets; of a single one, {FEWEST} series with an error")
    for row in report.summary:
        if row.left_out:
            names = ", ".join(row.left_out)
            console.print(f"left out of {row.model} on {row.benchmark}: {names} (no usable ratio).")


_MEASURED = ("relative_{}", "{}_interval", "{}_win_rate", "{}_verdict")


def _legend(summary: Sequence[EvalSummary]) -> Iterator[str]:
    """Explain intervals and verdicts, and name the worst data sets."""
    from rankscope_eval.verdict import BETTER, NOT_SHOWN, WORSE

    verdicts = [one for row in summary for one in (row.WQL_verdict, row.MASE_verdict) if one is not None]
    if any(row.MASE_interval or row.WQL_interval for row in summary):
        yield "95 %: bootstrap over data sets and series"
        if verdicts:
            margin = verdicts[0].margin
            yield f"held: 90 % interval within {1 / (1 + margin):.3f}–{1 + margin:.3f}, two one-sided tests at 5 %"
        if any(one.word in (BETTER, WORSE) for one in verdicts):
            yield "better, worse: the 95 % interval is beyond 1"
        if any(one.word == NOT_SHOWN for one in verdicts):
            yield "not shown: the interval is too wide; more series or data sets narrow it"
    if any((row.WQL_win_rate is not None and row.datasets > 1) for row in summary):
        yield "wins: share of data sets with a lower score, ties half"
    for row in summary:
        worst = [
            f"{metric} {ratio(verdict.worst_ratio)} on {verdict.worst}{' (shown worse)' * verdict.worse_there}"
            for metric, verdict in (("WQL", row.WQL_verdict), ("MASE", row.MASE_verdict))
            if row.datasets > 1 and verdict is not None and verdict.worst is not None
        ]
        if worst:
            yield f"worst of {row.model} on {row.benchmark}: {', '.join(worst)}"


def _worst_slices(slices: Sequence[Slice]) -> Iterator[str]:
    """Name the slices that have an interval, a line for each model."""
    by_model: dict[str, list[str]] = {}
    for one in slices:
        if one.WQL_interval is not None:
            text = f"{one.by} {one.part} {one.WQL:.3f} ({interval(one.WQL_interval)})"
            by_model.setdefault(one.model, []).append(text)
    if by_model:
        yield "slices: parts of the data, with simultaneous 95 % intervals"
    for model, texts in by_model.items():
        yield f"worst slices of {model} in WQL: {', '.join(texts)}"


def _published(value: float | None) -> str:
    return MISSING if value is None else f"{value:.4f}"
