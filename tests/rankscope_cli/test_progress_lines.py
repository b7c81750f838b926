"""Long work off a terminal: some lines, with what is left."""

import re

from rankscope_cli import progress
from rankscope_cli.progress import progress_lines


def test_lines_come_at_a_pace_and_say_what_is_left(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress_lines("work", pace=30.0) as report:
        for done in range(1, 101):  # one report per second
            now[0] = float(done)
            report(done, 100, f"loss {done}")
    lines = [line[9:] for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "1/100 loss 1",
        "31/100 loss 31, 1 min 9 s left",
        "61/100 loss 61, 39 s left",
        "91/100 loss 91, 9 s left",
        "100/100 loss 100",
    ]


def test_every_phase_begins_with_a_line(monkeypatch, capsys):
    monkeypatch.setattr(progress.time, "monotonic", lambda: 5.0)
    with progress_lines("work") as report:
        report(1, 2, "drawing")
        report(2, 2, "drawing")
        report(3, 9, "training")
        report(4, 9, "training")
        report(0, 0, "left out 2")
    err = capsys.readouterr().err.splitlines()
    assert all(re.match(r"\d\d:\d\d:\d\d ", line) for line in err)
    assert [line[9:] for line in err] == ["1/2 drawing", "2/2 drawing", "3/9 training", "left out 2"]
