"""Tables of scores on fev tasks and on GIFT-Eval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankscope_cli.tables import MISSING, add_columns, plain_table, print_table, ratio_text

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope_eval.fev_suite import FevReport
    from rankscope_eval.gift_eval import GiftReport

METRICS = ("SQL", "MASE", "WQL", "WAPE")


def show_fev(report: FevReport, console: Console) -> None:
    """Print comparisons with the baseline, fev's leaderboard, and the scores by task."""
    from rankscope_eval.relative import FEWEST

    console.print(
        f"against {report.baseline}, tasks of {report.suite}: {len(_tasks(report))}", style="bold", markup=False
    )
    table = plain_table()
    add_columns(table, ["model", "ratio", "95 %", "wins", "95 %", "verdict", "worst"], left=1, folds=True)
    for column in table.columns[-2:]:
        column.justify = "left"
    for pair in report.pairs:
        judged = pair.errors
        worst = judged.verdict.worst
        table.add_row(
            pair.model,
            ratio_text(judged.ratio, 3),
            _span(judged.interval, 3),
            f"{pair.win_rate:.2f}",
            _span(pair.win_rate_interval, 2),
            str(judged.verdict),
            MISSING if worst is None else f"{worst} {ratio_text(judged.verdict.worst_ratio, 3)}",
        )
    print_table(table, console)
    bases = max((pair.errors.bases for pair in report.pairs), default=0)
    console.print(
        f"ratio: of {report.metric}, geometric mean over {bases} sources of data, which its interval resamples",
        markup=False,
    )
    if any(pair.errors.interval is None for pair in report.pairs):
        console.print(f"{MISSING}: an interval needs {FEWEST} sources", markup=False)
    console.print()
    console.print("leaderboard, as fev computes it", style="bold")
    table = plain_table()
    add_columns(table, ["model", "skill", "95 %", "win rate", "95 %", "median s"], left=1)
    for rank in report.leaderboard:
        table.add_row(
            rank.model,
            f"{rank.skill:.3f}",
            _span(rank.skill_interval, 3),
            f"{rank.win_rate:.2f}",
            _span(rank.win_rate_interval, 2),
            f"{rank.seconds:.2f}",
        )
    print_table(table, console)
    console.print()
    _show_rows(report, console)
    for note in report.notes:
        console.print(note, markup=False)


def _show_rows(report: FevReport, console: Console) -> None:
    shown = [metric for metric in METRICS if any(metric in row for row in report.rows)]
    table = plain_table()
    add_columns(table, ["model", "task", *shown, "seconds"], left=2, folds=True)
    last = None
    for row in report.rows:
        same = row["task_name"] == last
        if last is not None and not same:
            table.add_section()
        last = row["task_name"]
        scores = [f"{row[metric]:.4f}" if metric in row else MISSING for metric in shown]
        table.add_row(row["model_name"], "" if same else last, *scores, f"{row['inference_time_s']:.2f}")
    print_table(table, console)


def show_gift(report: GiftReport, console: Console) -> None:
    """Print comparisons with the baseline and the scores by configuration."""
    from rankscope_eval.gift_eval.report import CRPS, MASE
    from rankscope_eval.relative import FEWEST

    names = {row.dataset for row in report.rows}
    console.print(f"against {report.baseline}, configurations of GIFT-Eval: {len(names)}", style="bold", markup=False)
    table = plain_table()
    add_columns(table, ["model", "", "ratio", "95 %", "verdict", "worst"], left=2, folds=True)
    for column in table.columns[-2:]:
        column.justify = "left"
    for pair in report.pairs:
        for metric, judged in (("MASE", pair.MASE), ("CRPS", pair.CRPS)):
            worst = judged.verdict.worst
            table.add_row(
                pair.model if metric == "MASE" else "",
                metric,
                ratio_text(judged.ratio, 3),
                _span(judged.interval, 3),
                str(judged.verdict),
                MISSING if worst is None else f"{worst} {ratio_text(judged.verdict.worst_ratio, 3)}",
            )
    print_table(table, console)
    bases = max((pair.MASE.bases for pair in report.pairs), default=0)
    console.print(f"ratio: geometric mean over {bases} data sets, which its interval resamples", markup=False)
    if any(pair.MASE.interval is None for pair in report.pairs):
        console.print(f"{MISSING}: an interval needs {FEWEST} data sets", markup=False)
    console.print()
    table = plain_table()
    add_columns(table, ["model", "configuration", "MASE", "CRPS", "ND", "MSIS", "seconds"], left=2, folds=True)
    last = None
    for row in report.rows:
        same = row.dataset == last
        if last is not None and not same:
            table.add_section()
        last = row.dataset
        scores = [f"{row.scores[metric]:.4f}" for metric in (MASE, CRPS, "ND[0.5]", "MSIS")]
        table.add_row(row.model, "" if same else last, *scores, f"{row.seconds:.2f}")
    print_table(table, console)
    if report.missing:
        console.print(
            f"not in the data folder: {len(report.missing)} configurations, {report.missing[0]} first.", markup=False
        )


def _tasks(report: FevReport) -> set[str]:
    return {row["task_name"] for row in report.rows}


def _span(ends: tuple[float, float] | None, digits: int) -> str:
    return MISSING if ends is None else f"{ends[0]:.{digits}f}–{ends[1]:.{digits}f}"
