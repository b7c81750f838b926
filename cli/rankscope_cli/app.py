"""Typer app with lazily imported verbs, so that ``rankscope --help`` stays fast."""

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
        "spectrum": "Compute singular values and ε-ranks of weight matrices.",
        "flow": "Compute ε-ranks of every layer's inputs and weights.",
        "embed": "Compute spectra and angles of token embeddings.",
        "families": "List supported model families, hub ids and verbs.",
    },
    "Shrink": {
        "calibrate": "Collect calibration statistics of a model's layer inputs.",
        "compress": "Compress a checkpoint to a size, a loss or a time.",
        "heal": "Recover accuracy by distillation from the original model.",
    },
    "Prove": {
        "eval": "Evaluate models on a suite (MASE, WQL) against a baseline.",
        "bench": "Benchmark inference time and peak memory.",
        "table2": "Compare compression methods across sizes of the attention.",
        "report": "Build a self-contained HTML report from results.",
    },
    "Forecast": {"forecast": "Forecast series from a file: mean and quantiles."},
    "Train": {
        "synth": "Generate sharded synthetic series for training.",
        "design": "Derive a low-rank architecture and its training config.",
        "pretrain": "Pretrain or fine-tune on synthetic series or your own.",
        "sweep": "Train, measure and score a grid of models.",
        "standin": "Train a small proxy model of a family other than Chronos on CPU.",
    },
    "Papers": {
        "figures": "Reproduce the paper's figures.",
        "theory": "Verify the paper's theorems numerically.",
        "lab": "Reproduce the companion papers' experiments.",
    },
}
"""Help panel → verb → summary; the verb lives in ``rankscope_cli.verbs.<verb>``."""
VERBS = {name: line for verbs in PANELS.values() for name, line in verbs.items()}

_EXAMPLE_WIDTH = 72
EPILOG = "MODEL is a hub id (amazon/chronos-2), a local folder or a bundled name."


class Untyped:
    """Command mixin that hides the type column of flags and arguments in the help."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the command's parameters, including the help option."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for one in params:
            if one.param_type_name == "argument" or getattr(one, "is_flag", False):
                one.display_type_rich = _no_type
        return params


def _no_type(ctx: Any) -> None:
    return None


class Command(Untyped, TyperCommand):
    """Command of an imported verb."""


class Verb(TyperCommand):
    """Verb that is imported when it is run: name, summary and help panel only."""

    def __init__(self, name: str, summary: str, panel: str | None = None, module: str | None = None) -> None:
        super().__init__(name, help=summary, rich_help_panel=panel)
        self.module = module or name

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Import the verb and delegate argument parsing to it."""
        return load_verb(self.module).make_context(info_name, args, parent=parent, **extra)


class Commands(Untyped, TyperGroup):
    """Command group of verbs in the order of their declaration."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the verbs' names in declaration order."""
        return list(self.commands)


class Verbs(Commands):
    """Top-level command group; turns errors into one line and an exit code."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for panel, verbs in PANELS.items():
            self.commands.update({name: Verb(name, line, panel) for name, line in verbs.items()})

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command and exit with its exit code; no exception escapes."""
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
    debug: Annotated[bool, typer.Option(DEBUG, help="Show the full traceback on errors.")] = False,
) -> None:
    """Rank analysis, compression and evaluation of pretrained time-series foundation models."""


def run(args: Sequence[str]) -> int:
    """Run the app on ``args`` and return its exit code."""
    try:
        get_command(app).main(args=list(args), prog_name="rankscope")
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else 0
    return 0


def load_verb(name: str) -> Any:
    """Import a verb's module and return the command built from its ``run`` function, or by ``group`` if defined."""
    home = import_module(f"rankscope_cli.verbs.{name}")
    if hasattr(home, "group"):
        return home.group()
    single = typer.Typer(add_completion=False, rich_markup_mode="rich")
    single.command(name, cls=Command, help=help_text(home.run.__doc__), context_settings=HELP)(home.run)
    command: Any = get_command(single)
    return command


def help_text(doc: str) -> str:
    """Convert a docstring to help text in Rich's markup: reflow paragraphs, keep line breaks under ``Examples:``.

    >>> help_text("Do it.\\n\\n    One\\n    two.\\n\\n    Examples:\\n        do this")
    'Do it.\\n\\nOne two.\\n\\n[bold]Examples[/bold]\\n\\n  do this'
    """
    from rich.markup import escape

    text, _, examples = escape(inspect.cleandoc(doc)).partition("\n\nExamples:\n")
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    if examples:
        lines = [f"  {_continued(line.strip())}" for line in examples.splitlines()]
        paragraphs += ["[bold]Examples[/bold]", "\n".join(lines)]
    return "\n\n".join(paragraphs)


def _continued(command: str) -> str:
    """Break a long command before an option, with a shell continuation."""
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
        if type(error).__name__ == "Abort":  # older Typer versions raise this on Ctrl-C
            error = KeyboardInterrupt()
        return report_error(error, debug=DEBUG in (words or ()))
    if result == INTERRUPTED:
        say("interrupted.")
    return result if isinstance(result, int) else 0
