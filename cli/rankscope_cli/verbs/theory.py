"""``rankscope theory``: the paper's theorems checked numerically, on instances or on a model, and its experiments."""

from __future__ import annotations

from typing import Annotated

import typer

from rankscope.errors import OptionError
from rankscope_cli.exits import FAILED, say
from rankscope_cli.options import Debug, Force, Json, Revision, Seed, Table
from rankscope_cli.output import Output
from rankscope_cli.progress import progress_bar
from rankscope_cli.theory_table import show_theory


def run(
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ID...",
            help="thm1i thm1ii cor2 thm2 thm3 thm3-lower thm4-upper thm4-lower cor1 cor1-lower thm5 thm6-lower "
            "thm6-upper, or the experiments f1 f2 f3.",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every check; what happens without an ID, too.")] = False,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="MODEL", help="Check the theorems on this model's weights and inputs."),
    ] = None,
    instances: Annotated[
        int | None, typer.Option("--instances", "-n", min=1, metavar="N", help="Instances per check.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A twentieth of the instances; experiments at reduced size.")
    ] = False,
    out: Table = None,
    force: Force = False,
    json: Json = False,
    revision: Revision = None,
    seed: Seed = 0,
    debug: Debug = False,
) -> None:
    """Check the paper's theorems numerically: measured over bound, at the worst of many instances.

    A ratio of at most 1 means that the statement held. Where the paper prints a statement that does not hold as it
    stands, the corrected one is checked and the printed one is shown beside it. With --model hypotheses are tested
    first: those not met are listed, or an error if the theorem was asked for by its ID. The experiments of App. F have
    their published size and take minutes; their data goes into --out FILE.json. Exit code 1 if a check failed.

    Examples:
        rankscope theory --all
        rankscope theory thm2 --instances 50000 --json
        rankscope theory --model bundled-bolt
        rankscope theory f1 f2 f3 --quick --out experiments.json
    """
    from rankscope.checkpoints import open_checkpoint
    from rankscope_paper.theory.report import run_theory

    if everything and ids:
        raise OptionError(f"--all and {' '.join(ids)} contradict each other: give one of them.")
    if model is not None and instances is not None:
        raise OptionError("--instances counts random instances: leave it out with --model.")
    with Output(json, out, force) as output:
        with progress_bar("checking") as progress:
            checkpoint = None if model is None else open_checkpoint(model, revision=revision)
            report = run_theory(
                ids, checkpoint=checkpoint, instances=instances, quick=quick, seed=seed, progress=progress
            )
        output.deliver(report, lambda console: show_theory(report, console), whole=report.whole)
    for check in report.checks:
        if check.applies and not check.passed:
            say(f"failed: {check.id}: ratio {check.worst_ratio:.6g} at {check.worst}")
    if not report.passed:
        raise typer.Exit(FAILED)
