"""Turns: every case is timed in every round, and each begins one."""

from __future__ import annotations

from collections.abc import Callable

from rankscope_eval.bench.turns import Spread, alternate, ratios, timed


def test_work_is_done_once_before_it_is_timed() -> None:
    calls: list[int] = []
    turn = timed(lambda: calls.append(1), clock=lambda: 5.0 * len(calls) ** 2)
    assert len(calls) == 1
    assert (turn(), turn()) == (15.0, 25.0)


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
