"""Weighted second moments of the rows that enter a layer: sums of a d × d matrix, and of the means of sequences."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankscope.engine.memory import on_disk, unload
from rankscope.errors import DataError
from rankscope.numerics.spectrum import gram

PARTS = ("total", "inside", "means", "loudness")
"""Names of the sums."""
WIDE = 2048
"""Width from which ``inside`` is summed in float32: the hidden units of t5-large would take 13 GB in float64."""


@dataclass(frozen=True)
class InputMoments:
    """Sums over every real position x (d,) of every sequence that entered a layer, in float64 up to a width of `WIDE`.

    Attributes:
        tokens: positions.
        sequences: series, or sample paths.
        weight: Σ w, w the weight of a position.
        total: Σ w x.
        inside: Σ w (x − x̄)(x − x̄)ᵀ, x̄ the mean of x's own sequence. It is summed itself: as a difference of the other
            sums it would be lost in their rounding wherever sequences differ more than their positions do.
        means: √v x̄ of every sequence, v its weight; of many sequences d to 2d rows with the same second moment.
        loudness: Σ w |x|, by channel.

    Raises:
        DataError: a sum has overflowed, or there are no positions.
    """

    tokens: int
    sequences: int
    weight: float
    total: Float[Tensor, " d"]
    inside: Float[Tensor, "d d"]
    means: Float[Tensor, "rows d"]
    loudness: Float[Tensor, " d"]

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise DataError("moments of no positions: calibrate on at least one series.")
        # |C_ij| ≤ √(C_ii·C_jj) in a Gram matrix: its diagonal shows an overflow anywhere
        refuse_infinities(self.total, self.inside.diagonal(), self.loudness)

    @property
    def outer(self) -> Float[Tensor, "d d"]:
        """Σ w x xᵀ, in float64."""
        means = self.means.double()
        return torch.addmm(self.inside.double(), means.mT, means)

    @property
    def second(self) -> Float[Tensor, "d d"]:
        """C = E[x xᵀ], not centred."""
        return self.outer / self.weight

    @property
    def mean(self) -> Float[Tensor, " d"]:
        """E[x]."""
        return self.total / self.weight

    @property
    def within(self) -> Float[Tensor, "d d"]:
        """Covariance within sequences: E (x − x̄)(x − x̄)ᵀ with x̄ the mean of x's own sequence.

        It is what softmax can see of keys: a shift that all keys of a sequence share changes no attention weight.
        """
        return self.inside.double() / self.weight

    @property
    def absolute(self) -> Float[Tensor, " d"]:
        """E|x| by channel."""
        return self.loudness / self.weight

    def __add__(self, other: InputMoments) -> InputMoments:
        """Sums over both sets of sequences."""
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self) if f.name != "means"}
        return InputMoments(**sums, means=_reduced(torch.cat([self.means, other.means])))


def refuse_infinities(*sums: Tensor) -> None:
    """Raise a `DataError` if a value is NaN or infinite."""
    if not all(bool(torch.isfinite(one).all()) for one in sums):
        raise DataError("moments of a layer's input hold NaN or Inf: calibrate again, on series the model can take.")


def _reduced(rows: Float[Tensor, "rows d"]) -> Float[Tensor, "fewer d"]:
    """Rows with the same second moment, R of their QR decomposition where they are more than 2d."""
    if len(rows) <= 2 * rows.shape[1]:
        return rows
    reduced: Tensor = torch.linalg.qr(rows, mode="r").R
    return reduced


def moments_of(
    x: Float[Tensor, "series tokens d"],
    real: Bool[Tensor, "series tokens"] | None = None,
    weights: Float[Tensor, "series tokens"] | None = None,
) -> InputMoments | None:
    """Sums over one batch; products are formed in the batch's own precision and added up in float64.

    Args:
        x: what entered the layer.
        real: positions that are no padding; all by default. Series without any are left out.
        weights: of the positions; 1 by default.

    Returns:
        None where nothing is real.

    Raises:
        DataError: a value is NaN or infinite.
    """
    x = x.detach().to(torch.float32 if x.dtype.itemsize < 4 else x.dtype)
    known = None if real is None or bool(real.all()) else real.to(x.device)
    count = torch.full((len(x),), x.shape[1], device=x.device) if known is None else known.sum(dim=1)
    tokens, sequences = int(count.sum()), int((count > 0).sum())
    if tokens == 0:
        return None
    # padding may hold NaN, which no product with zero removes
    kept = x if known is None else x.masked_fill(~known[..., None], 0.0)
    w = x.new_ones(x.shape[:2]) if weights is None else weights.to(x)
    w = w if known is None else w.masked_fill(~known, 0.0)
    each = w.sum(dim=1, keepdim=True)
    sums = (kept * w[..., None]).sum(dim=1)
    means = sums / each.masked_fill(each == 0, 1.0)
    centred = ((kept - means[:, None]) * w.sqrt()[..., None]).flatten(0, 1)
    scaled = means * each.sqrt()
    loudness = (kept.abs() * w[..., None]).sum(dim=(0, 1))
    if not bool(torch.isfinite(loudness).all()):
        raise DataError("a layer's input holds NaN or Inf during calibration: the model overflows on these series.")
    inside = summed_squares(centred).to("cpu", torch.float64 if x.shape[-1] < WIDE else torch.float32)
    total, rows, loud = (part.to("cpu", torch.float64) for part in (sums.sum(0), scaled, loudness))
    return InputMoments(tokens, sequences, float(w.sum(dtype=torch.float64)), total, inside, _reduced(rows), loud)


def summed_squares(rows: Float[Tensor, "n d"]) -> Float[Tensor, "d d"]:
    """Σ x xᵀ in the precision of the rows; of wide ones only the half that is not the mirror image of the other."""
    return rows.mT @ rows if rows.shape[1] < WIDE else gram(rows, 1, dtype=rows.dtype)


def regularised(moments: InputMoments, ridge: float) -> InputMoments:
    """Add ``ridge`` times the mean of its diagonal to every eigenvalue of the second moment.

    Directions that the data do not cover get the same small variance in place of none.
    """
    more = ridge * float(moments.outer.diagonal().mean())
    inside = moments.inside.clone()
    inside.diagonal().add_(more)
    return replace(moments, inside=inside)


def centred(moments: InputMoments) -> InputMoments:
    """Moments of the rows less their mean, which a bias can stand for."""
    mean = moments.mean
    outer = moments.outer - moments.weight * torch.outer(mean, mean)
    return replace(moments, total=torch.zeros_like(mean), inside=outer, means=moments.means[:0])


class MomentSink:
    """Adds up the moments of batch after batch; memory does not grow with their number."""

    def __init__(self, moments: InputMoments | None = None) -> None:
        self.moments = moments

    def add(
        self,
        x: Float[Tensor, "series tokens d"],
        real: Bool[Tensor, "series tokens"] | None,
        weights: Float[Tensor, "series tokens"] | None = None,
    ) -> None:
        """Add one batch; see `moments_of`."""
        more = moments_of(x, real, weights)
        if more is not None:
            self.moments = more if self.moments is None else self.moments + more

    def to_disk(self) -> None:
        """Move large sums into files; see `rankscope.engine.memory.on_disk`."""
        if self.moments is not None:
            inside, means = on_disk(self.moments.inside), on_disk(self.moments.means)
            self.moments = replace(self.moments, inside=inside, means=means)
            unload(inside, means)  # the check of a new record reads them


def to_tensors(moments: InputMoments) -> dict[str, Tensor]:
    """The sums as tensors, counts as integers in a tensor of their own."""
    return {
        "counts": torch.tensor([moments.tokens, moments.sequences]),
        "weight": torch.tensor(moments.weight, dtype=torch.float64),
        **{name: getattr(moments, name).contiguous() for name in PARTS},
    }


def from_tensors(tensors: dict[str, Any]) -> InputMoments:
    """Inverse of `to_tensors`.

    Earlier files hold the second moment of the means, ``between``, in the place of rows, and no weights: 1 each.

    Raises:
        DataError: a value is NaN or infinite, or there are no positions.
        KeyError: a sum is missing.
        ValueError: the second moment is not a matrix.
    """
    tokens, sequences = tensors["counts"].tolist()
    refuse_infinities(*tensors.values())
    if tensors["inside"].ndim != 2:
        raise ValueError("the second moment is not a matrix")
    if "between" in tensors:
        values, vectors = torch.linalg.eigh(tensors["between"])
        tensors = {**tensors, "means": values.clamp(min=0).sqrt()[:, None] * vectors.mT}
    weight = float(tensors.get("weight", tokens))
    if not weight > 0:
        raise ValueError("the weights do not add up to more than 0")
    return InputMoments(tokens, sequences, weight, *(tensors[name] for name in PARTS))
