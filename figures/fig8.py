"""Fig. 3b, 8: angles between embedded tokens of sinusoids and of white noise, beside those of random vectors."""

from __future__ import annotations

import argparse

import torch

from rankscope import measure_embedding, open_checkpoint
from rankscope.numerics import angle_matrix
from rankscope.plots import angle_maps, save_figure
from rankscope.plots.labels import short_names


def main() -> None:
    """Parse, measure, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    help_ = "bundled names, folders or hub ids"
    parser.add_argument("models", nargs="*", default=["bundled", "bundled-bolt"], help=help_)
    parser.add_argument("--items", type=int, default=128, help="tokens per map")
    parser.add_argument("--out", default="figures/out", help="folder of the PNG and SVG files")
    given = parser.parse_args()
    checkpoints = [open_checkpoint(model) for model in given.models]
    rows = [
        (signal, row)
        for signal in ("sine", "noise")
        for row in measure_embedding(checkpoints, signal, angle_items=given.items).rows
        if row.matrix == "corpus"
    ]
    maps = {}
    for name, model in zip(short_names(given.models), given.models, strict=True):
        for signal, row in rows:
            if row.model == model:
                maps[f"{name}: {signal}"] = row.angles
    random = torch.Generator().manual_seed(0)
    for width in (16, rows[0][1].d_model):
        maps[f"random, d = {width}"] = angle_matrix(torch.randn(given.items, width, generator=random)).numpy()
    print(*save_figure(angle_maps(maps), f"{given.out}/fig8"))


if __name__ == "__main__":
    main()
