"""``rankscope theory``: verify the paper's theorems numerically."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rankscope.errors import OptionError
from rankscope_cli import options as opt
from rankscope_cli.exits import FAILED, say
from rankscope_cli.output import Output
from rankscope_cli.own_series import refuse
from rankscope_cli.progress import progress_bar
from rankscope_cli.tables import add_columns, plain_table, print_table
from rankscope_eval.numbers import MISSING, significant

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope_paper.theory.check import CheckResult
    from rankscope_paper.theory.run import TheoryReport


def run(
    ids: Annotated[
        list[str] | None,
        opt.argument(
            "ID",
            "thm1i thm1ii cor2 thm2 thm3 thm3-lower thm4-upper thm4-lower cor1 cor1-lower thm5 one-token "
            "thm6-lower thm6-upper, or the experiments f1 f2 f3.",
        ),
    ] = None,
    everything: Annotated[bool, opt.switch("--all", "Run all checks (default without an ID).")] = False,
    model: Annotated[
        str | None, opt.value("--model", "MODEL", "Verify the theorems on this model's weights and inputs.", short="-m")
    ] = None,
    instances: Annotated[
        int | None,
        opt.count("--instances", "Number of random instances per check (default: the check's own).", short="-n"),
    ] = None,
    quick: Annotated[bool, opt.switch("--quick", "Use 1/20 of the instances and smaller experiments.")] = False,
    out: opt.Out = None,
    force: opt.Force = False,
    json: opt.Json = False,
    revision: opt.Revision = None,
    seed: opt.Seed = 0,
    debug: opt.Debug = False,
) -> None:
    """Verify the paper's theorems numerically.

    Reports the worst ratio of measured value to bound over many instances; a statement holds if the ratio is at most 1.
    Statements that do not hold as printed in the paper are checked in corrected form, with the printed form alongside.
    With --model, hypotheses are tested first; unmet ones are listed, or are an error for a theorem requested by ID.
    The experiments of App. F run at published size and take minutes; --out FILE.json stores their data. Exit code 1 if
    a check fails.

    Examples:
        rankscope theory --all
        rankscope theory thm2 --instances 50000 --json
        rankscope theory --model bundled-bolt
        rankscope theory f1 f2 f3 --quick --out experiments.json
    """
    from rankscope.checkpoints import open_checkpoint
    from rankscope_paper.theory.run import run_theory

    if everything and ids:
        raise OptionError(f"--all and {' '.join(ids)} are mutually exclusive.")
    if model is not None and instances is not None:
        raise OptionError("--instances applies to random instances only; leave it out with --model.")
    if model is None:
        refuse({"revision": revision}, "--model MODEL")
    with Output(json, out, force) as output:
        with progress_bar("checking") as progress:
            checkpoint = None if model is None else open_checkpoint(model, revision=revision)
            report = run_theory(
                ids, checkpoint=checkpoint, instances=instances, quick=quick, seed=seed, progress=progress
            )
        printed = report.without_experiments()
        output.deliver(printed, lambda console: show_theory(report, console), whole=report)
    for check in report.checks:
        if check.applies and not check.passed:
            say(f"failed: {check.id}: ratio {check.worst_ratio:.6g} at {check.worst}")
    if not report.passed:
        raise typer.Exit(FAILED)


def show_theory(report: TheoryReport, console: Console) -> None:
    """Print one row per check, then failures of printed statements and unmet hypotheses."""
    models = {check.model for check in report.checks if check.model}
    title = f"{', '.join(sorted(models))}: theorems" if models else "Theorems on random and adversarial instances"
    console.print(title, style="bold")
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
        console.print(line)


def _ratio(value: float) -> str:
    return significant(value, 4) if value < 1e6 or value != value else f"{value:.1e}"


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
