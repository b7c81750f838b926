"""Fig. 3a: spectra of Chronos-Bolt's embedded sinusoids, one line per patch size."""

from __future__ import annotations

import argparse
from pathlib import Path

from rankscope.analysis.sweep import read_sweep_report
from rankscope.plots import save_figure, spectra_by_patch

DEFAULT = "figures/data/patch.json"


def main() -> None:
    """Parse, read, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "sweep", nargs="?", default=DEFAULT, help="folder of `rankscope sweep patch`, or its sweep.json"
    )
    parser.add_argument("--out", default="figures/out", help="folder of the PNG and SVG files")
    given = parser.parse_args()
    if given.sweep == DEFAULT and not Path(DEFAULT).exists():
        print(f"{DEFAULT} is not there: rankscope sweep patch --out DIR makes it (DIR/sweep.json)")
        return
    report = read_sweep_report(given.sweep)
    print(*save_figure(spectra_by_patch(report), f"{given.out}/fig3a"))


if __name__ == "__main__":
    main()
