"""Fig. 2b, c: a vocabulary on its two leading singular vectors, coloured by token id; patches by their mean."""

from __future__ import annotations

import argparse

from rankscope import measure_embedding, open_checkpoint
from rankscope.plots import embedding_projection, save_figure


def main() -> None:
    """Parse, measure, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    help_ = "bundled names, folders or hub ids"
    parser.add_argument("models", nargs="*", default=["bundled", "bundled-bolt"], help=help_)
    parser.add_argument("--out", default="figures/out", help="folder of the PNG and SVG files")
    given = parser.parse_args()
    report = measure_embedding([open_checkpoint(model) for model in given.models])
    for matrix in dict.fromkeys(row.matrix for row in report.rows):
        figure = embedding_projection(report, matrix=matrix)
        print(*save_figure(figure, f"{given.out}/fig2bc_{matrix}"))


if __name__ == "__main__":
    main()
