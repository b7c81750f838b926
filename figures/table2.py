"""Table 2 as a figure: what every method of compression costs, against the size that is left; both bundled models."""

from __future__ import annotations

import argparse
from pathlib import Path

from rankscope.analysis.table2 import read_table2
from rankscope.errors import RankscopeError
from rankscope.plots import save_figure, table2

DATA = Path("figures/data")


def main() -> None:
    """Parse, read, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", help="folders of `rankscope table2`, or their table2.json")
    parser.add_argument("--measure", help="relative_WQL, relative_MASE or relative_LPPL")
    parser.add_argument("--out", default="figures/out", help="folder of the PNG and SVG files")
    given = parser.parse_args()
    tables = [Path(one) for one in given.tables] or sorted(DATA.glob("table2_*.json"))
    if not tables:
        print(f"{DATA} holds no table2_MODEL.json: rankscope table2 MODEL --out DIR makes one (DIR/table2.json)")
    try:
        for table in tables:
            name = table.stem if table.stem.startswith("table2_") else f"table2_{_folder(table).name}"
            print(*save_figure(table2(read_table2(table), measure=given.measure), f"{given.out}/{name}"))
    except RankscopeError as error:
        parser.error(str(error))


def _folder(table: Path) -> Path:
    place = table.resolve()
    return place if place.is_dir() else place.parent


if __name__ == "__main__":
    main()
