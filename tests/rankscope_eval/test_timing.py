from rankscope_eval.timing import time_against


def test_turns_alternate_and_ratios_are_of_one_round() -> None:
    now = 0.0
    turns = []

    def work(name: str, seconds: list[float]):
        def run() -> None:
            nonlocal now
            turns.append(name)
            now += seconds[turns.count(name) - 1]

        return run

    # the first call of each warms up; in the last round the machine is busy with something else
    versus = time_against(work("a", [9, 2, 2, 20]), work("b", [9, 1, 1, 10]), rounds=3, clock=lambda: now)
    assert "".join(turns) == "ab" + "ab" + "ba" + "ab"
    assert versus.first == (2, 2, 20)
    assert versus.second == (1, 1, 10)
    assert versus.ratio == 0.5
