"""Tables of scores on fev tasks and on GIFT-Eval."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rankscope_cli.tables import MISSING, add_columns, plain_table, print_table, ratio_text

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope_eval.bases import Judged
    from rankscope_eval.fev_suite import FevReport
    from rankscope_eval.gift_eval import GiftReport

METRICS = ("SQL", "MASE", "WQL", "WAPE")


def show_fev(report: FevReport, console: Console) -> None:
    """Print comparisons with the baseline, fev's leaderboard, and the scores by task."""
    console.print(
        f"against {report.baseline}, tasks of {report.suite}: {len(_tasks(report))}", style="bold", markup=False
    )
    if report.pairs:
        _show_pairs(report, console)
    console.print()
    console.print("leaderboard, as fev computes it", style="bold")
    table = plain_table()
    add_columns(table, ["model", "skill", "95 %", "win rate", "95 %", "median s"], left=1)
    for rank in report.leaderboard:
        table.add_row(
            rank.model,
            ratio_text(rank.skill, 3),
            _span(rank.skill_interval, 3),
            ratio_text(rank.win_rate, 2),
            _span(rank.win_rate_interval, 2),
            f"{rank.seconds:.2f}",
        )
    print_table(table, console)
    console.print()
    _show_rows(report, console)
    for note in report.notes:
        console.print(note, markup=False)


def _show_pairs(report: FevReport, console: Console) -> None:
    from rankscope_eval.relative import FEWEST

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
            ratio_text(pair.win_rate, 2),
            _span(pair.win_rate_interval, 2),
            str(judged.verdict),
            MISSING if worst is None else f"{worst} {ratio_text(judged.verdict.worst_ratio, 3)}",
        )
    print_table(table, console)
    bases = max(pair.errors.bases for pair in report.pairs)
    console.print(
        f"ratio: of {report.metric}, geometric mean over {bases} sources of data, which its interval resamples",
        markup=False,
    )
    if any(pair.errors.interval is None for pair in report.pairs):
        console.print(f"{MISSING}: an interval needs {FEWEST} sources", markup=False)
    _left_out(((pair.model, pair.errors) for pair in report.pairs), console)


def _show_rows(report: FevReport, console: Console) -> None:
    own = [str(name) for row in report.rows for name in [_metric(row["eval_metric"])] if name not in METRICS]
    shown = [name for name in dict.fromkeys([*METRICS, *own]) if any(name in row for row in report.rows)]
    table = plain_table()
    add_columns(table, ["model", "task", *shown, "seconds"], left=2, folds=True)
    last = None
    for row in report.rows:
        same = row["task_name"] == last
        if last is not None and not same:
            table.add_section()
        last = row["task_name"]
        scores = [ratio_text(row.get(metric), 4) for metric in shown]
        table.add_row(row["model_name"], "" if same else last, *scores, f"{row['inference_time_s']:.2f}")
    print_table(table, console)


def show_gift(report: GiftReport, console: Console) -> None:
    """Print comparisons with the baseline and the scores by configuration."""
    from rankscope_eval.gift_eval.report import CRPS, MASE

    names = {row.dataset for row in report.rows}
    console.print(f"against {report.baseline}, configurations of GIFT-Eval: {len(names)}", style="bold", markup=False)
    if report.pairs:
        _show_gift_pairs(report, console)
    console.print()
    table = plain_table()
    add_columns(table, ["model", "configuration", "MASE", "CRPS", "ND", "MSIS", "seconds"], left=2, folds=True)
    last = None
    for row in report.rows:
        same = row.dataset == last
        if last is not None and not same:
            table.add_section()
        last = row.dataset
        scores = [ratio_text(row.scores[metric], 4) for metric in (MASE, CRPS, "ND[0.5]", "MSIS")]
        table.add_row(row.model, "" if same else last, *scores, f"{row.seconds:.2f}")
    print_table(table, console)
    if report.missing:
        console.print(
            f"not in the data folder: {len(report.missing)} configurations, {report.missing[0]} first.", markup=False
        )


def _show_gift_pairs(report: GiftReport, console: Console) -> None:
    from rankscope_eval.relative import FEWEST

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
    bases = max(pair.MASE.bases for pair in report.pairs)
    console.print(f"ratio: geometric mean over {bases} data sets, which its interval resamples", markup=False)
    if any(pair.MASE.interval is None for pair in report.pairs):
        console.print(f"{MISSING}: an interval needs {FEWEST} data sets", markup=False)
    each = [
        (f"{pair.model}, {name}", one)
        for pair in report.pairs
        for name, one in (("MASE", pair.MASE), ("CRPS", pair.CRPS))
    ]
    _left_out(each, console)


def _metric(metric: str | dict[str, Any]) -> str:
    return metric if isinstance(metric, str) else str(metric["name"])


def _left_out(pairs: Iterable[tuple[str, Judged]], console: Console) -> None:
    """Name tasks that a comparison does not count."""
    for name, judged in pairs:
        if judged.left_out:
            console.print(f"left out of {name}: {', '.join(judged.left_out)} (no usable ratio).", markup=False)


def _tasks(report: FevReport) -> set[str]:
    return {row["task_name"] for row in report.rows}


def _span(ends: tuple[float, float] | None, digits: int) -> str:
    known = ends is not None and all(map(math.isfinite, ends))
    return f"{ends[0]:.{digits}f}–{ends[1]:.{digits}f}" if known and ends is not None else MISSING
