"""Fig. 5a, b: ε-rank of every attention matrix against its layer, and the spectra of the encoder's W_Q."""

from __future__ import annotations

import argparse

from rankscope import measure_spectrum, open_checkpoint
from rankscope.plots import ranks_by_layer, save_figure, spectra


def main() -> None:
    """Parse, measure, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="bundled", help="bundled name, folder or hub id")
    parser.add_argument("--eps", type=float, default=0.1, help="threshold of the ε-rank")
    parser.add_argument("--out", default="figures/out", help="folder of the PNG and SVG files")
    given = parser.parse_args()
    report = measure_spectrum(open_checkpoint(given.model), eps=(given.eps,))
    print(*save_figure(ranks_by_layer(report), f"{given.out}/fig5a"))
    print(*save_figure(spectra(report), f"{given.out}/fig5a_spectra"))


if __name__ == "__main__":
    main()
