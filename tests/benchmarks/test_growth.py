"""Exponents of time over size: power laws are found again."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

SIZES = (8, 16, 32, 64, 128)


@pytest.fixture
def growth(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("growth")


@pytest.mark.parametrize(
    ("powers", "verdict"),
    [
        ((0.5, 0.99, 1.2), "at most linear"),
        ((0.9, 1.1, 1.2), "linear within the spread"),
        ((1.1, 1.5, 2.0), "above linear"),
    ],
)
def test_the_exponent_of_a_power_law_is_found(growth: ModuleType, powers: tuple[float, ...], verdict: str) -> None:
    found = growth.exponents(SIZES, [[0.003 * size**power for power in powers] for size in SIZES])
    assert tuple(found[key] for key in ("min", "median", "max")) == pytest.approx(powers, abs=1e-12)
    assert growth.verdict(found) == verdict
