"""The Typer app: its verbs, each imported only when it runs, so that ``rankscope --help`` answers at once."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from rankscope_cli.exits import DEBUG, INTERRUPTED, report_error, say
from rankscope_cli.output import recorded

PANELS = {
    "Look": {
        "spectrum": "Compute singular values and ε-ranks of every weight matrix.",
        "flow": "Compute ε-ranks of every layer's inputs, beside its weights'.",
        "embed": "Compute spectra and angles of embeddings over a corpus.",
        "families": "List model families, where to get them, and what they can do.",
    },
    "Shrink": {
        "calibrate": "Collect calibration statistics of a model's layer inputs.",
        "compress": "Write a smaller checkpoint: low rank, narrower heads, int8.",
        "heal": "Distil the original model into its compressed checkpoint.",
    },
    "Prove": {
        "eval": "Score forecasts on a suite (MASE, WQL), beside a baseline's.",
        "bench": "Time forecasts of several models in turns, with peak memory.",
        "table2": "Measure what every method costs at every size.",
        "report": "Write one HTML page from the results in a folder.",
    },
    "Forecast": {"forecast": "Forecast the series of a file: mean and quantiles."},
    "Train": {
        "synth": "Generate series into shards for training.",
        "design": "Derive a low-rank network and its training run from a model.",
        "pretrain": "Train a model on generated series or your own.",
        "sweep": "Train, measure and score every point of a sweep.",
        "standin": "Train a small proxy model of any family on the CPU.",
    },
    "Papers": {
        "figures": "Draw the paper's figures from measurements.",
        "theory": "Check the paper's theorems numerically.",
        "lab": "Run the companion papers' experiments.",
    },
}
"""Panel of the help → verb → its summary; the module ``rankscope_cli.verbs.<verb>`` holds the verb."""
VERBS = {name: line for verbs in PANELS.values() for name, line in verbs.items()}

_EXAMPLE_WIDTH = 72
EPILOG = "MODEL is a hub id (amazon/chronos-2), a local folder, or a bundled name."


class Untyped:
    """Mixin of commands: help shows no type beside flags and arguments, whose names say it."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Parameters of the command, the help option among them."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for one in params:
            if one.param_type_name == "argument" or getattr(one, "is_flag", False):
                one.display_type_rich = _no_type
        return params


def _no_type(ctx: Any) -> None:
    return None


class Command(Untyped, TyperCommand):
    """A verb that has been imported."""


class Verb(TyperCommand):
    """Stands for a verb until it runs: the help of the app needs only its name, its summary and its panel."""

    def __init__(self, name: str, summary: str, panel: str | None = None, module: str | None = None) -> None:
        super().__init__(name, help=summary, rich_help_panel=panel)
        self.module = module or name

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Import the verb and let it parse its own arguments."""
        return load_verb(self.module).make_context(info_name, args, parent=parent, **extra)


class Verbs(Untyped, TyperGroup):
    """The verbs, panel by panel; errors become one line and an exit code."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for panel, verbs in PANELS.items():
            self.commands.update({name: Verb(name, line, panel) for name, line in verbs.items()})

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the verbs' names, not sorted: the order tells the story."""
        return list(self.commands)

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
    """Measure ranks of time-series foundation models, compress them, and measure what that cost."""


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
    single.command(name, cls=Command, help=help_text(home.run.__doc__), context_settings=HELP)(home.run)
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
        lines = [f"  {_continued(line.strip())}" for line in examples.splitlines()]
        paragraphs += ["[bold]Examples[/bold]", "\n".join(lines)]
    return "\n\n".join(paragraphs)


def _continued(command: str) -> str:
    """Break a command that is wider than a terminal before an option, as a shell reads it."""
    lines, *options = re.split(r" (?=-)", command)
    for option in options:
        fits = len(lines) - lines.rfind("\n") + len(option) < _EXAMPLE_WIDTH
        lines += f" {option}" if fits else f" \\\n      {option}"
    return lines


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
