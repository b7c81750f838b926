"""``rankscope families``: list the supported model families."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankscope_cli import options as opt
from rankscope_cli.output import Output
from rankscope_cli.tables import add_columns, plain_table, print_table
from rankscope_eval.numbers import MISSING

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope.families.table import FamiliesReport


def run(out: opt.Out = None, force: opt.Force = False, json: opt.Json = False, debug: opt.Debug = False) -> None:
    """List supported model families, hub ids and verbs.

    Other models saved with save_pretrained can be measured, too: spectrum infers attention, MLPs and embedding from
    names and shapes, and reports the inferred roles.

    Examples:
        rankscope families
        rankscope families --json
        rankscope families --out families.csv
    """
    from rankscope.checkpoints import list_bundled
    from rankscope.families.table import list_families

    with Output(json, out, force) as output:
        report = list_families(list_bundled())
        output.deliver(report, lambda console: show_families(report, console))


def show_families(report: FamiliesReport, console: Console) -> None:
    """Print a table of families and verbs, then their hub ids."""
    from rankscope.families.table import VERBS

    common = [verb for verb in VERBS if all(verb in row.verbs for row in report.rows)]
    table = plain_table(caption=f"All support {' and '.join(common)}. patch: values per token, as published.")
    add_columns(table, ["family", "strategy", "reads", "patch"], left=3)
    others = [verb for verb in VERBS if verb not in common]
    for verb in others:
        table.add_column(verb, justify="center", no_wrap=True)
    for row in report.rows:
        patch = MISSING if row.patch_size is None else str(row.patch_size)
        marks = ["●" if verb in row.verbs else "" for verb in others]
        table.add_row(row.family, row.strategy, row.modality, patch, *marks)
    print_table(table, console)
    console.print()
    places = plain_table()
    add_columns(places, ["family", "bundled", "published"], left=3)
    for row in report.rows:
        places.add_row(row.family, row.bundled or MISSING, _published(row.hub_ids))
    print_table(places, console)


def _published(hub_ids: tuple[str, ...]) -> str:
    """Return the first hub id and the number of others."""
    if not hub_ids:
        return MISSING
    more = f" and {len(hub_ids) - 1} more" if len(hub_ids) > 1 else ""
    return f"{hub_ids[0]}{more}"
