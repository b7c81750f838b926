"""``rankscope lab``: experiments on the input side and the layer side of time-series transformers, each a sub-verb."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from rankscope_cli.app import HELP, Untyped, Verb, help_text
from rankscope_cli.exits import DEBUG

EXPERIMENTS = {
    "encoders": "Audit eight encoders of several channels, beside the published tables.",
    "slt": "Train sparse-layered transformers, PatchTST and N-BEATS on ETT tables.",
    "tokenizers": "Train regression, autoencoders, VQ tokenizers and a transformer.",
    "ranks": "Compare ranks of the models that the other experiments trained.",
}
"""Sub-verb → its summary; the module ``rankscope_cli.verbs.lab_<sub-verb>`` holds it."""


class Experiments(Untyped, TyperGroup):
    """The sub-verbs in the order of the documentation."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands.update({name: Verb(name, line, module=f"lab_{name}") for name, line in EXPERIMENTS.items()})

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the sub-verbs' names, not sorted."""
        return list(self.commands)


def group() -> Any:
    """The command that ``rankscope lab`` is."""
    lab = typer.Typer(cls=Experiments, add_completion=False, no_args_is_help=True, rich_markup_mode="rich")
    lab.callback(help=help_text(run.__doc__ or ""), context_settings=HELP)(run)
    return get_command(lab)


def run(debug: Annotated[bool, typer.Option(DEBUG, help="Show the traceback of an error.")] = False) -> None:
    """Run the companion papers' experiments.

    What do the input encoding and the kind of layer do to a model, and to its ranks?

    Each sub-verb trains small models, skips what its folder holds already, and prints tables beside published values.

    Examples:
        rankscope lab encoders 1 --quick --out audit/
        rankscope lab slt --help
    """
