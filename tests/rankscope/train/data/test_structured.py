"""Kinds of generated series: laws that each must keep, and how fast the corpus is made of them."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope.errors import OptionError
from rankscope.train.data.components import (
    CALENDARS,
    autoregressive,
    cycles,
    day_of_week,
    draw_periods,
    periods_of,
    season,
    trend,
)
from rankscope.train.data.mixture import Mixture
from rankscope.train.data.structured import KINDS, plan_series, structured_series


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def likeness(series: np.ndarray, lag: int) -> np.ndarray:
    """Correlation of every series with itself ``lag`` later, by a plain loop."""
    return np.array([np.corrcoef(row[lag:], row[:-lag])[0, 1] for row in series.astype(float)])


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("span", [12, 400])
def test_every_kind_is_finite_and_says_something_where_it_is_seen(kind: str, span: int) -> None:
    series = structured_series(rng(), 60, 400, np.full(60, span), kind)
    assert series.shape == (60, 400)
    assert series.dtype == np.float32
    assert np.isfinite(series).all()
    assert (series[:, -span:].std(axis=1) > 0).mean() > (0.5 if kind in ("intermittent", "steps") else 0.8)


@pytest.mark.parametrize("calendar", ["hourly", "half-hourly", "quarter-hourly", "five-minutely", "daily", "monthly"])
def test_strong_seasons_repeat_at_the_period_of_their_calendar(calendar: str) -> None:
    period = int(CALENDARS[calendar].periods[0])
    series = structured_series(rng(1), 80, 6 * period, kind="strong", calendar=calendar)
    at, between = likeness(series, period), likeness(series, max(1, period // 2))
    assert np.median(at) > 0.5
    assert np.median(at - between) > 0.2


def test_a_season_has_unit_variance_its_period_and_none_where_there_is_none() -> None:
    period = np.array([[24.0], [7.0], [12.5], [0.0]])
    shapes = season(rng(), period, 2400)
    assert np.allclose(shapes[:3].std(axis=1), 1.0, atol=0.25)
    assert np.allclose(shapes[0, 24:], shapes[0, :-24], atol=0.05)
    assert np.allclose(shapes[1, 7:], shapes[1, :-7], atol=0.05)
    assert np.allclose(shapes[2, 25:], shapes[2, :-25], atol=0.05)
    assert not shapes[3].any()


def test_seasons_mostly_fit_twice_into_what_is_seen() -> None:
    short = draw_periods(rng(), np.full(2000, 40)).inner
    long = draw_periods(rng(), np.full(2000, 1024)).inner
    assert (short <= 20).mean() > 0.75
    assert (long >= 48).mean() > 0.25
    assert set(np.unique(long)) >= {7.0, 12.0, 24.0, 48.0, 96.0, 288.0}


def test_only_weeks_of_days_have_weekends() -> None:
    hours, months = (day_of_week(rng(), periods_of(name, 50), 336) for name in ("hourly", "monthly"))
    assert (months == 1).all()
    assert (np.ptp(hours, axis=1) > 0).mean() > 0.3


def test_counts_are_whole_and_demand_is_mostly_nothing() -> None:
    for kind in ("counts", "intermittent"):
        series = structured_series(rng(), 50, 200, kind=kind)
        assert (series == np.round(series)).all()
        assert series.min() >= 0
    assert (series == 0).mean() > 0.4


def test_what_multiplies_is_positive_before_it_is_placed() -> None:
    assert KINDS["multiplicative"].draw(rng(), plan_series(rng(), 40, 100)).min() > 0


def test_memory_is_that_of_a_plain_recursion() -> None:
    shocks = rng().standard_normal((3, 50)).astype(np.float32)
    memory = np.array([[0.0], [0.5], [0.99]])
    expected = np.empty_like(shocks)
    state = shocks[:, 0]
    for step in range(50):
        state = memory[:, 0] * state + np.sqrt(1 - memory[:, 0] ** 2) * shocks[:, step]
        expected[:, step] = state
    assert np.allclose(autoregressive(shocks, memory), expected, atol=1e-4)


def test_trends_change_by_about_one_over_what_is_seen() -> None:
    for span in (30, 600):
        made = trend(rng(), 400, 600, np.full((400, 1), span, dtype=np.float32))
        assert np.isfinite(made).all()
        assert 0.3 < np.median(np.ptp(made[:, -span:], axis=1)[made[:, -span:].std(axis=1) > 0]) < 10
    assert np.allclose(cycles(rng(), 5, 300).std(axis=1), 1, atol=1e-3)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(OptionError, match="kind"):
        structured_series(rng(), 1, 10, kind="strang")
    with pytest.raises(OptionError, match="calendar"):
        structured_series(rng(), 1, 10, calendar="hourlie")


def test_short_batches_fade_in_from_all_and_keep_to_patches() -> None:
    mixture = Mixture(short_batches=0.5, curriculum=100)
    early = [mixture.draw_context(rng(n), 1000, 0, 16) for n in range(300)]
    late = [mixture.draw_context(rng(n), 1000, 100, 16) for n in range(300)]
    assert set(early) == {512, 256, 128}
    assert 0.35 < np.mean([length == 1000 for length in late]) < 0.65
    assert {Mixture().draw_context(rng(n), 1000, 0) for n in range(20)} == {1000}
