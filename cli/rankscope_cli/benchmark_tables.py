"""Tables of scores on fev tasks and on GIFT-Eval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rankscope_cli.tables import add_columns, plain_table, print_table
from rankscope_eval.numbers import MISSING, interval, ratio

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope_eval.bases import Judged
    from rankscope_eval.fev_suite import FevReport
    from rankscope_eval.gift_eval import GiftReport

METRICS = ("SQL", "MASE", "WQL", "WAPE")
"""Metrics of fev that are shown first."""


def show_fev(report: FevReport, console: Console) -> None:
    """Print comparisons with the baseline, fev's leaderboard, and the scores by task."""
    from rankscope_eval.fev_suite.report import metric_of

    tasks = {row["task_name"] for row in report.rows}
    console.print(f"against {report.baseline}, tasks of {report.suite}: {len(tasks)}", style="bold")
    pairs = [(pair.model, report.metric, pair.errors) for pair in report.pairs]
    _show_judged(pairs, ("source of data", "sources of data"), console)
    for pair in report.pairs:
        wins = f"{ratio(pair.win_rate, 2)} ({interval(pair.win_rate_interval, 2)})"
        console.print(f"{pair.model} beats it on {wins} of the tasks, ties counted half")
    console.print()
    console.print("leaderboard, as fev computes it", style="bold")
    table = plain_table()
    add_columns(table, ["model", "skill", "95 %", "win rate", "95 %", "median s"], left=1)
    for rank in report.leaderboard:
        table.add_row(
            rank.model,
            ratio(rank.skill),
            interval(rank.skill_interval, 3),
            ratio(rank.win_rate, 2),
            interval(rank.win_rate_interval, 2),
            f"{rank.seconds:.2f}",
        )
    print_table(table, console)
    console.print()
    shown = [name for name in METRICS if any(name in row for row in report.rows)]
    shown = list(dict.fromkeys([*shown, *map(metric_of, report.rows)]))
    rows = [(row["model_name"], row["task_name"], row, row["inference_time_s"]) for row in report.rows]
    _show_scores("task", {name: name for name in shown}, rows, console)
    for note in report.notes:
        console.print(note)


def show_gift(report: GiftReport, console: Console) -> None:
    """Print comparisons with the baseline and the scores by configuration."""
    from rankscope_eval.gift_eval.report import CRPS, MASE

    names = {row.dataset for row in report.rows}
    console.print(f"against {report.baseline}, configurations of GIFT-Eval: {len(names)}", style="bold")
    pairs = [
        (pair.model, metric, judged)
        for pair in report.pairs
        for metric, judged in (("MASE", pair.MASE), ("CRPS", pair.CRPS))
    ]
    _show_judged(pairs, ("data set", "data sets"), console)
    for model, metric, judged in pairs:
        if judged.left_out:
            console.print(f"left out of {metric} of {model}: {', '.join(judged.left_out)} (no ratio).")
    console.print()
    rows = [(row.model, row.dataset, row.scores, row.seconds) for row in report.rows]
    metrics = {"MASE": MASE, "CRPS": CRPS, "ND": "ND[0.5]", "MSIS": "MSIS"}
    _show_scores("configuration", metrics, rows, console)
    if report.missing:
        count, first = len(report.missing), report.missing[0]
        console.print(f"not in the data folder: {count} configurations, {first} first.")


def _show_judged(pairs: Sequence[tuple[str, str, Judged]], sources: tuple[str, str], console: Console) -> None:
    """Print ratios to the baseline with their verdicts.

    Args:
        pairs: model, metric and comparison.
        sources: singular and plural of what intervals resample.
        console: where.
    """
    from rankscope_eval.relative import FEWEST

    if not pairs:
        return
    table = plain_table()
    add_columns(table, ["model", "", "ratio", "95 %", "verdict", "worst"], left=2, folds=True)
    for column in table.columns[-2:]:
        column.justify = "left"
    last = None
    for model, metric, judged in pairs:
        worst = judged.verdict.worst
        table.add_row(
            "" if model == last else model,
            metric,
            ratio(judged.ratio),
            interval(judged.interval, 3),
            str(judged.verdict),
            MISSING if worst is None else f"{worst} {ratio(judged.verdict.worst_ratio)}",
        )
        last = model
    print_table(table, console)
    bases = max(judged.bases for _, _, judged in pairs)
    console.print(f"ratio: geometric mean over {bases} {sources[bases != 1]}, which its interval resamples")
    if any(judged.interval is None for _, _, judged in pairs):
        console.print(f"{MISSING}: an interval needs {FEWEST} {sources[1]}")


def _show_scores(
    what: str,
    metrics: Mapping[str, str],
    rows: Iterable[tuple[str, str, Mapping[str, float | None], float]],
    console: Console,
) -> None:
    """Print scores by task.

    Args:
        what: a task.
        metrics: heading and name of each metric.
        rows: model, task, scores and seconds; the rows of a task one after the other.
        console: where.
    """
    table = plain_table()
    add_columns(table, ["model", what, *metrics, "seconds"], left=2, folds=True)
    last = None
    for model, task, scores, seconds in rows:
        if last is not None and task != last:
            table.add_section()
        cells = [ratio(scores.get(name), 4) for name in metrics.values()]
        table.add_row(model, "" if task == last else task, *cells, f"{seconds:.2f}")
        last = task
    print_table(table, console)
