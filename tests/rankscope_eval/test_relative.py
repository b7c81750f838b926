import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope_eval.relative import geometric_mean, relative_scores
from rankscope_eval.suites import load_suite

# What chronos-forecasting publishes as aggregated relative scores: (MASE, WQL) in-domain, (MASE, WQL)
# zero-shot.
PUBLISHED = {
    "amazon/chronos-t5-tiny": (0.7649019745781727, 0.6288613368129368, 0.8704764463925718, 0.7108912052035352),
    "amazon/chronos-t5-base": (0.7007558507277635, 0.5786300105297922, 0.8155209321160994, 0.6424634919486323),
    "amazon/chronos-t5-large": (0.6944869734691035, 0.5596857927462495, 0.8213682201405101, 0.6504834081319559),
    "amazon/chronos-bolt-tiny": (0.7403252781013574, 0.5733728165523524, 0.8445407343705457, 0.6678781905023173),
    "amazon/chronos-bolt-base": (0.6800133628315155, 0.5339263811489279, 0.7914551113353537, 0.6241424984163773),
}


@pytest.mark.parametrize("model", PUBLISHED)
def test_aggregates_of_the_published_rows_are_the_published_aggregates(model: str) -> None:
    ours = []
    for name in ("chronos-in-domain", "chronos-zero-shot"):
        rows = load_suite(name).published
        for metric in ("MASE", "WQL"):
            scores = {s.dataset: getattr(s, metric) for s in rows if s.model == model}
            base = {s.dataset: getattr(s, metric) for s in rows if s.model == "seasonal-naive"}
            ours.append(relative_scores(scores, base).value)
    assert ours == pytest.approx(PUBLISHED[model], rel=1e-12)


def test_by_hand() -> None:
    result = relative_scores({"a": 2.0, "b": 3.0, "c": 1.0}, {"a": 1.0, "b": 6.0, "c": 4.0})
    assert result.value == pytest.approx((2 * 0.5 * 0.25) ** (1 / 3))
    assert (result.datasets, result.left_out) == (3, ())


@pytest.mark.parametrize("bad", [math.nan, 0.0, math.inf, -1.0])
@pytest.mark.parametrize("side", [0, 1])
def test_what_has_no_ratio_is_left_out_and_named(bad: float, side: int) -> None:
    pair = [{"a": 2.0, "b": 1.0}, {"a": 1.0, "b": 1.0}]
    pair[side]["b"] = bad
    result = relative_scores(*pair)
    assert (result.value, result.datasets, result.left_out) == (2.0, 1, ("b",))


def test_missing_on_either_side_is_left_out() -> None:
    result = relative_scores({"a": 2.0, "b": 1.0}, {"a": 1.0, "c": 1.0})
    assert (result.datasets, result.left_out) == (1, ("b", "c"))


def test_nothing_in_common_is_nan() -> None:
    assert math.isnan(relative_scores({"a": 1.0}, {"b": 1.0}).value)


@given(st.dictionaries(st.text(max_size=3), st.floats(1e-6, 1e6), min_size=1, max_size=8), st.floats(1e-3, 1e3))
def test_scaling_and_inversion(scores: dict, factor: float) -> None:
    scaled = {name: factor * value for name, value in scores.items()}
    assert relative_scores(scaled, scores).value == pytest.approx(factor)
    assert relative_scores(scores, scaled).value == pytest.approx(1 / factor)
    assert min(scores.values()) * (1 - 1e-9) <= geometric_mean(scores.values()) <= max(scores.values()) * (1 + 1e-9)
