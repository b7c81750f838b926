"""Fig. 16: ε-rank of W_Q, and of one head's rows of it, against the number of heads."""

from __future__ import annotations

import argparse
from pathlib import Path

from rankscope.analysis.sweep import read_sweep_report
from rankscope.plots import ranks_by_heads, save_figure

DEFAULT = "figures/data/heads.json"


def main() -> None:
    """Parse, read, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "sweep", nargs="?", default=DEFAULT, help="folder of `rankscope sweep heads`, or its sweep.json"
    )
    parser.add_argument("--out", default="figures/out", help="folder of the PNG and SVG files")
    given = parser.parse_args()
    if given.sweep == DEFAULT and not Path(DEFAULT).exists():
        print(f"{DEFAULT} is not there: rankscope sweep heads --out DIR makes it (DIR/sweep.json)")
        return
    report = read_sweep_report(given.sweep)
    print(*save_figure(ranks_by_heads(report), f"{given.out}/fig16"))


if __name__ == "__main__":
    main()
