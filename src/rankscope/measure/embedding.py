"""Embedding matrices over a corpus and of vocabularies: spectra, angles, two-vector projections (Q3, Q4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.engine import Progress, silent
from rankscope.engine.device import resolve_device
from rankscope.engine.randomness import seeded
from rankscope.errors import DataError, OptionError, check_count
from rankscope.measure.corpora import Corpora, Embedded, check_modalities, embedded, reads_token_ids
from rankscope.measure.hooks import Triangle
from rankscope.measure.spectrum import RowSpectrum, ranks_by_eps
from rankscope.numerics import angle_matrix, effective_rank, stable_rank, validate_levels
from rankscope.series import Columns

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Projection:
    """Rows of an embedding matrix on its two leading right singular vectors (Fig. 2b, c).

    Attributes:
        points: coordinates ``X v_1`` and ``X v_2`` of each point.
        colour: one number per point.
        colour_name: its meaning: "token id" or "patch mean".
    """

    points: Float[np.ndarray, "points 2"] = field(compare=False, repr=False)
    colour: Float[np.ndarray, " points"] = field(compare=False, repr=False)
    colour_name: str


@dataclass(frozen=True)
class EmbeddingSpectrum(RowSpectrum):
    """One embedding matrix: the tokens of a corpus, or a vocabulary, as rows.

    Attributes:
        model: the checkpoint.
        family: its family.
        strategy: ``quantisation``, ``continuous`` or ``text``.
        patch_size: observations per token.
        matrix: ``corpus`` or ``vocabulary``.
        stable_rank: Σσ²/σ_1².
        angles: angles in radians between the first rows, in corpus (or token) order; of wavelet coefficients between
            rows spread over those of the first series.
        projection: a sample of rows on the two leading singular vectors.
        modality: what the model reads: ``series``, ``text`` or ``image``.
        source: the embedded corpus in words; empty for a vocabulary.
    """

    model: str
    family: str
    strategy: str
    patch_size: int
    matrix: str
    stable_rank: float
    angles: Float[np.ndarray, "items items"] = field(compare=False, repr=False)
    projection: Projection
    modality: str = "series"
    source: str = ""

    KEYS: ClassVar = (
        *("model", "family", "modality", "strategy", "patch_size", "matrix", "source", "tokens", "d_model"),
        *("sigma_max", "sigma", "eps_ranks", "relative_eps_ranks=relative_ranks", "effective_rank", "stable_rank"),
        *("angles", "projection"),
    )

    @property
    def largest_rank(self) -> int:
        """The most that a rank can be: the smaller of rows and columns."""
        return min(self.tokens, self.d_model)

    @property
    def relative_ranks(self) -> dict[str, float]:
        """ε-ranks by ε, as shares of `largest_rank`."""
        return {eps: rank / self.largest_rank for eps, rank in self.eps_ranks.items()}


@dataclass(frozen=True)
class EmbeddingReport:
    """Embedding matrices of one or more checkpoints under one signal."""

    signal: str
    n: int
    length: int
    seed: int
    eps: tuple[float, ...]
    rows: tuple[EmbeddingSpectrum, ...]

    SCHEMA: ClassVar = "rankscope/embed@1"

    def to_frame(self) -> pd.DataFrame:
        """One row per embedding matrix and ε."""
        import pandas as pd

        names = ["model", "family", "modality", "strategy", "patch_size", "matrix", "source", "tokens", "d_model"]
        rows = []
        for row in self.rows:
            head = [getattr(row, name) for name in names]
            rows += [(*head, float(eps), rank, row.relative_ranks[eps]) for eps, rank in row.eps_ranks.items()]
        return pd.DataFrame(rows, columns=[*names, "eps", "eps_rank", "relative_eps_rank"])


def measure_embedding(
    checkpoints: Iterable[str | Path | Checkpoint] | str | Path | Checkpoint,
    signal: str = "sine",
    *,
    n: int = 64,
    length: int = 512,
    eps: float | Iterable[float] = (0.1, 0.05, 0.01),
    seed: int = 0,
    file: str | Path | None = None,
    columns: Columns | None = None,
    freq: str | None = None,
    text: str | Path | None = None,
    images: str = "generated",
    image_count: int = 1000,
    angle_items: int = 128,
    points: int = 2048,
    device: str = "cpu",
    batch_size: int = 64,
    progress: Progress | None = None,
) -> EmbeddingReport:
    """Embedding matrix of every checkpoint over a corpus of what it reads, and the vocabulary where it has one.

    Series models embed the signal and image models images: each gives a ``corpus`` row. Text models embed a text where
    there is one. Quantised and text models give a ``vocabulary`` row (too). Where all models read text, the signal
    ``user`` holds token ids.

    Args:
        checkpoints: what to compare: open checkpoints, or what `rankscope.open_checkpoint` opens; one or more.
        signal: see `rankscope.series.signals.corpus`.
        n: series; windows of text.
        length: values per series; tokens per window of text.
        eps: thresholds in [0, 1).
        seed: of the corpora and of the sample of projected points.
        file: of the signal ``user``.
        columns: non-default column names of the file.
        freq: frequency of the file (default: inferred).
        text: UTF-8 text, plain or gzipped, for the text models.
        images: ``generated`` or ``cifar10`` (needs a network), for the image models.
        image_count: number of images.
        angle_items: rows of the angle matrix.
        points: most points of the projection, a random sample of the rows.
        device: where embeddings are computed: ``cpu``, ``cuda`` or ``auto``.
        batch_size: series, texts or images embedded at once.
        progress: called with the number of them done.

    Raises:
        OptionError: no checkpoint, ε outside [0, 1), a number below 1, or a corpus that no model reads.
        DataError: a file cannot be used.
    """
    several = [checkpoints] if isinstance(checkpoints, (str, Path, Checkpoint)) else checkpoints
    opened = [open_checkpoint(model) for model in several]
    if not opened:
        raise OptionError("checkpoints is empty: give at least one model.")
    for name, value in (("angle_items", angle_items), ("points", points), ("batch_size", batch_size)):
        check_count(name, value)
    levels = validate_levels(eps)
    corpora = Corpora(signal, n, length, seed, file, text, images, image_count, columns, freq)
    check_modalities(opened, corpora)
    # a file of series, or a text, that cannot be used is found before any model is built
    if any(checkpoint.family.modality == "series" for checkpoint in opened):
        _ = corpora.series
    if text is not None:
        _ = corpora.words
    where, ids_from_file = resolve_device(device), reads_token_ids(opened, corpora)
    rows: list[EmbeddingSpectrum] = []
    for checkpoint in opened:
        module = checkpoint.module().to(where)
        with seeded(seed):
            for step in embedded(checkpoint, module, corpora, batch_size, ids_from_file):
                if isinstance(step, Embedded):
                    rows.append(_measure(checkpoint, "corpus", step, levels, angle_items, points, seed))
                else:
                    (progress or silent)(*step, f"embedding, {checkpoint.source}")
        if checkpoint.family.vocabulary is not None:
            table = checkpoint.family.vocabulary(module)
            whole = Embedded("", table, torch.arange(table.shape[0]), "token id")
            rows.append(_measure(checkpoint, "vocabulary", whole, levels, angle_items, points, seed))
    return EmbeddingReport(signal, n, length, seed, levels, tuple(rows))


def _measure(
    checkpoint: Checkpoint,
    name: str,
    what: Embedded,
    eps: Sequence[float],
    angle_items: int,
    points: int,
    seed: int,
) -> EmbeddingSpectrum:
    triangle, x = Triangle(), what.rows
    if not len(x):
        raise DataError(f"{checkpoint.source}: no series shows it a whole token: give longer ones (--length).")
    for part in x.split(8192):
        triangle.add(part)
    _, sigma, vh = torch.linalg.svd(triangle.r, full_matrices=False)
    family = checkpoint.family
    return EmbeddingSpectrum(
        model=checkpoint.source,
        family=family.name,
        strategy=family.strategy,
        patch_size=family.patch_size(checkpoint.config),
        matrix=name,
        tokens=x.shape[0],
        d_model=x.shape[1],
        sigma=sigma.cpu().numpy(),
        eps_ranks=ranks_by_eps(sigma, eps),
        effective_rank=float(effective_rank(sigma)),
        stable_rank=float(stable_rank(sigma)),
        angles=angle_matrix(what.sample(angle_items)).cpu().numpy(),
        projection=_project(x, vh, what.colour, what.colour_name, points, seed),
        modality=family.modality,
        source=what.source,
    )


def _project(x: Tensor, vh: Tensor, colour: Tensor | None, colour_name: str, points: int, seed: int) -> Projection:
    picked = np.arange(x.shape[0])
    if len(picked) > points:
        picked = np.sort(np.random.default_rng(seed).choice(len(picked), points, replace=False))
    # a singular vector's sign is arbitrary: fix it so that the largest entry is positive
    top = vh[:2]
    signs = torch.sign(top.gather(1, top.abs().argmax(1, keepdim=True)))
    shown = (x[torch.from_numpy(picked)].to(torch.float64) @ (top * signs).T).cpu().numpy()
    if shown.shape[1] < 2:
        shown = np.pad(shown, ((0, 0), (0, 2 - shown.shape[1])))
    values = colour if colour is not None else torch.arange(x.shape[0])
    name = colour_name if colour is not None else "token number"
    return Projection(shown, values[torch.from_numpy(picked)].to(torch.float64).cpu().numpy(), name)
