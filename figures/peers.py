"""WQL and MASE of the trained models against the time of a forecast, stock and fast, beside local models."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rankscope.plots import pareto_of_points, save_figure
from rankscope.plots.bench import CostPoint

RESULTS = Path("benchmarks/results")


def main() -> None:
    """Parse, read, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("result", nargs="?", help="of benchmarks/peers.py; the newest by default")
    parser.add_argument("--out", default="figures/out", help="folder of the PNG and SVG files")
    given = parser.parse_args()
    found = [Path(given.result)] if given.result else sorted(RESULTS.glob("peers-*.json"))
    if not found:
        parser.error(f"{RESULTS} holds no peers-DATE.json: benchmarks/peers.py makes one")
    result = json.loads(found[-1].read_text(encoding="utf-8"))
    points = [
        CostPoint(
            row["label"].replace(":", " "),
            *(row[key] / 1000 for key in ("milliseconds_per_series", "least", "most")),
            row["WQL"],
            row["MASE"],
            ":" not in row["label"],
        )
        for row in result["rows"]
    ]
    print(*save_figure(pareto_of_points(points, relative_to=result["reference"]), f"{given.out}/peers"))


if __name__ == "__main__":
    main()
