"""Fig. 5a, 5b, 5c, 12, 13: weights and inputs of the layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import torch

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.errors import DataError
from rankscope.io import codec
from rankscope.measure.flow import FlowReport, measure_flow
from rankscope.measure.spectrum import SpectrumReport, measure_spectrum
from rankscope.numerics import eps_rank
from rankscope.plots import flow, histograms, ranks_by_layer, training_spectra
from rankscope.plots.histograms import HISTOGRAM_ROLES, MOST_LAYERS
from rankscope_paper.figures.recipe import (
    BOLT,
    REFERENCE,
    T5,
    TEXT_T5,
    Drawn,
    Recipe,
    Settings,
    carried,
    described,
    labels,
    listed,
    of_series,
    read_parquet,
    sigma_frame,
    text_model,
)

EPS = 0.1
SMALL = 1e-5
"""ε of the ranks under a constant signal, which are 1 or 2 at any that is larger."""
TRAINED = "bundled"
"""Bundled checkpoint that the carried spectra were recorded of, while it was trained."""
MAKE_SPECTRA = "rankscope pretrain CONFIG --out DIR"


def _ranks(settings: Settings) -> Drawn:
    (checkpoint,) = settings.checkpoints()
    report = measure_spectrum(checkpoint, eps=(EPS, 0.05, 0.01), device=settings.device, progress=settings.progress)
    queries = [row for row in report.sites if row.site.role == "self.q" and row.site.stack == "encoder"]
    if not queries:
        raise DataError(f"{checkpoint.source} has no encoder with a W_Q: nothing is drawn against layers.")
    ranks = ", ".join(str(row.eps_ranks[repr(EPS)]) for row in queries)
    idle = (
        f"Left out: {len(report.untrained)} matrices that no gradient reaches, whose ranks are those of the start. "
        if report.untrained
        else ""
    )
    caption = (
        f"ε-rank of every attention matrix against its layer, ε = {EPS:g}. W_Q of the encoder, first layer to last: "
        f"{ranks} of {min(queries[0].shape)}. {idle}Measured on {described(checkpoint)}; no random choice enters."
    )
    frame = report.to_frame()
    kept = [name for name in frame.columns if not name.startswith(("head_eps_ranks", "size_ratio"))]
    return Drawn(ranks_by_layer(report, eps=EPS), frame[kept], caption)


fig5a = Recipe(
    _ranks,
    id="5a",
    title="Rank of the attention matrices by layer, Chronos",
    shows="the rank of W_Q in Chronos' encoder is low and grows with depth",
    takes=("model",),
    models=REFERENCE[:1],
    most_models=1,
    published=(T5,),
)
fig5b = Recipe(
    _ranks,
    id="5b",
    title="Rank of the attention matrices by layer, text",
    shows="in a T5 of the same size it is high from the first layer on",
    takes=("model",),
    models=text_model,
    most_models=1,
    published=(TEXT_T5,),
)


@partial(
    Recipe,
    id="5c",
    title="Spectra of the layers' inputs, constant signal",
    shows="a constant signal enters at rank one and gains rank from layer to layer",
    takes=("model", "data", "quick", "seed"),
    models=REFERENCE[:1],
    most_models=1,
    published=(T5,),
)
def fig5c(settings: Settings) -> Drawn:
    """Draw spectra of every encoder layer's input under the constant signal."""
    if settings.data is not None:
        report = codec.read(FlowReport, settings.data, "flow.json")
        about = f"{report.model}, as saved in {settings.data.name}"
    else:
        (checkpoint,) = of_series(settings.checkpoints(), "5c")
        length = 128 if settings.quick else 512
        report = measure_flow(
            checkpoint,
            "constant",
            n=1,
            length=length,
            eps=(EPS, 0.01),
            seed=settings.seed,
            device=settings.device,
            progress=settings.progress,
        )
        about = described(checkpoint)
    rows = report.stack("encoder")
    if not rows or report.modality != "series":
        raise DataError(f"{report.model}: figure 5c needs the layers of an encoder that reads series.")
    key = next(iter(rows[0].eps_ranks))
    ranks = ", ".join(str(row.eps_ranks[key]) for row in rows)
    small = ", ".join(str(int(eps_rank(torch.from_numpy(row.sigma), SMALL))) for row in rows)
    signal = "the constant signal 0, …, 0" if report.signal == "constant" else f"the signal {report.signal}"
    caption = (
        f"Top: relative singular values of the input of every encoder layer, under {signal} ({report.n} series of "
        f"{report.length} values); bottom: its ε-rank beside those of the layer's weights, ε = {key}. Ranks of the "
        f"inputs, first layer to last: {ranks}; ε = {SMALL:g}: {small}. Measured on {about}; seed {report.seed}."
    )
    return Drawn(flow(report), _flow_frame(report), caption, seed=report.seed)


@partial(
    Recipe,
    id="12",
    title="Histograms of singular values, W_Q and W_MLP",
    shows="singular values fall faster in Chronos and Chronos-Bolt than in T5, and in W_Q than in W_MLP",
    takes=("model",),
    models=lambda: (*text_model(), *REFERENCE),
    most_models=6,
    published=(TEXT_T5, T5, BOLT),
)
def fig12(settings: Settings) -> Drawn:
    """Count the relative singular values of W_Q and W_MLP in each decade, layer by layer."""
    checkpoints = settings.checkpoints()
    names = labels([one.source for one in checkpoints])
    reports = [_weights(one, settings) for one in checkpoints]
    frames = [
        sigma_frame(
            np.asarray(row.sigma) / max(row.sigma[0], np.finfo(float).tiny),
            model=report.model,
            layer=row.site.layer,
            matrix=HISTOGRAM_ROLES[row.site.role],
        )
        for report in reports
        for row in report.sites
        if row.sigma is not None
    ]
    shares = "; ".join(
        f"{report.model} {title} {_share_above(report, role):.0%}"
        for report in reports
        for role, title in HISTOGRAM_ROLES.items()
        if any(row.site.role == role for row in report.sites)
    )
    caption = (
        "Histograms of the relative singular values σ_j/σ_1 of W_Q of self-attention and of the first matrix of the "
        f"feed-forward layer (W_MLP) in {_layers_drawn(reports)}, first layer at the top, one shade per decade. "
        f"Share of all that exceed 0.1: {shares}. Measured on {listed(checkpoints)}."
    )
    named = [replace(report, model=names[report.model]) for report in reports]
    return Drawn(histograms(named), pd.concat(frames, ignore_index=True), caption)


@partial(
    Recipe,
    id="13",
    title="Singular values of W_Q during training",
    shows="weights start small; leading directions grow out of them",
    takes=("data",),
    data=("spectra.parquet",),
    make=MAKE_SPECTRA,
)
def fig13(settings: Settings) -> Drawn:
    """Draw the singular values of W_Q in every encoder layer during training."""
    path = settings.data or carried("spectra.parquet", MAKE_SPECTRA)
    frame = read_parquet(codec.find(path, "spectra.parquet"), "the spectra.parquet of a trained model")
    source = "its spectra.parquet" if settings.data is None else path.name
    figure = training_spectra(frame)
    steps = sorted({int(str(line.get_gid()).removeprefix("step-")) for ax in figure.axes for line in ax.lines})
    chosen = frame[(frame["role"] == "self.q") & (frame["stack"] == "encoder") & frame["step"].isin(steps)]
    largest = chosen[chosen["index"] == 0].groupby("step")["sigma"].agg(["min", "max"])
    growth = ", ".join(f"{low:.2g} to {high:.2g} after step {step}" for step, low, high in largest.itertuples())
    own = f"{described(open_checkpoint(TRAINED))} while it was trained"
    about = own if settings.data is None else f"the model trained in {path}"
    caption = (
        f"Histograms of all absolute singular values of W_Q in {_some_of(chosen['layer'].nunique())}, at several steps "
        f"of the training. σ_1 over the layers: {growth}. Measured on {about}; read from {source}."
    )
    return Drawn(figure, chosen.reset_index(drop=True), caption)


def _flow_frame(report: FlowReport) -> pd.DataFrame:
    """Relative singular values of every encoder layer's input, and its ε-ranks beside those of its weights."""
    parts = [
        sigma_frame(row.relative, quantity="relative_sigma", layer=row.layer, matrix="input")
        for row in report.stack("encoder")
    ]
    inputs = pd.concat(parts, ignore_index=True).rename(columns={"relative_sigma": "value"})
    ranks = report.to_frame()
    ranks = ranks[ranks["stack"] == "encoder"].rename(columns={"eps_rank": "value"})
    ranks = ranks.assign(quantity="eps_rank")[["quantity", "layer", "matrix", "eps", "value"]]
    return pd.concat([inputs, ranks], ignore_index=True)


def _weights(checkpoint: Checkpoint, settings: Settings) -> SpectrumReport:
    selection = ("encoder", "q", "mlp")
    report = measure_spectrum(checkpoint, (EPS,), selection, device=settings.device, progress=settings.progress)
    found = tuple(row for row in report.sites if row.site.role in HISTOGRAM_ROLES)
    if not found:
        raise DataError(f"{checkpoint.source} has no encoder with a W_Q or W_MLP: nothing is drawn of it.")
    return SpectrumReport(report.model, report.family, report.eps, report.ranks_only, found)


def _layers_drawn(reports: Sequence[SpectrumReport]) -> str:
    counts = {one.model: len({row.site.layer for row in one.sites}) for one in reports}
    if max(counts.values()) <= MOST_LAYERS:
        return "every encoder layer"
    return ", ".join(f"{_some_of(count)} of {model}" for model, count in counts.items())


def _some_of(layers: int) -> str:
    return "every encoder layer" if layers <= MOST_LAYERS else f"{MOST_LAYERS} of {layers} encoder layers"


def _share_above(report: SpectrumReport, role: str) -> float:
    rows = [row for row in report.sites if row.site.role == role]
    return sum(row.eps_ranks[repr(EPS)] for row in rows) / sum(min(row.shape) for row in rows)
