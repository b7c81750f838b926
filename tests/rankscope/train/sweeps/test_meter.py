"""The meter: pace of the work seen, not of the steps that were there before."""

import pytest

from rankscope.train import PretrainConfig
from rankscope.train.config import ModelShape
from rankscope.train.sweeps.meter import OVERHEAD, Meter, Work, step_cost


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_time_left_follows_the_cost_of_the_steps():
    clock, told = Clock(), []
    meter = Meter({"cheap": Work(10, 1.0, 5), "dear": Work(10, 4.0, 5)}, lambda *a: told.append(a), clock)
    assert meter.seconds_left is None
    clock.now += 5
    meter.step("cheap", 5)  # 5 units in 5 s: 45 units are left
    assert meter.seconds_left == pytest.approx(45.0)
    assert told[-1] == (2, 20, "cheap step 5/10")  # 5 of 50 units, in 20 average steps
    meter.finish("cheap")
    meter.finish("dear")
    assert told[-1][:2] == (20, 20)
    assert meter.seconds_left == 0


def test_steps_of_an_earlier_run_are_no_pace():
    clock = Clock()
    meter = Meter({"a": Work(100, 2.0, 10)}, clock=clock)
    clock.now += 10
    meter.step("a", 60)  # the first report after going on at step 50: 10 steps in 10 s, 40 left
    assert meter.seconds_left == pytest.approx(40.0)


def test_a_failed_point_is_no_pace():
    clock = Clock()
    meter = Meter({"a": Work(100, 1.0, 10), "b": Work(100, 1.0, 10)}, clock=clock)
    clock.now += 10
    meter.step("a", 10)
    meter.finish("a")  # it failed at step 10
    assert meter.seconds_left == pytest.approx(100.0)


def test_cost_counts_tokens_and_parameters():
    t5 = PretrainConfig(context=512, horizon=64, batch_size=4, accumulation=2)
    assert step_cost(t5, 10) == OVERHEAD + 8 * 576 * 10
    bolt = PretrainConfig(family="chronos-bolt", model=ModelShape(patch_size=16), context=512, batch_size=4)
    assert step_cost(bolt, 10) == OVERHEAD + 4 * 32 * 10
