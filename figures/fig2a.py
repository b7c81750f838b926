"""Fig. 2a: relative singular values of embedding matrices over a corpus of sinusoids, and of vocabularies."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rankscope import measure_embedding, open_checkpoint
from rankscope.analysis.embedding import embedding_from_json
from rankscope.plots import embedding_spectra, save_figure


def main() -> None:
    """Parse, measure, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    help_ = "models, or one .json saved by `rankscope embed --json`"
    parser.add_argument("models", nargs="*", default=["bundled", "bundled-bolt"], help=help_)
    parser.add_argument("--signal", default="sine", help="constant, sine, exponential or noise")
    parser.add_argument("--out", default="figures/out", help="folder of the PNG and SVG files")
    given = parser.parse_args()
    if given.models[0].endswith(".json"):
        report = embedding_from_json(json.loads(Path(given.models[0]).read_text()))
    else:
        report = measure_embedding([open_checkpoint(model) for model in given.models], given.signal)
    print(*save_figure(embedding_spectra(report), f"{given.out}/fig2a"))


if __name__ == "__main__":
    main()
