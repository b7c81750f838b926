"""The Typer app: its verbs, each imported only when it runs, so that ``rankscope --help`` answers at once."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from rankscope_cli.exits import DEBUG, INTERRUPTED, report_error, say
from rankscope_cli.output import recorded

VERBS = {
    "spectrum": "Singular values, ε-ranks and size ratios of every weight matrix.",
    "flow": "ε-ranks of every layer's input, beside those of its weights.",
    "embed": "Spectra, angles and projections of embedding matrices over a corpus.",
    "families": "The model families: how they embed, where to get them, which verbs take them.",
    "calibrate": "Look at what enters a model's layers, and keep it for compress.",
    "compress": "Write a smaller checkpoint by truncated SVD, and the command that verifies it.",
    "heal": "Train a compressed checkpoint to answer as its teacher does.",
    "eval": "MASE and WQL on a suite of data sets, also relative to a baseline.",
    "bench": "Time and peak memory of forecasts, side by side.",
    "table2": "Compress by every method to every size, and measure what each costs.",
    "forecast": "Forecast the series of a file.",
    "synth": "Write generated series to shards for training.",
    "design": "Design a network of low rank, and the run that trains it.",
    "pretrain": "Train a model from scratch on generated series.",
    "standin": "Train a small model of any family, to measure trained weights.",
    "sweep": "Train, measure and score all points that a figure needs.",
    "report": "Draw one HTML page from the results in a folder.",
    "figures": "Draw the figures of the paper from measurements.",
    "theory": "Check the paper's theorems numerically, on instances or on a model.",
    "lab": "Experiments on input encoders, kinds of layers, tokenizers, and their ranks.",
}
"""Verb → the line that ``rankscope --help`` shows; the module ``rankscope_cli.verbs.<verb>`` holds it."""

EPILOG = "MODEL is a hub id (amazon/chronos-t5-base), a local folder, or a bundled name."


class Verb(TyperCommand):
    """Stands for a verb until it runs: the help of the app needs only its name and its line."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Import the verb and let it parse its own arguments."""
        return load_verb(str(self.name)).make_context(info_name, args, parent=parent, **extra)


class Verbs(TyperGroup):
    """The verbs in the order of `VERBS`; errors become one line and an exit code."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands.update({name: Verb(name, help=line) for name, line in VERBS.items()})

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the verbs' names, not sorted: the order tells the story."""
        return list(VERBS)

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run, and leave with the exit code in place of an exception."""
        words = extra.pop("args", args[0] if args else None)
        raise SystemExit(_run(super().main, words, extra))


HELP = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    cls=Verbs,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    epilog=EPILOG,
    context_settings=HELP,
)


def _version(wanted: bool) -> None:
    if wanted:
        from rankscope import __version__

        typer.echo(f"rankscope {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option(DEBUG, help="Show the traceback of an error.")] = False,
) -> None:
    """Measure the rank structure of time-series foundation models, compress them, prove that the forecasts held."""


def run(args: Sequence[str]) -> int:
    """Run the app on ``args`` and return its exit code."""
    try:
        get_command(app).main(args=list(args), prog_name="rankscope")
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else 0
    return 0


def load_verb(name: str) -> Any:
    """Import a verb's module and return the command that its function ``run``, or ``group`` where it has one, makes."""
    home = import_module(f"rankscope_cli.verbs.{name}")
    if hasattr(home, "group"):
        return home.group()
    single = typer.Typer(add_completion=False, rich_markup_mode="rich")
    single.command(name, help=help_text(home.run.__doc__), context_settings=HELP)(home.run)
    command: Any = get_command(single)
    return command


def help_text(doc: str) -> str:
    """Turn a docstring into help: paragraphs wrap where the terminal does, lines under ``Examples:`` stay lines.

    >>> help_text("Do it.\\n\\n    One\\n    two.\\n\\n    Examples:\\n        do this")
    'Do it.\\n\\nOne two.\\n\\n[bold]Examples[/bold]\\n\\n  do this'
    """
    text, _, examples = inspect.cleandoc(doc).partition("\n\nExamples:\n")
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    if examples:
        lines = [f"  {line.strip()}" for line in examples.splitlines()]
        paragraphs += ["[bold]Examples[/bold]", "\n".join(lines)]
    return "\n\n".join(paragraphs)


def _run(click_main: Any, args: Sequence[str] | None, extra: dict[str, Any]) -> int:
    words = None if args is None else list(args)
    extra.pop("standalone_mode", None)
    try:
        with recorded(words):
            result = click_main(args=words, standalone_mode=False, **extra)
    except (Exception, KeyboardInterrupt) as error:
        if type(error).__name__ == "Abort":  # what older Typers make of Ctrl-C
            error = KeyboardInterrupt()
        return report_error(error, debug=DEBUG in (words or ()))
    if result == INTERRUPTED:
        say("interrupted.")
    return result if isinstance(result, int) else 0
