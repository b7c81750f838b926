"""Means, paired tests and their adjustment, bootstrap intervals: beside SciPy and worked examples."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from scipy import stats
from scipy.special import stdtr

from rankscope_lab.statistics import Claim, Spread, bootstrap_interval, holm, judged, paired, spread, welch


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


def claim(values: dict[int, float], others: dict[int, float], question: str = "a", setting: str = "x") -> Claim:
    return Claim(question, setting, "first is above second", "rank", "first", "second", values, others)


def test_a_finding_is_the_paired_t_test_of_scipy() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(10, 1, 6), rng.normal(8, 1, 6)
    sides = dict(enumerate(first.tolist())), dict(enumerate(second.tolist()))
    (found,) = judged([claim(*sides)])
    test = scipy.stats.ttest_rel(first, second)
    assert found.p == found.adjusted == pytest.approx(test.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(test.confidence_interval(0.95)))
    assert found.difference == pytest.approx(float((first - second).mean()))
    assert (found.above, found.pairs) == (int((first > second).sum()), 6)
    assert found.verdict == "yes"
    (turned,) = judged([claim(*reversed(sides))])
    assert turned.verdict == "no"


def test_seeds_are_paired_and_odd_numbers_left_out() -> None:
    first = {0: 3.0, 1: 5.0, 2: 4.0, 3: float("nan"), 7: 100.0}
    (found,) = judged([claim(first, {2: 1.0, 1: 2.1, 0: 1.0, 3: 1.0})])
    assert found.pairs == 3
    assert found.mean_first == 4.0
    assert judged([claim({0: 1.0}, {1: 1.0})]) == ()


@pytest.mark.parametrize(("pairs", "verdict"), [(3, "unclear"), (5, "unclear"), (6, "yes"), (9, "yes")])
def test_equal_differences_are_judged_by_the_sign_test(pairs: int, verdict: str) -> None:
    """ε-ranks: two more in every seed, also where logarithms round differently."""
    same = {seed: 4.0 + 0.1 * seed for seed in range(pairs)}
    (found,) = judged([claim({seed: value + 2 for seed, value in same.items()}, same)])
    assert found.p == pytest.approx(scipy.stats.binomtest(pairs, pairs).pvalue)
    assert (found.low, found.verdict) == (None, verdict)


def test_claims_without_a_t_test_count_in_the_adjustment() -> None:
    rng = np.random.default_rng(2)
    tested = dict(enumerate(rng.normal(1, 1, 5).tolist())), dict(enumerate(rng.normal(0, 1, 5).tolist()))
    equal = dict.fromkeys(range(5), 1.0)
    found = judged([claim(*tested), claim(equal, equal), claim(dict.fromkeys(equal, 2.0), equal)])
    alone = judged([claim(*tested)])[0].p
    assert [one.p for one in found] == [alone, 1.0, 0.0625]
    assert found[0].adjusted == pytest.approx(min(1.0, (3 if alone < 0.0625 else 2) * alone))


def test_few_seeds_claim_nothing() -> None:
    same = {0: 4.0, 1: 6.0, 2: 5.0}
    assert judged([claim(same, same)])[0].verdict == "unclear"
    assert judged([claim({0: 9.0, 1: 9.1}, {0: 1.0, 1: 1.1})])[0].verdict == "unclear"


@pytest.mark.slow
def test_adjustment_stays_within_question_and_setting() -> None:
    rng = np.random.default_rng(1)
    pairs = [
        (dict(enumerate(rng.normal(1, 1, 5).tolist())), dict(enumerate(rng.normal(0, 1, 5).tolist()))) for _ in range(4)
    ]
    alone = [judged([claim(*pair)])[0].p for pair in pairs]
    found = judged([claim(*pairs[0]), claim(*pairs[1]), claim(*pairs[2], question="b"), claim(*pairs[3], setting="y")])
    low, high = sorted(alone[:2])
    assert sorted(one.adjusted for one in found[:2]) == [2 * low, max(2 * low, high)]  # Holm
    assert [one.adjusted for one in found[2:]] == alone[2:]


@pytest.mark.parametrize(("n", "m", "scale"), [(5, 20, 3.0), (2, 20, 1.0), (7, 3, 0.2)])
def test_welch_is_scipys_test_on_the_samples_and_its_formula(n: int, m: int, scale: float) -> None:
    rng = np.random.default_rng(n)
    first, second = rng.normal(0.5, scale, n), rng.normal(0, 1, m)
    found = welch(spread(first.tolist()), spread(second.tolist()))
    assert found == pytest.approx(stats.ttest_ind(first, second, equal_var=False).pvalue, rel=1e-9)
    a, b = first.var(ddof=1) / n, second.var(ddof=1) / m
    degrees = (a + b) ** 2 / (a**2 / (n - 1) + b**2 / (m - 1))
    t = (first.mean() - second.mean()) / math.sqrt(a + b)
    assert found == pytest.approx(2 * stdtr(degrees, -abs(t)), rel=1e-9)


def test_welch_needs_two_numbers_and_a_spread() -> None:
    published = Spread(2.0, 0.1, 20)
    for ours in (Spread(math.nan, None, 0), Spread(2.0, None, 1), Spread(2.0, 0.0, 5)):
        assert welch(ours, published) is None
        assert welch(published, ours) is None
    assert welch(Spread(2.0, 0.1, 5), Spread(2.0, None, 20)) is None


def test_holm_step_by_step() -> None:
    rng = np.random.default_rng(0)
    values = rng.uniform(0, 0.2, 9).tolist()
    slow, largest = [0.0] * 9, 0.0
    for rank, position in enumerate(sorted(range(9), key=values.__getitem__)):
        largest = max(largest, min(1.0, (9 - rank) * values[position]))
        slow[position] = largest
    assert holm(values) == pytest.approx(slow)
    assert holm([]) == []
