"""The checks, by id."""

from rankscope_paper.theory.check import Check
from rankscope_paper.theory.checks.compression import (
    ONE_TOKEN,
    THEOREM_3,
    THEOREM_3_LOWER,
    THEOREM_5,
    THEOREM_6_LOWER,
    THEOREM_6_UPPER,
)
from rankscope_paper.theory.checks.embedding import THEOREM_2
from rankscope_paper.theory.checks.flow import COROLLARY_1, COROLLARY_1_LOWER, THEOREM_4, THEOREM_4_LOWER
from rankscope_paper.theory.checks.smooth import COROLLARY_2, THEOREM_1_ANALYTIC, THEOREM_1_VARIATION

_ALL = (
    THEOREM_1_VARIATION,
    THEOREM_1_ANALYTIC,
    COROLLARY_2,
    THEOREM_2,
    THEOREM_3,
    THEOREM_3_LOWER,
    THEOREM_4,
    THEOREM_4_LOWER,
    COROLLARY_1,
    COROLLARY_1_LOWER,
    THEOREM_5,
    ONE_TOKEN,
    THEOREM_6_LOWER,
    THEOREM_6_UPPER,
)

CHECKS: dict[str, Check] = {check.id: check for check in _ALL}
"""Statement → how to try it, in the order of the paper."""
