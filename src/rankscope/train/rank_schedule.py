"""Rank schedule r(i) over depth (section 5 of the paper, and its released code)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rankscope.choices import CROSS_DEPTHS, RANK_LAYOUTS, ROUNDINGS, SKETCHES
from rankscope.errors import OptionError, unknown_choice

_ROUNDING = 1e-9
"""Relative error that r0·(1+i)^alpha may carry: far above that of a power in float64, far below any step of r(i)."""

LARGEST = {"r0": 1_000_000, "alpha": 16}
"""Largest values of a design's numbers, above all use, and below what overflows or fills a line."""


@dataclass(frozen=True)
class RankDesign:
    """Growth of rank with depth, and the layout of matrices of that rank.

    Attributes:
        r0: rank scale.
        alpha: growth exponent.
        schedule: ``ceil`` is r(i) = ⌈r0 (1+i)^alpha⌉ (the paper, section 5); ``pow2`` rounds the exponent to the
            nearest power of two and stays at or below d_model/heads, as the released implementation does.
        cross_depth: depth that the decoder's cross-attention counts from: ``restart`` at 0, or ``continue`` after the
            encoder's last layer, as the released implementation does.
        layout: ``head-width`` gives the heads of layer i the width r(i) (queries, keys, values and the cache shrink
            together); ``factored`` keeps the head width and stores every matrix as two thin ones.
        sketch: for ``factored``: one sketch of rank r(i) for all heads (``shared``, eq. 20) or one for each head
            (``per-head``, eq. 21).
        mlp: whether the feed-forward matrices are factored too, at the rank that the layer's self-attention has over
            all its heads: heads·r(i), or r(i) with a shared sketch.

    Raises:
        OptionError: a word is unknown, r0 is not above 0, alpha is below 0, or one is above `LARGEST`.
    """

    r0: float | int = 3.0
    alpha: float | int = 0.27
    schedule: str = "ceil"
    cross_depth: str = "restart"
    layout: str = "head-width"
    sketch: str = "per-head"
    mlp: bool = False

    def __post_init__(self) -> None:
        for field, value, choices in (
            ("schedule", self.schedule, ROUNDINGS),
            ("cross_depth", self.cross_depth, CROSS_DEPTHS),
            ("layout", self.layout, RANK_LAYOUTS),
            ("sketch", self.sketch, SKETCHES),
        ):
            if value not in choices:
                raise OptionError(unknown_choice(f"low_rank.{field}", value, choices))
        for field, number, least in (("r0", self.r0, "above"), ("alpha", self.alpha, "at least")):
            good = not isinstance(number, bool) and isinstance(number, (int, float)) and math.isfinite(number)
            if not good or number < 0 or (least == "above" and number == 0):
                raise OptionError(f"low_rank.{field} is {number!r}: it must be a number {least} 0.")
            if number > LARGEST[field]:
                raise OptionError(f"low_rank.{field} is {number:g}: it must be at most {LARGEST[field]:,}.")


def rank_at(design: RankDesign, depth: int, most: int) -> int:
    """Return the rank r(i) at ``depth`` i, counted from 0.

    Args:
        design: r0, alpha and the rule.
        depth: i.
        most: what ``pow2`` is cut at (d_model/heads in the released code); ``ceil`` is cut at nothing.

    >>> [rank_at(RankDesign(3, 0.27), i, 64) for i in range(6)]
    [3, 4, 5, 5, 5, 5]
    >>> [rank_at(RankDesign(3, 0.27, schedule="pow2"), i, 64) for i in (0, 9, 10)]
    [4, 4, 8]
    >>> rank_at(RankDesign(3, 0.5), 8, 64)  # 3·√9, whatever floating point makes of it
    9
    """
    exact = design.r0 * (1 + depth) ** design.alpha
    if design.schedule == "pow2":
        return min(most, max(1, 2 ** round(math.log2(exact))))
    whole = round(exact)
    if abs(exact - whole) <= _ROUNDING * exact:
        return max(1, whole)
    return math.ceil(exact)
