"""Fig. 4a: mean ε-rank of W_Q against the width, over contours of rank/d."""

from __future__ import annotations

import argparse
from pathlib import Path

from rankscope.analysis.sweep import read_sweep_report
from rankscope.plots import ranks_by_width, save_figure

DEFAULT = "figures/data/width.json"


def main() -> None:
    """Parse, read, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "sweep", nargs="?", default=DEFAULT, help="folder of `rankscope sweep width`, or its sweep.json"
    )
    parser.add_argument("--out", default="figures/out", help="folder of the PNG and SVG files")
    given = parser.parse_args()
    if given.sweep == DEFAULT and not Path(DEFAULT).exists():
        print(f"{DEFAULT} is not there: rankscope sweep width --out DIR makes it (DIR/sweep.json)")
        return
    report = read_sweep_report(given.sweep)
    print(*save_figure(ranks_by_width(report), f"{given.out}/fig4a"))


if __name__ == "__main__":
    main()
