import numpy as np
import pytest
import scipy.stats

from rankscope_lab.ranks.statistics import Claim, judged


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
