"""Paired tests and intervals against textbook formulas, and published statistics from published means."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import stdtr

from rankscope.errors import DataError
from rankscope.lab.encoders.statistics import bootstrap_interval, paired_test, summarise


def test_summary_is_the_sample_deviation_and_the_populations_where_asked() -> None:
    values = [2.0, 4.0, 9.0]
    assert summarise(values).std == pytest.approx(math.sqrt((9 + 1 + 16) / 2))
    assert summarise(values, population=True).std == pytest.approx(math.sqrt((9 + 1 + 16) / 3))
    assert summarise([1.5]).std is None
    assert summarise([]).mean is None


def test_paired_t_by_its_formula_on_shared_seeds_only() -> None:
    draw = np.random.default_rng(0)
    better = {seed: float(draw.normal()) for seed in range(12)}
    other = {seed: better[seed] + float(draw.normal(0.3, 0.4)) for seed in range(2, 12)} | {99: 1000.0}
    differences = [other[seed] - better[seed] for seed in range(2, 12)]
    mean = sum(differences) / 10
    std = math.sqrt(sum((d - mean) ** 2 for d in differences) / 9)
    t = mean / (std / math.sqrt(10))
    found = paired_test(better, other)
    assert (found.n, found.wins) == (10, sum(d > 0 for d in differences))
    assert found.difference == pytest.approx(mean)
    assert found.std == pytest.approx(std)
    assert found.t == pytest.approx(t)
    assert found.p == pytest.approx(2 * stdtr(9, -abs(t)), rel=1e-9)


def test_the_published_t_of_linear_ppe_follows_from_its_mean_and_spread() -> None:
    # C=4: mean difference 0.041, spread 0.028 over 20 seeds, printed t = 6.60 and p = 2.6e-6
    shape = np.random.default_rng(1).normal(size=20)
    shape = (shape - shape.mean()) / shape.std(ddof=1)
    found = paired_test(dict.fromkeys(range(20), 2.0), {s: 2.041 + 0.028 * float(v) for s, v in enumerate(shape)})
    assert found.t == pytest.approx(6.60, abs=0.07)
    assert found.p == pytest.approx(2.6e-6, rel=0.2)


def test_bootstrap_interval_equals_resampling_by_hand_and_is_repeatable() -> None:
    values = list(np.random.default_rng(2).exponential(size=20))
    low, high = bootstrap_interval(values) or (math.nan, math.nan)
    draw = np.random.default_rng(123)
    means = np.sort([np.mean([values[i] for i in draw.integers(0, 20, 20)]) for _ in range(4000)])
    spread = np.std(means)
    assert low == pytest.approx(np.quantile(means, 0.025), abs=0.08 * spread)
    assert high == pytest.approx(np.quantile(means, 0.975), abs=0.08 * spread)
    assert bootstrap_interval(values) == (low, high)


def test_too_few_seeds_and_no_spread_are_said_as_none() -> None:
    one = paired_test({0: 1.0}, {0: 2.0})
    assert (one.t, one.p, one.interval, one.wins) == (None, None, None, 1)
    same = paired_test({0: 1.0, 1: 2.0}, {0: 2.0, 1: 3.0})
    assert (same.t, same.p, same.interval) == (None, None, (1.0, 1.0))
    with pytest.raises(DataError, match="share none"):
        paired_test({0: 1.0}, {1: 1.0})
