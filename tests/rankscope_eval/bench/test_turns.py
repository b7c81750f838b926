"""Turns, and exponents of time over size: power laws are found again, a constant cost hides less of the larger half."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rankscope.errors import OptionError
from rankscope_eval.bench.turns import Spread, alternate, exponent, growth, ratios, timed

SIZES = (8, 16, 32, 64, 128)


def test_work_is_done_once_before_it_is_timed() -> None:
    calls: list[int] = []
    turn = timed(lambda: calls.append(1), clock=lambda: 5.0 * len(calls) ** 2)
    assert len(calls) == 1
    assert (turn(), turn()) == (15.0, 25.0)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_the_exponent_of_a_power_law_is_found(power: float) -> None:
    seconds = [0.003 * size**power for size in SIZES]
    assert exponent(SIZES, seconds) == pytest.approx(power, abs=1e-12)
    found = growth(SIZES, [[each, 2 * each] for each in seconds])
    for spread in (found.exponent, found.whole):
        assert (spread.min, spread.median, spread.max) == pytest.approx((power,) * 3, abs=1e-12)


def test_a_constant_cost_hides_growth_and_less_of_it_in_the_larger_half() -> None:
    found = growth(SIZES, [[0.05 + 0.001 * size] for size in SIZES])
    assert found.whole.median < found.exponent.median < 1
    assert found.exponent.median == pytest.approx(exponent(SIZES[2:], [0.082, 0.114, 0.178]))
    quadratic = growth(SIZES, [[1 + 0.001 * size**2] for size in SIZES])
    assert quadratic.whole.median < quadratic.exponent.median < 2


def test_the_larger_half_has_at_least_two_sizes() -> None:
    assert growth((1, 2, 4), [[9], [1], [4]]).exponent.median == pytest.approx(2)
    assert growth((1, 2, 4, 8), [[9], [9], [1], [4]]).exponent.median == pytest.approx(2)
    assert growth((1, 2), [[1], [2]]).exponent.median == pytest.approx(1)


@pytest.mark.parametrize(
    ("powers", "verdict"),
    [
        ((0.9, 0.99, 1.2), "at most linear"),
        ((0.9, 1.1, 1.2), "linear within the spread"),
        ((1.1, 1.2, 1.3), "above linear"),
    ],
)
def test_only_what_every_round_says_is_above_linear(powers: tuple[float, ...], verdict: str) -> None:
    turns = [[(size / 8) ** power for power in powers] for size in SIZES]
    assert growth(SIZES, turns).verdict == verdict


@pytest.mark.parametrize(
    ("sizes", "turns"),
    [
        ((), []),
        ((1,), [[1.0]]),
        ((1, 2), [[1.0]]),
        ((1, 2), [[], []]),
        ((1, 2), [[1.0, 1.0], [1.0]]),
        ((1, 1), [[1.0], [1.0]]),
        ((2, 1), [[1.0], [1.0]]),
        ((0, 1), [[1.0], [1.0]]),
        ((1, 2), [[1.0], [0.0]]),
        ((1, 2), [[1.0], [float("nan")]]),
    ],
)
def test_what_has_no_exponent_is_refused(sizes: tuple[float, ...], turns: list[list[float]]) -> None:
    with pytest.raises(OptionError, match="needs"):
        growth(sizes, turns)


def test_every_round_begins_with_another_case() -> None:
    now, order = 0.0, []

    def work(name: str, seconds: list[float]) -> Callable[[], float]:
        def turn() -> float:
            nonlocal now
            begun = now
            now += seconds[order.count(name)]
            order.append(name)
            return now - begun

        return turn

    # in the last round the machine is busy with something else
    works = {"a": work("a", [2, 2, 2, 20]), "b": work("b", [1, 1, 1, 10]), "c": work("c", [4, 6, 8, 60])}
    reported: list[int] = []
    seconds = alternate(works, 4, reported.append)
    assert "".join(order) == "abc" + "bca" + "cab" + "abc"
    assert seconds == {"a": (2, 2, 2, 20), "b": (1, 1, 1, 10), "c": (4, 6, 8, 60)}
    assert reported == list(range(1, 13))
    assert ratios(seconds["b"], seconds["a"]) == Spread(0.5, 0.5, 0.5)
    assert ratios(seconds["c"], seconds["a"]) == Spread(3.0, 2.0, 4.0)
    two: list[str] = []
    alternate({name: lambda name=name: two.append(name) or 0.0 for name in "ab"}, 3)
    assert "".join(two) == "ab" + "ba" + "ab"
