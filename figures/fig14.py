"""Fig. 14, 16 right: angles between all rows of W_Q in one layer; rows of one head stand together."""

from __future__ import annotations

import argparse
from pathlib import Path

from rankscope import open_checkpoint
from rankscope.analysis.sweep import read_sweep_report
from rankscope.numerics import row_angles
from rankscope.plots import angle_maps, save_figure


def main() -> None:
    """Parse, measure, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    help_ = "models, or the folder of `rankscope sweep heads`"
    parser.add_argument("models", nargs="*", default=["bundled"], help=help_)
    parser.add_argument("--layer", type=int, default=0, help="encoder layer")
    parser.add_argument("--out", default="figures/out", help="folder of the PNG and SVG files")
    given = parser.parse_args()
    maps = {}
    for model in given.models:
        folder = Path(model)
        swept = (folder / "sweep.json").exists()
        sources = [str(folder / row.folder) for row in read_sweep_report(folder).done] if swept else [model]
        for checkpoint in map(open_checkpoint, sources):
            site = next(s for s in checkpoint.sites(("q", "encoder")) if s.layer == given.layer)
            angles = row_angles(checkpoint.tensor(site.name))
            name = f"{checkpoint.source.rsplit('/', 1)[-1]}, {site.heads} heads"
            maps[name] = angles.numpy()
    print(*save_figure(angle_maps(maps, axis="row of $W_Q$"), f"{given.out}/fig14"))


if __name__ == "__main__":
    main()
