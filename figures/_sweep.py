"""What the recipes of sweeps share: read the report that one verb wrote, draw it, save the figures."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from rankscope.analysis.sweep import SweepReport, read_sweep_report
from rankscope.errors import RankscopeError
from rankscope.plots import save_figure


def draw_sweep(about: str, sweep: str, **figures: Callable[[SweepReport], Figure]) -> None:
    """Run a recipe from the command line.

    Without an argument it draws ``figures/data/{sweep}.json``, and says what is missing where it cannot.

    Args:
        about: first line of the recipe's help.
        sweep: name of the sweep, as ``rankscope sweep`` knows it.
        figures: how to draw each file, by its name without ending.
    """
    default = f"figures/data/{sweep}.json"
    parser = argparse.ArgumentParser(description=about)
    help_ = f"folder of `rankscope sweep {sweep}`, or its sweep.json"
    parser.add_argument("sweep", nargs="?", default=default, help=help_)
    parser.add_argument("--out", default="figures/out", help="folder of the PNG and SVG files")
    given = parser.parse_args()
    if given.sweep == default and not Path(default).exists():
        print(f"{default} is not there: rankscope sweep {sweep} --out DIR makes it (DIR/sweep.json)")
        return
    try:
        report = read_sweep_report(given.sweep)
        for name, draw in figures.items():
            print(*save_figure(draw(report), f"{given.out}/{name}"))
    except RankscopeError as error:
        if given.sweep != default:
            parser.error(str(error))
        print(f"{default} is not drawn: {error}")
