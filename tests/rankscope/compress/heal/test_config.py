"""Config of a healing, the share of it that is over, and the learning rate that follows."""

import pytest

from rankscope.compress.heal import HealConfig
from rankscope.compress.heal.config import Budget
from rankscope.errors import OptionError


def test_by_steps_the_rate_rises_and_falls_and_no_step_is_lost():
    budget = Budget(HealConfig(steps=19, warmup=0.25))
    rates = [budget.rate(step) for step in range(19)]
    assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert rates[-1] == pytest.approx(0.05 / 0.75)
    assert all(0 < rate <= 1 for rate in rates)
    assert sorted(rates[5:], reverse=True) == rates[5:]
    assert budget.rate(19) == 0
    assert [budget.over(step) for step in (18, 19)] == [False, True]
    assert budget.progress(7) == (7, 19)


def test_by_time_the_rate_falls_to_zero_at_the_end_wherever_the_step_is(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("rankscope.compress.heal.config.perf_counter", lambda: now[0])
    budget = Budget(HealConfig(minutes=1.0, warmup=0.1), before=15.0)
    assert budget.seconds() == 15  # not begun: loading takes no time from it
    now[0] = 500.0
    budget.begin()
    assert budget.rate(3) == pytest.approx(0.75 / 0.9)
    now[0] += 30
    assert (budget.seconds(), budget.share(10**6), budget.progress(8)) == (45, 0.75, (45, 60))
    assert not budget.over(10**6)
    now[0] += 15
    assert budget.over(1)
    assert budget.rate(1) == 0
    now[0] += 15
    assert budget.rate(1) == 0


def test_minutes_are_five_unless_something_else_is_said():
    assert (HealConfig().minutes, HealConfig(steps=3).minutes) == (5.0, None)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"minutes": 1.0, "steps": 1}, "minutes or steps"),
        ({"minutes": 0.0}, "minutes is 0"),
        ({"minutes": float("nan")}, "minutes is nan"),
        ({"steps": 0}, "steps 0 is not usable"),
        ({"steps": 2.5}, "steps 2.5 is not usable: give a whole number, at least 1"),
        ({"steps": True}, "steps True is not usable"),
        ({"files": "a.csv"}, r"files must be a list of files: give \['a.csv'\]"),
        ({"train": "some"}, "'some' is not known"),
        ({"precision": "fp8"}, "fp8"),
        ({"learning_rate": 0.0}, "learning_rate is 0"),
        ({"learning_rate": float("inf")}, "learning_rate is inf"),
        ({"batch_size": 0}, "batch_size 0 is not usable"),
        ({"warmup": 1.0}, "warmup is 1"),
        ({"truth": 1.5}, "truth is 1.5"),
        ({"file_share": 0.0}, "file_share is 0"),
        ({"save_seconds": -1.0}, "save_seconds"),
        ({"seed": -1}, "seed -1 is not usable"),
    ],
)
def test_options_out_of_range_are_refused(changes, named):
    with pytest.raises(OptionError, match=named) as caught:
        HealConfig(**changes)
    assert "\n" not in str(caught.value)
