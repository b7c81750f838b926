"""Table 2 as a figure: what every method of compression costs, against the size that is left."""

from __future__ import annotations

import argparse
from pathlib import Path

from rankscope.analysis.table2 import read_table2
from rankscope.errors import RankscopeError
from rankscope.plots import save_figure, table2

DEFAULT = "figures/data/table2.json"


def main() -> None:
    """Parse, read, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", nargs="?", default=DEFAULT, help="folder of `rankscope table2`, or its table2.json")
    parser.add_argument("--measure", help="relative_WQL, relative_MASE or relative_LPPL")
    parser.add_argument("--out", default="figures/out", help="folder of the PNG and SVG files")
    given = parser.parse_args()
    if given.table == DEFAULT and not Path(DEFAULT).exists():
        print(f"{DEFAULT} is not there: rankscope table2 --out DIR makes it (DIR/table2.json)")
        return
    try:
        print(*save_figure(table2(read_table2(given.table), measure=given.measure), f"{given.out}/table2"))
    except RankscopeError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
