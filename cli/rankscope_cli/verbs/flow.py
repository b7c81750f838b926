"""``rankscope flow``: ε-ranks of layer inputs and weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rankscope_cli import options as opt
from rankscope_cli.output import Output, check_figures, drawing
from rankscope_cli.own_series import reading, refuse
from rankscope_cli.progress import progress_bar
from rankscope_cli.tables import add_columns, plain_table, print_table, where, width
from rankscope_eval.numbers import significant

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console
    from rich.table import Table

    from rankscope.measure.flow import FlowReport

FIGURES = ("flow_encoder", "flow_decoder")
"""File stems of the figures."""


def run(
    model: opt.Model = None,
    signal: opt.Signal = None,
    n: opt.Count = 64,
    length: opt.Length = None,
    freq: opt.Freq = None,
    id_column: opt.IdColumn = None,
    time_column: opt.TimeColumn = None,
    target_column: opt.TargetColumn = None,
    text: opt.Text = None,
    eps: opt.Eps = None,
    figures: opt.Figures = None,
    out: opt.Out = None,
    force: opt.Force = False,
    json: opt.Json = False,
    device: opt.Device = "auto",
    revision: opt.Revision = None,
    seed: opt.Seed = 0,
    debug: opt.Debug = False,
) -> None:
    """Compute ε-ranks of every layer's inputs and weights.

    The corpus is passed through the model once. The input of each layer, one row per token, forms a matrix; its
    singular values are computed in float64.

    Examples:
        rankscope flow bundled-bolt
        rankscope flow amazon/chronos-bolt-small --signal noise --figures figures/
        rankscope flow small/ --signal sales.csv --target-column sold --length 128 --json
    """
    from rankscope.engine.device import resolve_device
    from rankscope.measure.flow import measure_flow

    kind, file = opt.signal_or_file(signal)
    read = reading(file is not None, "--signal FILE", freq, id_column, time_column, target_column)
    check_figures(figures, FIGURES, force)
    with Output(json, out, force, signed=True) as output:
        tolerances = opt.numbers("eps", eps, (0.1, 0.05, 0.01))
        with progress_bar("opening the model") as progress:
            checkpoint = opt.open_model(model, revision)
            modality = checkpoint.family.modality
            if modality == "image":
                refuse(
                    {"signal": signal, "length": length},
                    f"a model of series or text, and {checkpoint.source} reads images",
                )
            elif text is not None:
                refuse({"signal": signal}, "a model of series, or no --text")
            report = measure_flow(
                checkpoint,
                kind,
                n=n,
                length=length or opt.LENGTH,
                eps=tolerances,
                seed=seed,
                file=file,
                **read,
                text=text,
                device=resolve_device(device),
                progress=progress,
            )
        drawn = drawing(figures, lambda: _figures(report))
        output.deliver(report, lambda console: show_flow(report, console), also=drawn)


def _figures(report: FlowReport) -> dict[str, Figure]:
    """Draw the flow of ranks through each stack."""
    from rankscope import plots

    return {f"flow_{stack}": plots.flow(report, stack=stack) for stack in dict.fromkeys(r.stack for r in report.layers)}


def show_flow(report: FlowReport, console: Console) -> None:
    """Print the ε-ranks of every layer's input, and of its weights at the first ε, in one table if it fits."""
    roles = list(dict.fromkeys(role for row in report.layers for role in row.weight_eps_ranks))
    signal = {"series": f", signal {report.signal}", "text": f" of {report.signal}"}.get(report.modality, "")
    console.print(f"{report.model}: {report.corpus}{signal}", style="bold")
    both = _flow_table(report, inputs=True, roles=roles)
    if width(both, console) <= console.width:
        print_table(both, console)
    else:
        print_table(_flow_table(report, inputs=True, roles=[]), console)
        console.print()
        print_table(_flow_table(report, inputs=False, roles=roles), console)
    console.print()
    for line in _legend(report, bool(roles)):
        console.print(line)


def _legend(report: FlowReport, weights: bool) -> Iterator[str]:
    """Explain the headers, and where few tokens bound the ranks."""
    from rankscope.measure.flow import FEWEST

    yield "layer's input, one row per token: σ₁ largest singular value, ε=E ε-rank at E, eff. effective rank"
    if weights:
        yield f"under a role: ε-rank of that weight at ε={report.eps[0]!r} (s. self-, c. cross-, g. group attention)"
        stacks = {row.stack: set(row.weight_eps_ranks) for row in report.layers}
        if any({"self.v"} <= roles and "self.q" not in roles for roles in stacks.values()):
            yield "no s.q and s.k where no gradient reaches them: they keep their random start"
    raised = "--n" if report.modality == "image" else "--n or --length"
    for stack in dict.fromkeys(row.stack for row in report.layers):
        first = report.stack(stack)[0]
        if first.tokens <= FEWEST:
            yield f"{stack}: {first.tokens} tokens, too few for ranks to mean anything; raise {raised}"
        elif first.tokens < first.d_model:
            yield (f"{stack}: {first.tokens} tokens of width {first.d_model} bound the ranks of inputs; raise {raised}")


def _flow_table(report: FlowReport, inputs: bool, roles: list[str]) -> Table:
    levels = [repr(eps) for eps in report.eps]
    header = ["tokens", "σ₁", *(f"ε={level}" for level in levels), "eff."] if inputs else []
    table = plain_table()
    add_columns(table, ["layer", *header, *(_short(role) for role in roles)])
    stack = None
    for row in report.layers:
        if stack not in (None, row.stack):
            table.add_section()
        stack = row.stack
        cells = [f"{row.tokens:,}", significant(float(row.sigma[0])), *(str(row.eps_ranks[level]) for level in levels)]
        cells.append(significant(row.effective_rank))
        weights = [str(row.weight_eps_ranks[role][levels[0]]) if role in row.weight_eps_ranks else "" for role in roles]
        table.add_row(where(row.stack, row.layer), *(cells if inputs else []), *weights)
    return table


def _short(role: str) -> str:
    """Return the short name of a role.

    >>> _short("cross.q")
    'c.q'
    """
    scope, _, letter = role.partition(".")
    return f"{scope[0]}.{letter}" if letter else role
