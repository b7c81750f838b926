"""``rankscope lab ranks``: effect of encodings, layer types and codebooks on ranks, from existing runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from rankscope.errors import OptionError
from rankscope_cli import options as opt
from rankscope_cli.exits import say
from rankscope_cli.output import Output
from rankscope_cli.progress import progress_bar
from rankscope_cli.tables import add_columns, plain_table, print_table
from rankscope_eval.numbers import MISSING, significant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from rankscope_lab.ranks.study import CurveRow, RankRow, RankStudy
    from rankscope_lab.statistics import Finding


def run(
    folders: Annotated[list[str], opt.argument("DIR", "Run folders: --out of the other sub-verbs.")],
    eps: opt.Eps = None,
    cut: Annotated[
        bool, opt.switch("--cut", "Also truncate the layers of every run with stored weights and score the result.")
    ] = False,
    data: Annotated[
        str | None, opt.value("--data", "DIR", "Folder with ETTh1.csv etc., for runs measured from their weights.")
    ] = None,
    out: opt.Out = None,
    force: opt.Force = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Compare ranks of the models trained by the other experiments.

    Compares activations by depth, codebooks by size, and losses by truncated rank. Runs of rankscope lab encoders, slt
    and tokenizers store ε-ranks and spectra of their final weights; a run without them is measured from its weights,
    if stored. Claims are tested with pairs matched by seed, at least three of them, and p-values are Holm-adjusted
    within each question and setting. Diverged runs are only counted.

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

    levels = opt.numbers("eps", eps, DEFAULT_EPS)
    with Output(json, out, force) as output:
        with progress_bar("reading runs") as progress:
            found = with_ranks(read_runs(folders), data, progress)
            runs = can_be_cut(found) if cut else []
            if cut and not runs:
                raise OptionError(
                    "--cut needs weights, but these runs have none. Delete their JSON files and rerun the command "
                    "that made them: it retrains them and stores weights."
                )
            curves = curves_of(found, data, progress=progress) if cut else ()
            left = len(runs) - len({(run.study, run.setting, run.variant, run.seed) for run, _ in curves})
            if cut and not curves:
                raise OptionError(f"--cut needs the tables of these {left} runs; give --data DIR with their CSV files.")
            report = study_runs(found, curves, levels)
        output.deliver(report, lambda console: show_ranks(report, console))
    if left:
        say(f"{left} of {len(runs)} runs were not truncated: give --data DIR with the CSV files of their tables.")
    for name in found.diverged:
        say(f"diverged: {name}: excluded from all results.")


def show_ranks(study: RankStudy, console: Console) -> None:
    """Print ranks by depth and codebook, losses by truncated rank, and the findings."""
    counts = ", ".join(f"{count} of {name}" for name, count in study.runs.items())
    kinds = f"{study.diverged} diverged, {study.unmeasured} without ranks, {study.cut_short} cut short"
    console.print(f"Runs: {counts}; {kinds}")
    for setting, rows in _by_setting(study.rows).items():
        _streams(setting, rows, study.eps, console)
    for setting, curves in _by_setting(study.curves).items():
        _curves(setting, curves, console)
    _findings(study.findings, console)


def _by_setting(rows: Sequence[RankRow] | Sequence[CurveRow]) -> dict[str, list]:
    found: dict[str, list] = {}
    for row in rows:
        found.setdefault(row.setting, []).append(row)
    return found


def _streams(setting: str, rows: Sequence[RankRow], eps: Sequence[str], console: Console) -> None:
    shown = [row for row in rows if row.what in ("input", "output", "codebook", "stream")]
    if not shown:
        return
    console.print()
    table = plain_table(f"{setting}: mean ranks")
    add_columns(table, ["of", "where", "eff.", "±", "centred", *(f"ε={level}" for level in eps), "most", "n"], left=2)
    stacks: dict[str, set[str]] = {}
    for row in shown:
        stacks.setdefault(row.variant, set()).add(row.stack)
    for row in shown:
        ranks = [f"{row.eps_ranks[level]:.1f}" for level in eps]
        spread = significant(row.effective_std, 2)
        cells = [significant(row.effective), spread, significant(row.centred), *ranks, str(row.size), str(row.seeds)]
        table.add_row(row.variant, _where(row, several=len(stacks[row.variant]) > 1), *cells)
    print_table(table, console)


def _where(row: RankRow, *, several: bool) -> str:
    """Return the depth of an activation stream (0: before layer 0, …), with its stack if there are ``several``."""
    if row.layer is None:
        return row.what
    return f"{row.stack.rpartition('.')[2] if several else 'depth'} {row.layer + (row.what == 'output')}"


def _curves(setting: str, rows: Sequence[CurveRow], console: Console) -> None:
    ratios = sorted({row.asked for row in rows if row.asked < 1}, reverse=True)
    found = {(row.variant, row.kind, row.method, row.asked): row.relative for row in rows}
    console.print()
    table = plain_table(f"{setting}: loss relative to the full model's, one layer type truncated to rank at most")
    add_columns(table, ["of", "layers", "by", *(f"{ratio:g}" for ratio in ratios)], left=3)
    for variant, kind, method in dict.fromkeys(key[:3] for key in found):
        losses = [found.get((variant, kind, method, ratio)) for ratio in ratios]
        cells = [MISSING if loss is None else f"{loss:.3f}" for loss in losses]
        table.add_row(variant, kind.replace("_", "-"), method, *cells)
    print_table(table, console)


def _findings(findings: Sequence[Finding], console: Console) -> None:
    from rankscope_lab.ranks.questions import QUESTIONS

    for letter, question in QUESTIONS.items():
        asked = [one for one in findings if one.question == letter]
        clear = [one for one in asked if one.verdict != "unclear"]
        console.print()
        console.print(f"({letter}) {question}", style="bold")
        console.print(f"{len(clear)} of {len(asked)} claims are significant (adjusted p < 0.05).")
        if not clear:
            continue
        table = plain_table()
        add_columns(table, ["claim", "first", "second", "p", "above", "says"], folds=True)
        for one in clear:
            p = significant(one.adjusted, 2)
            above = f"{one.above}/{one.pairs}"
            claim = f"{one.claim}, {one.measure}"
            table.add_row(claim, significant(one.mean_first), significant(one.mean_second), p, above, one.verdict)
        print_table(table, console)
