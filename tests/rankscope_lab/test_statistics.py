"""Paired tests and intervals against textbook formulas, and published statistics from published means."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import stdtr

from rankscope_lab.statistics import bootstrap_interval, paired, spread


def test_summary_is_the_sample_deviation_and_the_populations_where_asked() -> None:
    values = [2.0, 4.0, 9.0]
    assert spread(values).std == pytest.approx(math.sqrt((9 + 1 + 16) / 2))
    assert spread(values, population=True).std == pytest.approx(math.sqrt((9 + 1 + 16) / 3))
    assert spread([1.5]).std is None
    assert math.isnan(spread([]).mean)


def test_paired_t_by_its_formula_on_shared_seeds_only() -> None:
    draw = np.random.default_rng(0)
    better = {seed: float(draw.normal()) for seed in range(12)}
    other = {seed: better[seed] + float(draw.normal(0.3, 0.4)) for seed in range(2, 12)} | {99: 1000.0}
    differences = [other[seed] - better[seed] for seed in range(2, 12)]
    mean = sum(differences) / 10
    std = math.sqrt(sum((d - mean) ** 2 for d in differences) / 9)
    t = mean / (std / math.sqrt(10))
    found = paired(other, better)
    assert (found.difference.n, found.higher) == (10, sum(d > 0 for d in differences))
    assert found.higher + found.lower == 10
    assert found.difference.mean == pytest.approx(mean)
    assert found.difference.std == pytest.approx(std)
    assert found.t == pytest.approx(t)
    assert found.p == pytest.approx(2 * stdtr(9, -abs(t)), rel=1e-9)
    half = stats.t.ppf(0.975, 9) * std / math.sqrt(10)
    assert (found.low, found.high) == (pytest.approx(mean - half), pytest.approx(mean + half))
    assert found.clear == (abs(mean) > half)


def test_the_published_t_of_linear_ppe_follows_from_its_mean_and_spread() -> None:
    # C=4: mean difference 0.041, spread 0.028 over 20 seeds, printed t = 6.60 and p = 2.6e-6
    shape = np.random.default_rng(1).normal(size=20)
    shape = (shape - shape.mean()) / shape.std(ddof=1)
    found = paired({s: 2.041 + 0.028 * float(v) for s, v in enumerate(shape)}, dict.fromkeys(range(20), 2.0))
    assert found.t == pytest.approx(6.60, abs=0.07)
    assert found.p == pytest.approx(2.6e-6, rel=0.2)


def test_bootstrap_interval_equals_resampling_by_hand_and_is_repeatable() -> None:
    values = list(np.random.default_rng(2).exponential(size=20))
    low, high = bootstrap_interval(values) or (math.nan, math.nan)
    draw = np.random.default_rng(123)
    means = np.sort([np.mean([values[i] for i in draw.integers(0, 20, 20)]) for _ in range(4000)])
    width = np.std(means)
    assert low == pytest.approx(np.quantile(means, 0.025), abs=0.08 * width)
    assert high == pytest.approx(np.quantile(means, 0.975), abs=0.08 * width)
    assert bootstrap_interval(values) == (low, high)


def test_too_few_seeds_and_no_spread_are_said_as_none() -> None:
    one = paired({0: 2.0}, {0: 1.0})
    assert (one.t, one.p, one.low, one.lower, one.higher, one.clear) == (None, None, None, 0, 1, False)
    same = paired({0: 2.0, 1: 3.0}, {0: 1.0, 1: 2.0})
    assert (same.t, same.p, same.high) == (None, None, None)
    assert (bootstrap_interval([1.0]), bootstrap_interval([1.0, 1.0])) == (None, (1.0, 1.0))
    rounding = paired({0: 0.3, 1: 1.3, 2: 2.3}, {0: 0.1, 1: 1.1, 2: 2.1})
    assert rounding.difference.mean == pytest.approx(0.2)


def test_only_seeds_of_both_sides_are_compared() -> None:
    found = paired({0: 1.0, 1: 2.0, 5: 9.0}, {1: 1.0, 0: 2.0, 7: 0.0})
    assert (found.difference.n, found.difference.mean, found.lower, found.higher) == (2, 0.0, 1, 1)
    assert math.isnan(paired({}, {0: 2.0}).difference.mean)
