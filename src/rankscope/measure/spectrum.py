"""Spectra and ε-ranks of the weight matrices of a checkpoint, read one matrix at a time (Q1, Q2, Q6, Q7)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.engine import Progress, silent
from rankscope.engine.device import resolve_device, resolve_dtype
from rankscope.families import FAMILIES, Site
from rankscope.io import codec
from rankscope.numerics.factored import FactoredMatrix
from rankscope.numerics.parallel import parallel_map
from rankscope.numerics.rank import (
    effective_rank,
    eps_ranks,
    factored_parameters,
    relative_spectrum,
    size_ratio,
    stable_rank,
    validate_levels,
)
from rankscope.numerics.spectrum import (
    Workspace,
    choose_method,
    gram,
    gram_singular_values,
    per_head_of_widths,
    power_of_two,
    singular_values,
    working_dtype,
)

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_EPS = (0.1, 0.05, 0.01)


@dataclass(frozen=True)
class SiteSpectrum:
    """Spectrum and ranks of one weight matrix.

    Attributes:
        site: which matrix.
        layout: how the checkpoint stores it: ``dense``, ``factored``, ``head-width`` or ``width``.
        shape: (d_out, d_in) of the matrix.
        sigma: singular values, descending; of a factored matrix the leading ``rank`` ones, the others are
            zero. None where spectra were left out.
        sigma_max: the largest singular value.
        eps_ranks: ε-rank by ε, the keys as text (``"0.1"``), as in JSON; so is every ε below.
        per_head_eps_ranks: ε-rank of every head's slice by ε (Q6); empty for a matrix without heads.
        effective_rank: exponential of the entropy of σ²; None where spectra were left out.
        stable_rank: Σσ²/σ_1².
        size_ratio: numbers stored at the ε-rank over numbers stored dense, by ε (Q7).
    """

    site: Site
    layout: str
    shape: tuple[int, int]
    sigma_max: float
    eps_ranks: dict[str, int]
    per_head_eps_ranks: dict[str, list[int]]
    effective_rank: float | None
    stable_rank: float
    size_ratio: dict[str, float]
    sigma: Float[np.ndarray, " k"] | None = field(default=None, compare=False, repr=False)

    KEYS: ClassVar = (
        *("site.name", "site.stack", "site.layer", "site.role", "layout", "shape", "sigma_max", "eps_ranks"),
        *("per_head_eps_ranks", "effective_rank", "stable_rank", "size_ratio", "sigma?"),
    )


@dataclass(frozen=True)
class SpectrumReport:
    """Spectra of the selected matrices of one checkpoint, in the order of computation.

    Attributes:
        model: the name the checkpoint was opened by.
        family: its model family.
        eps: the tolerances, as given.
        ranks_only: the spectra were left out.
        sites: one entry per matrix.
        guesses: of a model that no family describes, what was taken for what.
    """

    model: str
    family: str
    eps: tuple[float, ...]
    ranks_only: bool
    sites: tuple[SiteSpectrum, ...]
    guesses: tuple[str, ...] = ()

    SCHEMA: ClassVar = "rankscope/spectrum@1"
    KEYS: ClassVar = ("model", "family", "eps", "ranks_only", "size_ratio", "guesses", "untrained", "sites")

    @property
    def size_ratio(self) -> dict[str, float]:
        """Numbers stored by all these matrices at their ε-ranks over all stored dense, by ε (Q7)."""
        shapes = [row.shape for row in self.sites]
        keys = [eps_key(eps) for eps in self.eps]
        return {key: size_ratio(shapes, [row.eps_ranks[key] for row in self.sites]) for key in keys}

    @property
    def untrained(self) -> tuple[str, ...]:
        """Names of the matrices that no gradient reaches in this family; their ranks are those of the random start."""
        return tuple(row.site.name for row in self.sites if not self.is_trained(row))

    def is_trained(self, row: SiteSpectrum) -> bool:
        """True unless no gradient reaches the matrix in this family."""
        known = FAMILIES.get(self.family)
        return known is None or (row.site.stack, row.site.role) not in known.untrained

    def without_sigma(self) -> SpectrumReport:
        """The report without singular values, as ``--json`` prints it."""
        return replace(self, sites=tuple(replace(row, sigma=None) for row in self.sites))

    def to_frame(self) -> pd.DataFrame:
        """One row per matrix; columns ``eps_rank@ε``, ``head_eps_ranks@ε`` and ``size_ratio@ε`` for every ε."""
        import pandas as pd

        frame = pd.DataFrame([_flat(row) for row in self.sites])
        return frame.astype({"layer": "Int64"})


@dataclass(frozen=True, kw_only=True)
class RowSpectrum:
    """Spectrum of a matrix whose rows are tokens, as it stands in reports.

    Attributes:
        tokens: rows.
        d_model: columns.
        sigma: singular values, descending, float64.
        eps_ranks: ε-ranks by ε.
        effective_rank: exponential of the entropy of σ².
    """

    tokens: int
    d_model: int
    sigma: Float[np.ndarray, " k"] = field(compare=False, repr=False)
    eps_ranks: dict[str, int]
    effective_rank: float

    @property
    def sigma_max(self) -> float:
        """The largest singular value."""
        return float(self.sigma[0])

    @property
    def relative(self) -> Float[np.ndarray, " k"]:
        """σ_j/σ_1; zeros for a zero matrix."""
        return relative_spectrum(torch.from_numpy(self.sigma)).numpy()


def eps_key(eps: float) -> str:
    """Name of an ε in a report.

    >>> eps_key(0.1), eps_key(0.0)
    ('0.1', '0.0')
    """
    return repr(float(eps))


def ranks_by_eps(sigma: Float[Tensor, " k"], eps: Sequence[float]) -> dict[str, int]:
    """ε-ranks keyed by ε as it prints.

    >>> ranks_by_eps(torch.tensor([1.0, 0.2]), (0.5, 0.1))
    {'0.5': 1, '0.1': 2}
    """
    return {eps_key(level): int(rank) for level, rank in zip(eps, eps_ranks(sigma, eps), strict=True)}


def measure_spectrum(
    checkpoint: str | Path | Checkpoint,
    eps: float | Iterable[float] = DEFAULT_EPS,
    sites: Sequence[str] | str | None = ("attention",),
    *,
    ranks_only: bool = False,
    dtype: str | torch.dtype | None = None,
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
        eps: tolerances in [0, 1).
        sites: which matrices; see `rankscope.families.select_sites`.
        ranks_only: leave singular values and effective ranks out of the report.
        dtype: float32 or float64; None is float32 for all but float64 weights.
        device: ``cpu``, ``cuda`` or ``auto``.
        workers: matrices at a time; None is one per core, or one on a GPU.
        progress: called after every matrix.

    Raises:
        OptionError: an ε, dtype, device, selection or number of workers that cannot be used.
        CheckpointError: a matrix is unreadable or holds NaN or Inf.
    """
    checkpoint, levels = open_checkpoint(checkpoint), validate_levels(eps)
    wanted = resolve_dtype(dtype)
    if wanted is not None:
        working_dtype(wanted, wanted)
    chosen = checkpoint.sites(sites)
    where = resolve_device(device)
    space = Workspace()
    report = progress or silent
    report(0, len(chosen), "spectrum")
    rows: list[SiteSpectrum] = []
    if workers is None and where != "cpu":
        workers = 1
    measure = partial(_measure, checkpoint, levels, ranks_only, wanted, where, space)
    for row in parallel_map(measure, chosen, workers):
        rows.append(row)
        report(len(rows), len(chosen), row.site.name)
    return SpectrumReport(
        checkpoint.source, checkpoint.family.name, levels, ranks_only, tuple(rows), checkpoint.guesses
    )


def _measure(
    checkpoint: Checkpoint,
    levels: tuple[float, ...],
    ranks_only: bool,
    dtype: torch.dtype | None,
    device: str,
    space: Workspace,
    site: Site,
) -> SiteSpectrum:
    w = checkpoint.matrix(site)
    if isinstance(w, FactoredMatrix):
        w = FactoredMatrix(w.up.to(device), w.down.to(device))
        sigma, heads = w.singular_values(dtype=dtype), None
        if site.head_widths:
            heads = w.per_head_singular_values(site.head_widths, site.head_axis or 0, dtype=dtype)
    else:
        sigma, heads = _decomposed(w.to(device), site.head_widths, site.head_axis, min(levels), dtype, space)
    ranks = ranks_by_eps(sigma, levels)
    rows, columns = shape = int(w.shape[0]), int(w.shape[1])
    return SiteSpectrum(
        site=site,
        layout=checkpoint.layout(site),
        shape=shape,
        sigma=None if ranks_only else sigma.cpu().numpy(),
        sigma_max=float(sigma[0]) if len(sigma) else 0.0,
        eps_ranks=ranks,
        per_head_eps_ranks={} if heads is None else dict(zip(ranks, eps_ranks(heads, levels).mT.tolist(), strict=True)),
        effective_rank=None if ranks_only else float(effective_rank(sigma)),
        stable_rank=float(stable_rank(sigma)),
        size_ratio={key: factored_parameters(shape, rank) / (rows * columns) for key, rank in ranks.items()},
    )


def _decomposed(
    w: Tensor,
    widths: tuple[int, ...],
    head_axis: int | None,
    smallest_eps: float,
    dtype: torch.dtype | None,
    space: Workspace,
) -> tuple[Tensor, Tensor | None]:
    """Singular values of a matrix, and of its heads' slices where it has any."""
    work = working_dtype(w.dtype, dtype)
    # where float64 is asked for, every singular value is meant to be good, not only those that decide a rank
    smallest = None if work == torch.float64 else smallest_eps
    axis = head_axis or 0
    if choose_method(tuple(w.shape), smallest, work) == "svd":
        w = w.to(work)
        heads = torch.linalg.svdvals(per_head_of_widths(w, widths, axis)) if widths else None
        return torch.linalg.svdvals(w), heads
    scale = power_of_two(w)
    w = w / scale if scale != 1.0 else w
    side = 0 if w.shape[0] < w.shape[1] else 1
    if w.shape[0] == w.shape[1] and head_axis is not None:
        side = head_axis
    g = gram(w, side, space)
    heads = None
    if widths and side == head_axis:
        # the heads' Gram matrices are diagonal blocks of the whole one
        corners = zip(itertools.accumulate(widths), widths, strict=True)
        blocks = [g[end - width : end, end - width : end] for end, width in corners]
        pads = [max(widths) - width for width in widths]
        padded = [torch.nn.functional.pad(block, (0, pad, 0, pad)) for block, pad in zip(blocks, pads, strict=True)]
        heads = scale * gram_singular_values(torch.stack(padded))
    elif widths:
        heads = scale * singular_values(per_head_of_widths(w, widths, axis), method="gram", dtype=torch.float64)
    return (scale * gram_singular_values(g)).to(work), heads


def _flat(row: SiteSpectrum) -> dict[str, Any]:
    flat = codec.plain(replace(row, sigma=None))
    rows, columns = flat.pop("shape")
    by_eps = {"eps_rank": "eps_ranks", "head_eps_ranks": "per_head_eps_ranks", "size_ratio": "size_ratio"}
    nested = {column: flat.pop(name) for column, name in by_eps.items()}
    flat |= {"d_out": rows, "d_in": columns}
    for column, values in nested.items():
        flat |= {f"{column}@{eps}": value for eps, value in values.items()}
    return flat
