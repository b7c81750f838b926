"""Bounds of the rank paper as pure functions, and the constructions that show them tight."""

from rankscope_paper.bounds.attention import attention, multi_head_attention
from rankscope_paper.bounds.compression import (
    Attention,
    projected,
    score_norm,
    theorem3_construction,
    theorem3_lower,
    theorem3_printed,
    theorem5_distinct,
    theorem5_upper,
    theorem6_construction,
    theorem6_lower,
    theorem6_sketches,
    theorem6_upper,
    value_norm,
)
from rankscope_paper.bounds.embedding import theorem2_count, theorem2_levels
from rankscope_paper.bounds.flow import (
    corollary1_lower,
    corollary1_printed,
    corollary1_upper,
    theorem4_construction,
    theorem4_lower,
    theorem4_unmet,
    theorem4_upper,
)
from rankscope_paper.bounds.quasimatrix import chebyshev_coefficients, coefficient_bound, singular_values
from rankscope_paper.bounds.smooth import (
    bernstein_axes,
    corollary2,
    corollary2_optimised,
    swish_maximum,
    theorem1_analytic,
    theorem1_variation,
)

__all__ = [
    "Attention",
    "attention",
    "bernstein_axes",
    "chebyshev_coefficients",
    "coefficient_bound",
    "corollary1_lower",
    "corollary1_printed",
    "corollary1_upper",
    "corollary2",
    "corollary2_optimised",
    "multi_head_attention",
    "projected",
    "score_norm",
    "singular_values",
    "swish_maximum",
    "theorem1_analytic",
    "theorem1_variation",
    "theorem2_count",
    "theorem2_levels",
    "theorem3_construction",
    "theorem3_lower",
    "theorem3_printed",
    "theorem4_construction",
    "theorem4_lower",
    "theorem4_unmet",
    "theorem4_upper",
    "theorem5_distinct",
    "theorem5_upper",
    "theorem6_construction",
    "theorem6_lower",
    "theorem6_sketches",
    "theorem6_upper",
    "value_norm",
]
