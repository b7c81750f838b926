"""Theorem 1 and Corollary 2: their formulas, their ranges, and M against a search over the ellipse."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import OptionError
from rankscope_paper import bounds

BETA = st.floats(0.02, 50)


def test_formulas_by_hand() -> None:
    # V = 3, ν = 2, d = 9, j = 6: 4·3·3/(π·2·3²); L = 4: 2·3·√36/(π·2·3²)
    assert bounds.theorem1_variation(3.0, 2, 9, 6) == pytest.approx(36 / (18 * math.pi))
    assert bounds.theorem1_variation(3.0, 2, 9, 6, tokens=4) == pytest.approx(36 / (18 * math.pi))
    assert bounds.theorem1_analytic(5.0, 2.0, 4, 3) == pytest.approx(4 * 5 * 2 / 4)
    assert bounds.theorem1_analytic(5.0, 2.0, 4, 3, tokens=9) == pytest.approx(2 * 5 * 6 / 4)


@pytest.mark.parametrize("j", [0, 3, 9])
def test_indices_out_of_range(j: int) -> None:
    with pytest.raises(OptionError, match=f"got j = {j} with ν = 2, d = 9"):
        bounds.theorem1_variation(1.0, 2, 9, j)
    with pytest.raises(OptionError, match="ρ > 1"):
        bounds.theorem1_analytic(1.0, 1.0, 9, 2)
    with pytest.raises(OptionError, match="β > 0"):
        bounds.corollary2(0.0, 9, 2)


@settings(max_examples=60, deadline=None)
@given(BETA, st.floats(1.01, 30))
def test_the_swish_is_nowhere_larger_than_its_bound(beta: float, rho: float) -> None:
    limit = bounds.swish_maximum(beta, rho)
    angle = np.linspace(0, 2 * np.pi, 2000)
    circle = rho * np.exp(1j * angle)
    z = (circle + 1 / circle) / 2
    with np.errstate(over="ignore", invalid="ignore"):
        measured = np.abs(z**2 / (1 + np.exp(-beta * z)))
    if math.isinf(limit):
        assert beta * (rho - 1 / rho) / 2 >= math.pi
    else:
        assert np.nanmax(measured) <= limit * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(BETA, st.integers(0, 15))
def test_the_constant_of_corollary_2(beta: float, j: int) -> None:
    rho = 1 + math.pi / (2 * beta)
    printed = math.sqrt(16 * 7) * (beta + 1 / beta) * rho ** (1 - j)
    value = bounds.corollary2(beta, 16, j, tokens=7)
    assert value <= math.sqrt(16 * 7) * (4 * beta / math.pi + 2 + math.pi / (4 * beta)) * rho ** (1 - j) * (1 + 1e-12)
    assert value <= (1 + 4 / math.pi) * printed * (1 + 1e-12)
    assert bounds.corollary2_optimised(beta, 16, j, tokens=7) <= value


def test_a_wider_ellipse_pays_for_late_singular_values() -> None:
    assert bounds.corollary2_optimised(1.0, 32, 20) < 1e-4 * bounds.corollary2(1.0, 32, 20)
    assert bounds.corollary2(0.5, 32, 5, gate=4.0) == bounds.corollary2(2.0, 32, 5)


@pytest.mark.parametrize("nu", [1, 2, 3])
def test_the_sharper_theorem_1_is_below_the_printed_one_by_what_the_docs_say(nu: int) -> None:
    for tokens, (least, most) in ((None, (12, 323)), (50, (2.0, 118))):
        loose = [
            bounds.theorem1_variation(1.0, nu, 41, j, tokens) / bounds.theorem1_splines(1.0, nu, 41, j, tokens)
            for j in range(nu + 2, 40)
        ]
        assert least < min(loose)
        assert max(loose) < most


def test_the_distance_of_a_hinge_from_a_constant_is_the_textbooks() -> None:
    # (x − t)₊ from constants in L²: the variance of a hinge; largest over t at −1, where it is x + 1
    in_mean, _ = bounds.spline_distance(1, 1)
    assert in_mean == pytest.approx(1.01 * (2 / 3) ** 0.5, rel=1e-3)
