"""Fig. 5a, 5b, 5c, 12, 13, 14: weights and inputs of the layers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from rankscope.checkpoints import Checkpoint
from rankscope.errors import DataError
from rankscope.io import codec
from rankscope.measure.flow import FlowReport, measure_flow
from rankscope.measure.spectrum import SpectrumReport, measure_spectrum
from rankscope.numerics import eps_rank
from rankscope.plots import flow, histograms, ranks_by_layer, training_spectra
from rankscope.plots.histograms import HISTOGRAM_ROLES
from rankscope_paper.figures import _models
from rankscope_paper.figures._record import Drawn, Settings, carried

EPS = 0.1
SMALL = 1e-5
"""ε of the ranks under a constant signal, which are 1 or 2 at any that is larger."""
TRAINED_HERE = "a Chronos-T5 of 8.4 million parameters, trained from scratch by this project on generated series"
"""The run whose spectra the package carries."""


def draw_ranks(settings: Settings) -> tuple[Drawn, ...]:
    """Fig. 5a: ε-rank of every attention matrix of a series model against its layer."""
    return _ranks(settings, _models.chronos())


def draw_text_ranks(settings: Settings) -> tuple[Drawn, ...]:
    """Fig. 5b: the same of a text model."""
    return _ranks(settings, () if settings.models else _models.text())


def draw_flow(settings: Settings) -> tuple[Drawn, ...]:
    """Fig. 5c: spectra of every encoder layer's input under the constant signal."""
    if settings.data is not None:
        report = codec.read(FlowReport, settings.data, "flow.json")
        about = f"{report.model}, as saved in {settings.data.name}"
    else:
        checkpoint = _models.opened(settings, _models.chronos())[0]
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
        about = _models.described(checkpoint)
    rows = report.stack("encoder")
    key = next(iter(rows[0].eps_ranks))
    ranks = ", ".join(str(row.eps_ranks[key]) for row in rows)
    small = ", ".join(str(int(eps_rank(torch.from_numpy(row.sigma), SMALL))) for row in rows)
    signal = "the constant signal 0, …, 0" if report.signal == "constant" else f"the signal {report.signal}"
    caption = (
        f"Top: relative singular values of the input of every encoder layer, under {signal} ({report.n} series of "
        f"{report.length} values); bottom: its ε-rank beside those of the layer's weights, ε = {key}. Ranks of the "
        f"inputs, first layer to last: {ranks}; ε = {SMALL:g}: {small}. Measured on {about}; seed {report.seed}."
    )
    return (Drawn(flow(report), flow_frame(report), caption),)


def draw_histograms(settings: Settings) -> tuple[Drawn, ...]:
    """Fig. 12: how many relative singular values of W_Q and W_MLP lie in each decade, layer by layer."""
    checkpoints = _models.opened(settings, () if settings.models else _models.text_and_both())
    reports = [_weights(checkpoint, settings) for checkpoint in checkpoints]
    frames = [_sigma_frame(report) for report in reports]
    shares = "; ".join(
        f"{report.model} {title} {_share_above(report, role):.0%}"
        for report in reports
        for role, title in HISTOGRAM_ROLES.items()
        if any(row.site.role == role for row in report.sites)
    )
    caption = (
        "Histograms of the relative singular values σ_j/σ_1 of W_Q of self-attention and of the first matrix of the "
        "feed-forward layer (W_MLP) in every encoder layer, first layer at the top, one shade per decade. Share of "
        f"all that exceed 0.1: {shares}. Measured on {_models.listed(checkpoints)}."
    )
    return (Drawn(histograms(reports), pd.concat(frames, ignore_index=True), caption),)


def draw_training(settings: Settings) -> tuple[Drawn, ...]:
    """Fig. 13: singular values of W_Q in every encoder layer during training."""
    path = settings.data or carried("spectra.parquet", "rankscope pretrain CONFIG --out DIR")
    frame, source = _spectra_table(path), "its spectra.parquet" if settings.data is None else path.name
    figure = training_spectra(frame)
    steps = sorted({int(str(line.get_gid()).removeprefix("step-")) for ax in figure.axes for line in ax.lines})
    chosen = frame[(frame["role"] == "self.q") & (frame["stack"] == "encoder") & frame["step"].isin(steps)]
    largest = chosen[chosen["index"] == 0].groupby("step")["sigma"].agg(["min", "max"])
    growth = ", ".join(f"{low:.2g} to {high:.2g} after step {step}" for step, low, high in largest.itertuples())
    about = TRAINED_HERE if settings.data is None else f"the model trained in {path}"
    caption = (
        "Histograms of all absolute singular values of W_Q in the encoder's layers, at several steps of the "
        f"training. σ_1 over the layers: {growth}. Measured on {about}; read from {source}."
    )
    return (Drawn(figure, chosen.reset_index(drop=True), caption),)


def flow_frame(report: FlowReport) -> pd.DataFrame:
    """Relative singular values of every encoder layer's input, and its ε-ranks beside those of its weights."""
    parts = [
        pd.DataFrame(
            {
                "quantity": "relative_sigma",
                "layer": row.layer,
                "matrix": "input",
                "index": np.arange(1, len(row.sigma) + 1),
                "value": row.relative,
            }
        )
        for row in report.stack("encoder")
    ]
    ranks = report.to_frame()
    ranks = ranks[ranks["stack"] == "encoder"].rename(columns={"eps_rank": "value"})
    ranks = ranks.assign(quantity="eps_rank")[["quantity", "layer", "matrix", "eps", "value"]]
    return pd.concat([*parts, ranks], ignore_index=True)


def _ranks(settings: Settings, default: Sequence[str]) -> tuple[Drawn, ...]:
    checkpoint = _models.opened(settings, default)[0]
    report = measure_spectrum(checkpoint, eps=(EPS, 0.05, 0.01), device=settings.device, progress=settings.progress)
    queries = [row for row in report.sites if row.site.role == "self.q" and row.site.stack == "encoder"]
    if not queries:
        raise DataError(f"{checkpoint.source} has no encoder with a W_Q: nothing is drawn against layers.")
    ranks = ", ".join(str(row.eps_ranks[repr(EPS)]) for row in queries)
    caption = (
        f"ε-rank of every attention matrix against its layer, ε = {EPS:g}. W_Q of the encoder, first layer to last: "
        f"{ranks} of {min(queries[0].shape)}. Measured on {_models.described(checkpoint)}; no random choice enters."
    )
    frame = report.to_frame()
    kept = [name for name in frame.columns if not name.startswith(("head_eps_ranks", "size_ratio"))]
    return (Drawn(ranks_by_layer(report, eps=EPS), frame[kept], caption),)


def _weights(checkpoint: Checkpoint, settings: Settings) -> SpectrumReport:
    selection = ("encoder", "q", "mlp")
    report = measure_spectrum(checkpoint, (EPS,), selection, device=settings.device, progress=settings.progress)
    found = tuple(row for row in report.sites if row.site.role in HISTOGRAM_ROLES)
    if not found:
        raise DataError(f"{checkpoint.source} has no encoder with a W_Q or W_MLP: nothing is drawn of it.")
    return SpectrumReport(report.model, report.family, report.eps, report.ranks_only, found)


def _sigma_frame(report: SpectrumReport) -> pd.DataFrame:
    parts = []
    for row in report.sites:
        sigma = np.asarray(row.sigma)
        parts.append(
            pd.DataFrame(
                {
                    "model": report.model,
                    "layer": row.site.layer,
                    "matrix": HISTOGRAM_ROLES[row.site.role],
                    "index": np.arange(1, len(sigma) + 1),
                    "relative_sigma": sigma / max(sigma[0], np.finfo(float).tiny),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def _share_above(report: SpectrumReport, role: str) -> float:
    rows = [row for row in report.sites if row.site.role == role]
    return sum(row.eps_ranks[repr(EPS)] for row in rows) / sum(min(row.shape) for row in rows)


def _spectra_table(path: Path) -> pd.DataFrame:
    file = codec.find(path, "spectra.parquet")
    try:
        return pd.read_parquet(file)
    except (OSError, ValueError) as error:
        raise DataError(f"{file} is no Parquet file: name the spectra.parquet of a trained model.") from error
