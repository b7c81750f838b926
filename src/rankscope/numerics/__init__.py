"""Pure functions on matrices: rank, spectrum, factors, angles, size. Tensors in, tensors out."""

from rankscope.numerics.embedding import angle_matrix
from rankscope.numerics.factored import FactoredMatrix, symmetric_root
from rankscope.numerics.rank import (
    effective_rank,
    eps_rank,
    eps_ranks,
    factored_parameters,
    factoring_pays,
    relative_spectrum,
    size_ratio,
    stable_rank,
    validate_eps,
    validate_levels,
)
from rankscope.numerics.spectrum import choose_method, per_head, singular_values

__all__ = [
    "relative_spectrum",
    "eps_rank",
    "eps_ranks",
    "effective_rank",
    "stable_rank",
    "validate_eps",
    "validate_levels",
    "singular_values",
    "choose_method",
    "per_head",
    "FactoredMatrix",
    "symmetric_root",
    "angle_matrix",
    "factored_parameters",
    "factoring_pays",
    "size_ratio",
]
