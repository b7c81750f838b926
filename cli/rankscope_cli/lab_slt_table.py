"""How the study of sparse-layered transformers looks in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankscope_cli.tables import MISSING, add_columns, figures, plain_table, print_table, ratio_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from rankscope_lab.slt.report import Comparison, Row, SltReport, SpeedUp
    from rankscope_lab.statistics import Spread

ERRORS = "test error, scaled units, mean ± std of n seeds"
TOLERANCES = {
    "published twice": "within: as near as the two numbers that were published for the same model",
    "2 std of ours": "within: as near as two standard deviations over our seeds",
}
BEST = "best val.: with the weights of the least validation error, whatever is tested"
COST = "Cost: parameters, seconds of training, forecasts"
RATIOS = "SLT against PatchTST-like (the runs did not take turns)"


def show_slt(report: SltReport, console: Console) -> None:
    """Print errors beside published ones, then cost, ratios, and what the ablations say."""
    for place in dict.fromkeys((row.dataset, row.protocol) for row in report.rows):
        _errors(*place, [row for row in report.rows if (row.dataset, row.protocol) == place], console)
    _cost(report.rows, console)
    if report.speed_ups:
        _ratios(report.speed_ups, console)
    for title in dict.fromkeys(one.title for one in report.comparisons):
        _compared(title, [one for one in report.comparisons if one.title == title], console)
    if report.diverged:
        console.print(f"{len(report.diverged)} of {report.runs} runs diverged and are in no mean.", markup=False)


def _errors(dataset: str, protocol: str, rows: list[Row], console: Console) -> None:
    table = plain_table(f"{dataset}, {protocol}{_rounded(rows)}: {ERRORS}")
    add_columns(table, ["model", "MSE", "MAE", "best val. MSE", "n", "published", "verdict"])
    for row in rows:
        beside = (f"{row.verdict.published:.4f}", row.verdict.word) if row.verdict else ("", "")
        count = f"{row.mse.n}" + (f" −{row.diverged}" if row.diverged else "")
        best = _spread(row.best_mse) if row.parameters else MISSING
        table.add_row(
            row.model, _spread(row.mse), f"{row.mae.mean:.3f}" if row.mae.n else MISSING, best, count, *beside
        )
    print_table(table, console)
    console.print(BEST, markup=False, style="dim")
    for basis in dict.fromkeys(row.verdict.basis for row in rows if row.verdict and row.verdict.basis):
        console.print(TOLERANCES[basis], markup=False, style="dim")
    console.print()


def _cost(rows: tuple[Row, ...], console: Console) -> None:
    table = plain_table(COST)
    add_columns(table, ["table", "protocol", "model", "parameters", "s/epoch", "windows/s"], left=3)
    for row in rows:
        seconds = figures(row.seconds_per_epoch) if row.parameters else MISSING
        rate = f"{row.windows_per_second:,.0f}" if row.mse.n else MISSING
        table.add_row(row.dataset, row.protocol, row.model, f"{row.parameters:,}", seconds, rate)
    print_table(table, console)
    for machine in dict.fromkeys(row.machine for row in rows):
        console.print(f"on {machine}{_rounded(rows)}", markup=False, style="dim")


def _rounded(rows: Sequence[Row]) -> str:
    """Precisions other than float32."""
    others = {row.precision for row in rows if row.parameters} - {"float32"}
    return "".join(f", {name}" for name in sorted(others))


def _ratios(ratios: tuple[SpeedUp, ...], console: Console) -> None:
    console.print()
    table = plain_table(RATIOS)
    add_columns(table, ["table", "protocol", "training ×", "inference ×", "publ.", "gain %", "publ."], left=2)
    for one in ratios:
        gains = [MISSING if value is None else f"{100 * value:.1f}" for value in (one.gain, one.published_gain)]
        speeds = [ratio_text(value) for value in (one.training, one.inference, one.published)]
        table.add_row(one.dataset, one.protocol, *speeds, *gains)
    print_table(table, console)


def _compared(title: str, found: list[Comparison], console: Console) -> None:
    console.print()
    console.print(f"{title}: MSE, first − second", style="bold", markup=False)
    table = plain_table()
    add_columns(table, ["table", "protocol", "first", "second", "difference", "%", "p", "wins"], left=4)
    for one in found:
        pairs = one.mse.difference.n
        table.add_row(
            one.dataset,
            one.protocol,
            one.first.replace(" & ", "\n"),
            one.second.replace(" & ", "\n"),
            _spread(one.mse.difference, sign=True) if pairs else MISSING,
            f"{100 * one.relative:+.1f}" if pairs else MISSING,
            figures(one.mse.p, 2),
            f"{one.mse.lower}/{pairs}",
        )
    print_table(table, console)
    if any(" & " in one.first for one in found):
        console.print("two models in a cell: the mean of their errors", markup=False, style="dim")


def _spread(value: Spread, digits: int = 4, sign: bool = False) -> str:
    if not value.n:
        return MISSING
    mean = f"{value.mean:+.{digits}f}" if sign else f"{value.mean:.{digits}f}"
    return mean if value.std is None else f"{mean} ±{value.std:.{digits}f}".replace("±0.", "±.")
