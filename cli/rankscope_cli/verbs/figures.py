"""``rankscope figures``: reproduce the paper's figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from rankscope.choices import LARGEST_SEED
from rankscope.errors import OptionError, RankscopeError
from rankscope_cli import options as opt
from rankscope_cli.exits import BAD_INPUT, say
from rankscope_cli.output import Output
from rankscope_cli.own_series import refuse
from rankscope_cli.progress import progress_bar
from rankscope_cli.tables import add_columns, plain_table, print_table

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope_paper.figures import FigureState, Recipe, Settings


OUT = "rankscope-figures"
_SOURCE = "Source"


def run(
    ids: Annotated[
        list[str] | None,
        opt.argument("ID", "1, 2a … 16, table2, lab-ranks or start-end; without one, all are listed."),
    ] = None,
    *,
    list_: Annotated[bool, opt.switch("--list", "List the figures and their status.")] = False,
    all_: Annotated[bool, opt.switch("--all", "Draw every figure whose models and data are available.")] = False,
    model: Annotated[
        list[str] | None,
        opt.value(
            "--model",
            "MODEL",
            "Hub id, folder or bundled name to use instead of the figure's default; repeatable.",
            _SOURCE,
            "-m",
        ),
    ] = None,
    data: Annotated[
        str | None, opt.value("--data", "FILE|DIR", "Saved result to use instead of the figure's default.", _SOURCE)
    ] = None,
    quick: Annotated[bool, opt.switch("--quick", "Use a smaller corpus or experiment.", _SOURCE)] = False,
    rerun: Annotated[
        bool, opt.switch("--rerun", "Recompute figures 9, 10 and 11 instead of reading saved results.", _SOURCE)
    ] = False,
    out: Annotated[str, opt.out_folder("Output folder (PNG, SVG, CSV and caption files).")] = OUT,
    force: Annotated[bool, opt.switch("--force", "Overwrite existing files in --out.", opt.OUTPUT)] = False,
    json: opt.Json = False,
    device: opt.Device = "auto",
    seed: Annotated[
        int | None,
        opt.value("--seed", "N", "Random seed (default: 0).", opt.RUNTIME, min=0, max=LARGEST_SEED),
    ] = None,
    debug: opt.Debug = False,
) -> None:
    """Reproduce the paper's figures.

    Each figure is saved as PNG and SVG, with its data as CSV and a caption that names the measurement and the
    checkpoint. Figures of sweeps and training runs are drawn from saved results; --data selects your own.

    Examples:
        rankscope figures 2a 5a --out figures/
        rankscope figures 5b --model google-t5/t5-base
        rankscope figures 4a --data width/
        rankscope figures --all --out figures/
    """
    from rankscope.engine.device import resolve_device
    from rankscope_paper.figures import FIGURES, Settings, check_options, choose, state

    with Output(json) as output:
        if list_ or not (ids or all_):
            if ids or all_:
                raise OptionError("--list takes no figure numbers and no --all.")
            source = {"model": model, "data": data, "quick": quick or None, "rerun": rerun or None}
            place = {"out": None if out == OUT else out, "force": force or None}
            refuse({**source, **place, "seed": seed}, "a figure to draw: its number, or --all")
            listed = _List(tuple(state(recipe) for recipe in FIGURES.values()))
            output.deliver(listed, listed.show)
            return
        if ids and all_:
            raise OptionError("--all draws every figure; leave out the numbers.")
        chosen = tuple(FIGURES.values()) if all_ else choose(ids or ())
        file, where = None if data is None else Path(data), resolve_device(device)
        asked = Settings(tuple(model or ()), file, quick, rerun, seed or 0, where)
        given = {"model": bool(model), "data": file is not None, "quick": quick, "rerun": rerun}
        check_options(chosen, {**given, "seed": seed is not None}, asked)
        report = _draw(chosen, asked, Path(out), force, keep_going=all_)
        output.deliver(report, report.show)
        output.wrote([Path(file) for one in report.figures for file in one["files"]])
    for line in report.failed:
        say(line)
    if report.failed:
        raise typer.Exit(BAD_INPUT)


@dataclass(frozen=True)
class _List:
    """List of all figures with their status."""

    states: tuple[FigureState, ...]

    SCHEMA: ClassVar = "rankscope/figures@1"
    KEYS: ClassVar = ("figures=states",)

    def show(self, console: Console) -> None:
        """Print the table."""
        show_figures(self.states, console)


@dataclass(frozen=True)
class _Report:
    """Drawn figures, and one line per failure."""

    figures: tuple[dict[str, Any], ...]
    failed: tuple[str, ...]

    SCHEMA: ClassVar = "rankscope/figures@1"

    def show(self, console: Console) -> None:
        """Print the captions."""
        for one in self.figures:
            console.print(one["caption"], soft_wrap=not console.is_terminal)


def _draw(
    chosen: tuple[Recipe, ...],
    asked: Settings,
    folder: Path,
    force: bool,
    *,
    keep_going: bool,
) -> _Report:
    """Draw and save figures; with ``keep_going``, report failures instead of raising.

    Raises:
        RankscopeError: a figure cannot be drawn, or an output file exists.
    """
    from rankscope_paper.figures import caption_head, draw, refuse_existing_files, write_drawn

    if asked.data is not None and len(chosen) > 1:
        raise OptionError("--data applies to a single figure; give one figure number.")
    for recipe in chosen:
        refuse_existing_files(recipe, asked, folder, force)
    figures: list[dict[str, Any]] = []
    failed: list[str] = []
    with progress_bar("drawing") as progress:
        for recipe in chosen:
            settings = replace(
                asked,
                models=asked.models if "model" in recipe.takes else (),
                quick=asked.quick and recipe.heeds("quick", asked),
                rerun=asked.rerun and recipe.heeds("rerun", asked),
                seed=asked.seed if recipe.heeds("seed", asked) else 0,
                progress=progress,
            )
            try:
                for drawn in draw(recipe, settings):
                    files = write_drawn(recipe, drawn, folder, force=force)
                    caption = f"{caption_head(recipe)} {drawn.caption}"
                    figures.append(
                        {"id": recipe.id, "caption": caption, "seed": drawn.seed, "files": [str(f) for f in files]}
                    )
            except RankscopeError as error:
                if not keep_going:
                    raise
                failed.append(f"figure {recipe.id} failed: {error}")
    return _Report(tuple(figures), tuple(failed))


def show_figures(states: Sequence[FigureState], console: Console) -> None:
    """Print one row per figure (number, title, source, status), then what is missing."""
    table = plain_table(caption="Draw with: rankscope figures ID… --out DIR, or --all for those that are ready.")
    add_columns(table, ["figure", "title", "drawn from", "ready"], left=4)
    for one in states:
        table.add_row(one.recipe.id, one.recipe.title, _drawn_from(one), "no" if one.missing else "yes")
    print_table(table, console)
    for one in states:
        if one.missing:
            console.print(f"{one.recipe.id}: {one.missing}")


def _drawn_from(one: FigureState) -> str:
    if one.recipe.source == "nothing":
        return "its formula"
    if one.recipe.source == "saved":
        return "saved result"
    count = len([name for name in one.uses if name not in one.recipe.data])
    return f"{count} model{'s' if count != 1 else ''}" if count else "models"
