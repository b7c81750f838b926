"""Fig. 6: accuracy against the time of the forecasts, and against the size of the attention, by design."""

from __future__ import annotations

import argparse
from pathlib import Path

from rankscope.analysis.sweep import read_sweep_report
from rankscope.plots import pareto, save_figure

DEFAULT = "figures/data/design.json"


def main() -> None:
    """Parse, read, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "sweep", nargs="?", default=DEFAULT, help="folder of `rankscope sweep design`, or its sweep.json"
    )
    parser.add_argument("--out", default="figures/out", help="folder of the PNG and SVG files")
    given = parser.parse_args()
    if given.sweep == DEFAULT and not Path(DEFAULT).exists():
        print(f"{DEFAULT} is not there: rankscope sweep design --out DIR makes it (DIR/sweep.json)")
        return
    report = read_sweep_report(given.sweep)
    print(*save_figure(pareto(report), f"{given.out}/fig6"))
    print(*save_figure(pareto(report, cost="attention_parameters"), f"{given.out}/fig6_size"))


if __name__ == "__main__":
    main()
