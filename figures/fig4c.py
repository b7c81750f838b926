"""Fig. 4c: mean ε-rank of W_Q against the algebraic rank of a fixed Chebyshev vocabulary."""

from __future__ import annotations

import argparse
from pathlib import Path

from rankscope.analysis.sweep import read_sweep_report
from rankscope.plots import ranks_by_vocabulary, save_figure

DEFAULT = "figures/data/chebyshev.json"


def main() -> None:
    """Parse, read, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "sweep", nargs="?", default=DEFAULT, help="folder of `rankscope sweep chebyshev`, or its sweep.json"
    )
    parser.add_argument("--out", default="figures/out", help="folder of the PNG and SVG files")
    given = parser.parse_args()
    if given.sweep == DEFAULT and not Path(DEFAULT).exists():
        print(f"{DEFAULT} is not there: rankscope sweep chebyshev --out DIR makes it (DIR/sweep.json)")
        return
    report = read_sweep_report(given.sweep)
    print(*save_figure(ranks_by_vocabulary(report), f"{given.out}/fig4c"))


if __name__ == "__main__":
    main()
