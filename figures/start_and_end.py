"""Spectra before and after training, of a model that ``rankscope pretrain`` made: figure and table.

The network as it was drawn is made again from the seed in the checkpoint's ``pretrain.json``; torch gives the same
numbers on the same kind of machine.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from pathlib import Path

from rankscope import measure_spectrum, open_checkpoint
from rankscope.measure.spectrum import SpectrumReport
from rankscope.plots import save_figure, start_and_end
from rankscope.train import config_from_dict
from rankscope.train.models import new_model

EPS = (0.1, 0.01)
PANELS = (("encoder", "self.q"), ("decoder", "cross.q"))


def measure_start(folder: Path) -> SpectrumReport:
    """Measure the network of a checkpoint folder as it was before its first step."""
    from transformers import set_seed

    config = config_from_dict(json.loads((folder / "pretrain.json").read_text(encoding="utf-8"))["config"])
    set_seed(config.seed)
    with tempfile.TemporaryDirectory() as place:
        new_model(config).save_pretrained(place)
        return measure_spectrum(open_checkpoint(place), eps=EPS)


def write_table(start: SpectrumReport, end: SpectrumReport, file: Path) -> None:
    """Write ε-ranks of every matrix before and after training as CSV."""
    with file.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle)
        names = [f"rank at ε={eps:g}, {when}" for eps in EPS for when in ("start", "end")]
        writer.writerow(["stack", "layer", "role", "rows", "columns", *names, "stable rank, start", "stable rank, end"])
        for before, after in zip(start.sites, end.sites, strict=True):
            ranks = [row.eps_ranks[f"{eps:g}"] for eps in EPS for row in (before, after)]
            stable = [f"{row.stable_rank:.2f}" for row in (before, after)]
            site = after.site
            writer.writerow([site.stack, site.layer, site.role, *after.shape, *ranks, *stable])


def main() -> None:
    """Parse, measure, draw, tabulate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="bundled-bolt", help="bundled name or folder with pretrain.json")
    parser.add_argument("--out", default="figures/out", help="folder of the PNG, SVG and CSV files")
    given = parser.parse_args()
    checkpoint = open_checkpoint(given.model)
    start, end = measure_start(Path(checkpoint.folder)), measure_spectrum(checkpoint, eps=EPS)
    for stack, role in PANELS:
        stem = f"{given.out}/start_and_end_{Path(given.model).name}_{stack}_{role.replace('.', '_')}"
        print(*save_figure(start_and_end(start, end, role=role, stack=stack), stem))
    table = Path(given.out) / f"start_and_end_{Path(given.model).name}.csv"
    write_table(start, end, table)
    print(table)


if __name__ == "__main__":
    main()
