"""``rankscope lab``: the companion papers' experiments, one sub-verb each."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.main import get_command

from rankscope_cli.app import HELP, Commands, Verb, help_text
from rankscope_cli.exits import DEBUG

EXPERIMENTS = {
    "encoders": "Multichannel encoder audit: eight encoders, published tables.",
    "slt": "Sparse-layered transformers, PatchTST and N-BEATS on ETT.",
    "tokenizers": "Linear regression, autoencoders, VQ tokenizers, transformer.",
    "ranks": "Compare ranks of the models trained by the other experiments.",
}
"""Sub-verb → summary; each lives in ``rankscope_cli.verbs.lab_<sub-verb>``."""


class Experiments(Commands):
    """Command group of the sub-verbs."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands.update({name: Verb(name, line, module=f"lab_{name}") for name, line in EXPERIMENTS.items()})


def group() -> Any:
    """Build the ``rankscope lab`` command."""
    lab = typer.Typer(cls=Experiments, add_completion=False, no_args_is_help=True, rich_markup_mode="rich")
    lab.callback(help=help_text(run.__doc__ or ""), context_settings=HELP)(run)
    return get_command(lab)


def run(debug: Annotated[bool, typer.Option(DEBUG, help="Show the full traceback on errors.")] = False) -> None:
    """Reproduce the companion papers' experiments.

    The experiments study the effect of input encodings and layer types on accuracy and ranks.

    Each sub-verb trains small models, skips finished runs, and prints results next to published values.

    Examples:
        rankscope lab encoders 1 --quick --out audit/
        rankscope lab slt --help
    """
