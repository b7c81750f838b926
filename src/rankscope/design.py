"""Low rank by design: which layer gets which rank before a model is trained."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.errors import OptionError, unknown_choice

SCHEDULES = ("ceil", "pow2")
CROSS_DEPTHS = ("restart", "continue")
LAYOUTS = ("head-width", "factored")
SKETCHES = ("shared", "per-head")


@dataclass(frozen=True)
class RankDesign:
    """How rank grows with depth, and how a matrix of that rank is stored.

    Attributes:
        r0: rank scale.
        alpha: growth exponent.
        schedule: ``ceil`` is r(i) = ⌈r0 (1+i)^alpha⌉ (the paper, section 5); ``pow2`` rounds the exponent to the
            nearest power of two, as the released implementation does.
        cross_depth: depth that the decoder's cross-attention counts from: ``restart`` at 0, or ``continue`` after the
            encoder's last layer, as the released implementation does.
        layout: ``head-width`` gives the heads of layer i the width r(i) (queries, keys, values and the cache shrink
            together); ``factored`` keeps the head width and stores every matrix as two thin ones.
        sketch: for ``factored``: one sketch for all heads (``shared``, eq. 20) or one per head (``per-head``, eq. 21).
        mlp: whether the feed-forward matrices are factored too.
    """

    r0: float = 3.0
    alpha: float = 0.27
    schedule: str = "ceil"
    cross_depth: str = "restart"
    layout: str = "head-width"
    sketch: str = "per-head"
    mlp: bool = False

    def __post_init__(self) -> None:
        for field, value, choices in (
            ("schedule", self.schedule, SCHEDULES),
            ("cross_depth", self.cross_depth, CROSS_DEPTHS),
            ("layout", self.layout, LAYOUTS),
            ("sketch", self.sketch, SKETCHES),
        ):
            if value not in choices:
                raise OptionError(unknown_choice(f"low_rank.{field}", value, choices))
        if self.r0 <= 0:
            raise OptionError(f"low_rank.r0 is {self.r0}: it must be above 0.")
