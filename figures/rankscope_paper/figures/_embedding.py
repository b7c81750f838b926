"""Fig. 2a, 2b, 2c, 3b: embedding matrices measured on checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from rankscope.checkpoints import Checkpoint
from rankscope.errors import DataError
from rankscope.io import codec
from rankscope.measure.embedding import EmbeddingReport, measure_embedding
from rankscope.numerics import angle_matrix
from rankscope.plots import angle_maps, embedding_projection, embedding_spectra
from rankscope_paper.figures import _models
from rankscope_paper.figures._record import Drawn, Settings

SIGNALS = {"sine": "sinusoids", "noise": "white noise"}
"""What the angles of Fig. 3b are between."""
CORPUS = "mixed"
"""Corpus of spectra and projections."""
NAMES = {**SIGNALS, "mixed": "sinusoids, exponentials and white noise"}
SERIES, LENGTH = 64, 512
FEW_SERIES, SHORT = 8, 256
"""Of a quick corpus."""
ITEMS = 128
"""Tokens of an angle map."""


def draw_spectra(settings: Settings) -> tuple[Drawn, ...]:
    """Fig. 2a: relative singular values of embedding matrices across modalities."""
    if settings.data is not None:
        report = codec.read(EmbeddingReport, settings.data, "embed.json")
        about = f"{', '.join(dict.fromkeys(row.model for row in report.rows))}, as saved in {settings.data.name}"
    else:
        report, about = _of_models(settings, _models.at_hand())
    report = inputs_of(report)
    ranks = (f"{row.model} {_rank(row.eps_ranks, 0.1)} of {min(row.tokens, row.d_model)}" for row in report.rows)
    caption = (
        f"Relative singular values σ_j/σ_1 of embedded inputs: of series models {corpus_of(report)}; of image models "
        f"generated images; of text models the vocabulary. ε-ranks at ε = 0.1: {'; '.join(ranks)}. Measured on {about}."
    )
    return (Drawn(embedding_spectra(report), spectra_frame(report), caption),)


def draw_corpus_projection(settings: Settings) -> tuple[Drawn, ...]:
    """Fig. 2b: what a series model's vocabulary looks like from its two leading singular vectors."""
    return _projection(settings, _models.chronos(), "the quantised values")


def draw_text_projection(settings: Settings) -> tuple[Drawn, ...]:
    """Fig. 2c: the same of a text model."""
    return _projection(settings, _models.text() if not settings.models else (), "the tokens of text")


def draw_angles(settings: Settings) -> tuple[Drawn, ...]:
    """Fig. 3b: angles between embedded patches of sinusoids and of noise, and between random vectors."""
    checkpoint = _models.opened(settings, _models.bolt())[0]
    maps: dict[str, np.ndarray] = {}
    width = 0
    for signal, title in SIGNALS.items():
        report = measured([checkpoint], signal, settings)
        row = next((one for one in report.rows if one.matrix == "corpus"), None)
        if row is None:
            raise DataError(f"{checkpoint.source} embeds no series: figure 3b compares embedded signals.")
        maps[title], width, patch = row.angles, row.d_model, row.patch_size
    items = len(next(iter(maps.values())))
    drawn = torch.Generator().manual_seed(settings.seed)
    for dimension in dict.fromkeys((patch, width)):
        maps[f"random, d = {dimension}"] = angle_matrix(torch.randn(items, dimension, generator=drawn)).numpy()
    means = "; ".join(f"{title} {np.rad2deg(mean_angle(angles)):.0f}°" for title, angles in maps.items())
    caption = (
        f"Angles between the embedded vectors of the first {items} patches of {report.n} series of {report.length} "
        "values of each signal, and between as many random Gaussian vectors in the space of a patch and in the "
        f"hidden space. Mean angle: {means}. Measured on {_models.described(checkpoint)}; patches of {patch} values, "
        f"d = {width}, seed {settings.seed}."
    )
    return (Drawn(angle_maps(maps, axis="patch"), angle_frame(maps), caption),)


def spectra_frame(report: EmbeddingReport) -> pd.DataFrame:
    """Every singular value of every embedding matrix of a report."""
    parts = [
        pd.DataFrame(
            {
                "model": row.model,
                "family": row.family,
                "strategy": row.strategy,
                "matrix": row.matrix,
                "tokens": row.tokens,
                "d_model": row.d_model,
                "index": np.arange(1, len(row.sigma) + 1),
                "relative_sigma": row.relative,
            }
        )
        for row in report.rows
    ]
    return pd.concat(parts, ignore_index=True)


def inputs_of(report: EmbeddingReport) -> EmbeddingReport:
    """The report with one matrix per model: the embedded corpus, or the vocabulary of a model that embeds none."""
    corpora = {row.model for row in report.rows if row.matrix == "corpus"}
    return replace(report, rows=tuple(row for row in report.rows if row.matrix == "corpus" or row.model not in corpora))


def angle_frame(maps: Mapping[str, Float[np.ndarray, "_ _"]], name: str = "map") -> pd.DataFrame:
    """Angles above the diagonal in degrees, to a tenth; maps are symmetric and zero on the diagonal."""
    parts = []
    for title, angles in maps.items():
        row, column = np.triu_indices(len(angles), 1)
        degrees = np.rad2deg(angles[row, column]).round(1)
        parts.append(pd.DataFrame({name: title, "row": row, "column": column, "degrees": degrees}))
    return pd.concat(parts, ignore_index=True)


def mean_angle(angles: Float[np.ndarray, "items items"]) -> float:
    """Mean of the angles above the diagonal, in radians; angles of zero vectors are left out."""
    return float(np.nanmean(angles[np.triu_indices(len(angles), 1)]))


def _projection(settings: Settings, default: tuple[str, ...], points: str) -> tuple[Drawn, ...]:
    if settings.data is not None:
        report = codec.read(EmbeddingReport, settings.data, "embed.json")
        about = f"{', '.join(dict.fromkeys(row.model for row in report.rows))}, as saved in {settings.data.name}"
    else:
        report, about = _of_models(settings, default)
    matrix = "vocabulary" if any(row.matrix == "vocabulary" for row in report.rows) else "corpus"
    rows = [row for row in report.rows if row.matrix == matrix]
    shares = "; ".join(f"{row.model} {float((row.sigma[:2] ** 2).sum() / (row.sigma**2).sum()):.0%}" for row in rows)
    shown = points if matrix == "vocabulary" else f"the tokens of {corpus_of(report)}"
    many = f"; {len(rows[0].projection.points)} points, drawn at random" if rows[0].tokens > 2048 else ""
    caption = (
        f"The {matrix} ({shown}) on its two leading singular vectors, coloured by "
        f"{' or '.join(dict.fromkeys(row.projection.colour_name for row in rows))}{many}. The two directions carry "
        f"of the squared norm: {shares}. Measured on {about}; seed {report.seed}."
    )
    parts = [
        pd.DataFrame(
            {
                "model": row.model,
                "matrix": row.matrix,
                row.projection.colour_name.replace(" ", "_"): row.projection.colour,
                "along_v1": row.projection.points[:, 0],
                "along_v2": row.projection.points[:, 1],
            }
        )
        for row in rows
    ]
    return (Drawn(embedding_projection(report, matrix=matrix), pd.concat(parts, ignore_index=True), caption),)


def _of_models(settings: Settings, default: tuple[str, ...]) -> tuple[EmbeddingReport, str]:
    checkpoints = _models.opened(settings, default)
    return measured(checkpoints, CORPUS, settings), _models.listed(checkpoints)


def measured(
    checkpoints: Sequence[Checkpoint], signal: str, settings: Settings, angle_items: int = ITEMS
) -> EmbeddingReport:
    """Measure embedding matrices over the corpus that the settings ask for."""
    n, length = (FEW_SERIES, SHORT) if settings.quick else (SERIES, LENGTH)
    return measure_embedding(
        checkpoints,
        signal,
        n=n,
        length=length,
        seed=settings.seed,
        angle_items=angle_items,
        device=settings.device,
        progress=settings.progress,
    )


def corpus_of(report: EmbeddingReport) -> str:
    """Name a corpus in a caption."""
    kind = NAMES.get(report.signal, f"the signal {report.signal}")
    return f"{kind} ({report.n} series of {report.length} values, seed {report.seed})"


def _rank(ranks: Mapping[str, int], eps: float) -> str:
    found = next((rank for key, rank in ranks.items() if float(key) == eps), None)
    return "not measured" if found is None else str(found)
