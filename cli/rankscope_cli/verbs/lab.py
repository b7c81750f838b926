"""``rankscope lab``: experiments on the input side and the layer side of time-series transformers, each a sub-verb."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from rankscope_cli.app import HELP, Verb, help_text, load_verb
from rankscope_cli.exits import DEBUG

EXPERIMENTS = {
    "encoders": "How several channels enter a transformer: the tables of an audit of eight encoders.",
    "slt": "Sparse-layered transformers, PatchTST and N-BEATS beside simple floors, on ETT tables.",
    "tokenizers": "Linear regression, autoencoders, VQ tokenizers and a transformer, from their parts.",
    "ranks": "What the encoding and the kind of layer do to ranks, on the trained models of the others.",
}
"""Sub-verb → its line in ``rankscope lab --help``; the module ``rankscope_cli.verbs.lab_<sub-verb>`` holds it."""


class Experiment(Verb):
    """Stands for a sub-verb until it runs."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Import the sub-verb and let it parse its own arguments."""
        return load_verb(f"lab_{self.name}").make_context(info_name, args, parent=parent, **extra)


class Experiments(TyperGroup):
    """The sub-verbs in the order of `EXPERIMENTS`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands.update({name: Experiment(name, help=line) for name, line in EXPERIMENTS.items()})

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the sub-verbs' names in the order of the documentation."""
        return list(EXPERIMENTS)


def group() -> Any:
    """The command that ``rankscope lab`` is."""
    lab = typer.Typer(cls=Experiments, add_completion=False, no_args_is_help=True, rich_markup_mode="rich")
    lab.callback(help=help_text(run.__doc__ or ""), context_settings=HELP)(run)
    return get_command(lab)


def run(debug: Annotated[bool, typer.Option(DEBUG, help="Show the traceback of an error.")] = False) -> None:
    """Run the lab's experiments: what do the input encoding and the kind of layer do to a model, and to its ranks?

    Each sub-verb trains small models, skips what its folder holds already, and prints tables beside published values.

    Examples:
        rankscope lab encoders 1 --quick --out audit/
        rankscope lab slt --help
    """
