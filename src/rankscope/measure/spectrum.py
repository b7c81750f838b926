"""Spectra and ε-ranks of the weight matrices of a checkpoint, read one matrix at a time (Q1, Q2, Q6, Q7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rankscope.checkpoints import Checkpoint
from rankscope.engine.device import resolve_device
from rankscope.engine.progress import Progress, silent
from rankscope.errors import OptionError
from rankscope.families import Site
from rankscope.measure.decompose import Decomposition, Plan, decompose
from rankscope.numerics.inertia import countable_eps
from rankscope.numerics.parallel import parallel_map
from rankscope.numerics.rank import validate_eps
from rankscope.numerics.size import factored_parameters, size_ratio
from rankscope.numerics.spectrum import working_dtype
from rankscope.numerics.workspace import Workspace

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "rankscope/spectrum@1"
DEFAULT_EPS = (0.1, 0.05, 0.01)


@dataclass(frozen=True)
class SiteSpectrum:
    """What was measured of one weight matrix.

    Attributes:
        site: which matrix.
        layout: how the checkpoint stores it: ``dense``, ``factored`` or ``head-width``.
        shape: (d_out, d_in) of the matrix.
        sigma: singular values, descending; of a factored matrix the leading ``rank`` ones, the others are
            zero. None where only ranks were counted.
        sigma_max: the largest singular value.
        eps_ranks: ε-rank by ε.
        per_head_eps_ranks: ε-rank of every head's slice by ε (Q6); empty for a matrix without heads.
        effective_rank: exponential of the entropy of σ²; None where only ranks were counted.
        stable_rank: Σσ²/σ_1².
        size_ratio: numbers stored at the ε-rank over numbers stored dense, by ε (Q7).
    """

    site: Site
    layout: str
    shape: tuple[int, int]
    sigma: np.ndarray | None = field(compare=False, repr=False)
    sigma_max: float
    eps_ranks: dict[str, int]
    per_head_eps_ranks: dict[str, list[int]]
    effective_rank: float | None
    stable_rank: float
    size_ratio: dict[str, float]

    def to_json(self, sigma: bool = False) -> dict[str, Any]:
        """One element of ``sites`` of ``rankscope/spectrum@1``; with ``sigma`` all singular values, too."""
        row: dict[str, Any] = {
            "name": self.site.name,
            "stack": self.site.stack,
            "layer": self.site.layer,
            "role": self.site.role,
            "layout": self.layout,
            "shape": list(self.shape),
            "sigma_max": self.sigma_max,
            "eps_ranks": dict(self.eps_ranks),
            "per_head_eps_ranks": {eps: list(ranks) for eps, ranks in self.per_head_eps_ranks.items()},
            "effective_rank": self.effective_rank,
            "stable_rank": self.stable_rank,
            "size_ratio": dict(self.size_ratio),
        }
        if sigma and self.sigma is not None:
            row["sigma"] = [float(value) for value in self.sigma]
        return row


@dataclass(frozen=True)
class SpectrumReport:
    """Spectra of the selected matrices of one checkpoint, in the order of computation.

    Attributes:
        model: the name the checkpoint was opened by.
        family: its model family.
        eps: the tolerances, as given.
        ranks_only: whether ε-ranks were counted without singular values.
        sites: one entry per matrix.
        guesses: of a model that no family describes, what was taken for what.
    """

    model: str
    family: str
    eps: tuple[float, ...]
    ranks_only: bool
    sites: tuple[SiteSpectrum, ...]
    guesses: tuple[str, ...] = ()

    @property
    def size_ratio(self) -> dict[str, float]:
        """Numbers stored by all these matrices at their ε-ranks over all stored dense, by ε (Q7)."""
        shapes = [row.shape for row in self.sites]
        keys = [eps_key(eps) for eps in self.eps]
        return {key: size_ratio(shapes, [row.eps_ranks[key] for row in self.sites]) for key in keys}

    def to_json(self, sigma: bool = False) -> dict[str, Any]:
        """The report as ``rankscope/spectrum@1``; ``sigma`` adds every singular value."""
        return {
            "schema": SCHEMA,
            "model": self.model,
            "family": self.family,
            "eps": list(self.eps),
            "ranks_only": self.ranks_only,
            "size_ratio": self.size_ratio,
            "guesses": list(self.guesses),
            "sites": [row.to_json(sigma) for row in self.sites],
        }

    def to_frame(self) -> pd.DataFrame:
        """One row per matrix; columns ``eps_rank@ε``, ``head_eps_ranks@ε`` and ``size_ratio@ε`` for every ε."""
        import pandas as pd

        frame = pd.DataFrame([_flat(row) for row in self.sites])
        return frame.astype({"layer": "Int64"})


def eps_key(eps: float) -> str:
    """Name of an ε in a report.

    >>> eps_key(0.1), eps_key(0.0)
    ('0.1', '0.0')
    """
    return repr(float(eps))


def measure_spectrum(
    checkpoint: Checkpoint,
    eps: Sequence[float] = DEFAULT_EPS,
    sites: Sequence[str] | str | None = ("attention",),
    *,
    ranks_only: bool = False,
    dtype: torch.dtype | None = None,
    device: str = "cpu",
    workers: int | None = None,
    progress: Progress | None = None,
) -> SpectrumReport:
    """Spectrum, ε-ranks, effective and stable rank of every selected weight matrix.

    Each worker reads a matrix, decomposes it with one LAPACK thread, and drops it: memory is a few times the
    largest matrix. Half-precision weights are upcast. float32 and half matrices go through a float64 Gram
    matrix, whose singular values are good to about 1e-8·σ_1 (see `rankscope.numerics.choose_method`);
    ``dtype=torch.float64`` takes LAPACK's SVD in float64 instead.

    Args:
        checkpoint: from `rankscope.open_checkpoint`.
        eps: tolerances in [0, 1); at least 1e-5 with ``ranks_only``.
        sites: which matrices; see `rankscope.families.select_sites`.
        ranks_only: count the ε-ranks of matrices by inertia, without singular values; it pays at one or two ε,
            each further one costs about a sixth of all singular values.
        dtype: float32 or float64; None is float32 for all but float64 weights.
        device: ``cpu``, ``cuda`` or ``auto``.
        workers: matrices at a time; None is one per core, or one on a GPU.
        progress: called after every matrix.

    Raises:
        OptionError: an ε, dtype, device, selection or number of workers that cannot be used.
        CheckpointError: a matrix is unreadable or holds NaN or Inf.
    """
    if not eps:
        raise OptionError("eps needs at least one tolerance in [0, 1); try 0.05.")
    levels = tuple(countable_eps(level) if ranks_only else validate_eps(level) for level in eps)
    if dtype is not None:
        working_dtype(dtype, dtype)
    chosen = checkpoint.sites(sites)
    where = resolve_device(device)
    plan = Plan(levels, ranks_only, dtype, where, Workspace())
    report = progress or silent
    report(0, len(chosen), "spectrum")
    rows: list[SiteSpectrum] = []
    if workers is None and where != "cpu":
        workers = 1
    for site, found in parallel_map(partial(_measure, checkpoint, plan), chosen, workers):
        rows.append(_row(checkpoint, site, found, levels))
        report(len(rows), len(chosen), site.name)
    return SpectrumReport(
        checkpoint.source, checkpoint.family.name, levels, ranks_only, tuple(rows), checkpoint.guesses
    )


def _measure(checkpoint: Checkpoint, plan: Plan, site: Site) -> tuple[Site, Decomposition]:
    return site, decompose(checkpoint.matrix(site), site.head_widths, site.head_axis, plan)


def _row(checkpoint: Checkpoint, site: Site, found: Decomposition, levels: tuple[float, ...]) -> SiteSpectrum:
    keys = [eps_key(level) for level in levels]
    dense = found.shape[0] * found.shape[1]
    return SiteSpectrum(
        site=site,
        layout=checkpoint.layout(site),
        shape=found.shape,
        sigma=found.sigma,
        sigma_max=found.sigma_max,
        eps_ranks=dict(zip(keys, found.ranks, strict=True)),
        per_head_eps_ranks=dict(zip(keys, found.head_ranks, strict=True)) if found.head_ranks else {},
        effective_rank=found.effective_rank,
        stable_rank=found.stable_rank,
        size_ratio={
            key: factored_parameters(found.shape, rank) / dense for key, rank in zip(keys, found.ranks, strict=True)
        },
    )


def _flat(row: SiteSpectrum) -> dict[str, Any]:
    flat = row.to_json()
    rows, columns = flat.pop("shape")
    by_eps = {"eps_rank": "eps_ranks", "head_eps_ranks": "per_head_eps_ranks", "size_ratio": "size_ratio"}
    nested = {column: flat.pop(name) for column, name in by_eps.items()}
    flat |= {"d_out": rows, "d_in": columns}
    for column, values in nested.items():
        flat |= {f"{column}@{eps}": value for eps, value in values.items()}
    return flat
