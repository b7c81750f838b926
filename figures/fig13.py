"""Fig. 13: all singular values of W_Q in every encoder layer, at several steps of the training."""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from rankscope.plots import save_figure, training_spectra

DEFAULT = "figures/data/spectra.parquet"


def main() -> None:
    """Parse, read, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    help_ = "checkpoint that was trained with spectra, or its spectra.parquet"
    parser.add_argument("model", nargs="?", default=DEFAULT, help=help_)
    parser.add_argument("--stack", default="encoder", help="encoder or decoder")
    parser.add_argument("--role", default="self.q", help="which matrix")
    parser.add_argument("--steps", type=int, nargs="*", help="steps to draw; four by default")
    parser.add_argument("--out", default="figures/out", help="folder of the PNG and SVG files")
    given = parser.parse_args()
    if given.model == DEFAULT and not Path(DEFAULT).exists():
        print(f"{DEFAULT} is not there: a run of `rankscope pretrain` whose config names spectra.steps writes it")
        return
    place = Path(given.model)
    frame = pd.read_parquet(place / "spectra.parquet" if place.is_dir() else place)
    steps = tuple(given.steps) if given.steps else None
    figure = training_spectra(frame, role=given.role, stack=given.stack, steps=steps)
    print(*save_figure(figure, f"{given.out}/fig13"))


if __name__ == "__main__":
    main()
