"""Ranks before and after training, beside the paper's figures: low rank that training leaves, not the start."""

from __future__ import annotations

from functools import partial

import pandas as pd

from rankscope.errors import DataError
from rankscope.measure.spectrum import SpectrumReport, measure_spectrum
from rankscope.plots import start_and_end
from rankscope.train.initial import initial_checkpoints
from rankscope_paper.figures.recipe import REFERENCE, Drawn, Recipe, Settings, described, labels

EPS = (0.1, 0.01)


@partial(
    Recipe,
    id="start-end",
    title="Spectra of W_Q before and after training",
    shows="not in the paper: what the low rank of W_Q owes to training",
    takes=("model",),
    models=REFERENCE,
    names=lambda settings: tuple(name.lower() for name in labels(settings.models or REFERENCE).values()),
)
def study(settings: Settings) -> tuple[Drawn, ...]:
    """Draw spectra and ranks of the encoder's W_Q before and after training, a figure for every model."""
    checkpoints = settings.checkpoints()
    names = labels([one.source for one in checkpoints])
    drawn = []
    with initial_checkpoints(checkpoints) as initial:
        for checkpoint in checkpoints:
            if checkpoint.source not in initial:
                raise DataError(
                    f"{checkpoint.source}: its network before training cannot be rebuilt: name a checkpoint of "
                    "rankscope pretrain."
                )
            if not any((site.stack, site.role) == ("encoder", "self.q") for site in checkpoint.sites("all")):
                raise DataError(f"{checkpoint.source} has no encoder with a W_Q: nothing is drawn of it.")
            before, after = (
                measure_spectrum(one, eps=EPS, device=settings.device)
                for one in (initial[checkpoint.source], checkpoint)
            )
            caption = (
                "Top: relative singular values of the encoder's W_Q in every layer, trained and (grey, dashed) before "
                f"training; bottom: ε-ranks. At ε = {EPS[0]:g}, first layer to last: {_ranks(before)} before, "
                f"{_ranks(after)} after training. Measured on {described(checkpoint)} and on its network drawn again "
                "from the seed of its run."
            )
            name = names[checkpoint.source].lower()
            drawn.append(Drawn(start_and_end(before, after), _frame(before, after), caption, name=name))
    return tuple(drawn)


def _ranks(report: SpectrumReport) -> str:
    rows = [row for row in report.sites if row.site.stack == "encoder" and row.site.role == "self.q"]
    return ", ".join(str(row.eps_ranks[repr(EPS[0])]) for row in rows)


def _frame(before: SpectrumReport, after: SpectrumReport) -> pd.DataFrame:
    """ε-ranks and stable rank of every attention matrix before and after training."""
    rows = []
    for start, end in zip(before.sites, after.sites, strict=True):
        site, (height, width) = end.site, end.shape
        row = {"stack": site.stack, "layer": site.layer, "role": site.role, "rows": height, "columns": width}
        for eps in EPS:
            row |= {f"rank@{eps:g} before": start.eps_ranks[repr(eps)], f"rank@{eps:g}": end.eps_ranks[repr(eps)]}
        rows.append(row | {"stable_rank before": start.stable_rank, "stable_rank": end.stable_rank})
    return pd.DataFrame(rows)
