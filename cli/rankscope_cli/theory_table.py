"""How the checks of theorems look in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankscope_cli.tables import MISSING, add_columns, figures, plain_table, print_table

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope_paper.theory.record import CheckResult
    from rankscope_paper.theory.report import TheoryReport


def show_theory(report: TheoryReport, console: Console) -> None:
    """Print a row per check, then what was found where the paper's print does not hold, and unmet hypotheses."""
    models = {check.model for check in report.checks if check.model}
    title = f"{', '.join(sorted(models))}: theorems" if models else "Theorems on random and adversarial instances"
    console.print(title, style="bold", markup=False)
    table = plain_table()
    add_columns(table, ["id", "statement", "instances", "worst ratio", "as printed", "result", "s"], left=2)
    for check in report.checks:
        table.add_row(
            check.id,
            check.title,
            str(check.instances) if check.applies else MISSING,
            _ratio(check.worst_ratio),
            _ratio(check.printed.worst_ratio) if check.printed else "",
            _result(check),
            f"{check.seconds:.1f}",
        )
    print_table(table, console)
    lines = [line for check in report.checks for line in _lines(check)]
    if lines:
        console.print()
    for line in lines:
        console.print(line, markup=False)


def _ratio(value: float) -> str:
    return figures(value, 4) if value < 1e6 or value != value else f"{value:.1e}"


def _result(check: CheckResult) -> str:
    if not check.applies:
        return "not applicable"
    return "holds" if check.passed else "FAILED"


def _lines(check: CheckResult) -> list[str]:
    lines = []
    if check.unmet:
        lines.append(f"{check.id}: hypotheses not met: {'; '.join(check.unmet)}")
    if check.applies and not check.passed:
        lines.append(f"{check.id}: worst at {check.worst}")
    if check.printed and not check.printed.holds:
        lines.append(f"{check.id}: as printed ({check.printed.statement}) it fails at {check.printed.worst}")
    return lines + [f"{check.id}: {note}" for note in check.notes]
