"""``rankscope lab ranks``: what encodings, kinds of layers and codebooks do to ranks, on runs that are there."""

from __future__ import annotations

from typing import Annotated

import typer

from rankscope.errors import OptionError
from rankscope_cli.exits import say
from rankscope_cli.lab_ranks_table import show_ranks
from rankscope_cli.options import Debug, Eps, Force, Json, Table, numbers
from rankscope_cli.output import Output
from rankscope_cli.progress import progress_bar


def run(
    folders: Annotated[
        list[str], typer.Argument(metavar="DIR...", help="Folders of runs: what --out of the other sub-verbs names.")
    ],
    eps: Eps = None,
    cut: Annotated[
        bool, typer.Option("--cut", help="Also cut the layers of every run whose weights are kept, and score the rest.")
    ] = False,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="DIR", help="Folder of ETTh1.csv and so on, where weights are looked at."),
    ] = None,
    out: Table = None,
    force: Force = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare ranks of trained models: streams by depth, codebooks by size, loss by what is cut.

    Runs of rankscope lab encoders, slt and tokenizers hold ε-ranks and spectra of their last weights; one that does not
    is measured from its weights, if those are kept. Claims are tested seed by seed, p-values adjusted by Holm's method
    over the claims of one question and setting; fewer than three seeds say nothing. Diverged runs are only counted.

    Examples:
        rankscope lab ranks audit/ slt/ tokens/
        rankscope lab ranks audit/ --eps 0.1 --json
        rankscope lab ranks audit/ slt/ --cut --data ETT/ --out ranks.json
        rankscope figures lab-ranks --data ranks.json --out figures/
    """
    from rankscope.measure.spectrum import DEFAULT_EPS
    from rankscope_lab.ranks.runs import read_runs
    from rankscope_lab.ranks.study import study_runs
    from rankscope_lab.ranks.weights import can_be_cut, curves_of, with_ranks

    levels = numbers("eps", eps, DEFAULT_EPS)
    with Output(json, out, force) as output:
        with progress_bar("reading runs") as progress:
            found = with_ranks(read_runs(folders), data, progress)
            runs = can_be_cut(found) if cut else []
            if cut and not runs:
                raise OptionError(
                    "--cut needs weights: none lie beside these runs. Delete their JSON files, and the command that "
                    "made them trains them again and keeps weights."
                )
            curves = curves_of(found, data, progress=progress) if cut else ()
            left = len(runs) - len({(one.study, one.setting, one.variant, one.seed) for one in curves})
            if cut and not curves:
                raise OptionError(f"--cut needs the tables of these {left} runs: give --data DIR with their CSV files.")
            report = study_runs(found, curves, levels)
        output.deliver(report, lambda console: show_ranks(report, console))
    if left:
        say(f"{left} of {len(runs)} runs were not cut: give --data DIR with the CSV files of their tables.")
    for name in found.diverged:
        say(f"diverged: {name}: it is part of no number.")
