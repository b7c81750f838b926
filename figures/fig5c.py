"""Fig. 5c: spectra of every encoder layer's input under the constant signal, above the ε-ranks beside the weights'."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rankscope import measure_flow, open_checkpoint
from rankscope.analysis.flow import flow_from_json
from rankscope.plots import flow, save_figure


def main() -> None:
    """Parse, measure, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="bundled", help="model, or .json saved by `rankscope flow --json`")
    parser.add_argument("--signal", default="constant", help="constant, sine, exponential or noise")
    parser.add_argument("--out", default="figures/out", help="folder of the PNG and SVG files")
    given = parser.parse_args()
    if given.model.endswith(".json"):
        report = flow_from_json(json.loads(Path(given.model).read_text()))
    else:
        n = 1 if given.signal == "constant" else 64  # constant series are all the same
        report = measure_flow(open_checkpoint(given.model), given.signal, n=n)
    print(*save_figure(flow(report), f"{given.out}/fig5c"))


if __name__ == "__main__":
    main()
