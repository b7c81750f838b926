"""Long work: a bar on a terminal, some lines with what is left elsewhere, and how to go on after Ctrl-C."""

from __future__ import annotations

import io
import os
import re
import sys
import time
from pathlib import Path

import pytest

from rankscope_cli import progress
from rankscope_cli.progress import progress_bar, progress_lines


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_there_is_no_bar_and_long_work_prints_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    now, screen = [0.0], io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress_bar("work", delay=0) as report:
        for done in range(1, 101):  # one report per second
            now[0] = float(done)
            report(done, 100, "cutting")
            if done == 29:
                assert screen.getvalue() == ""
    lines = [line.split(" ", 1)[1] for line in screen.getvalue().splitlines()]
    assert lines == ["30/100 cutting, 1 min 10 s left", "60/100 cutting, 40 s left", "90/100 cutting, 10 s left",
                     "100/100 cutting"]  # fmt: skip


@pytest.mark.parametrize("delay", [0.02, 5.0])
def test_the_bar_waits_then_shows_what_is_done(monkeypatch: pytest.MonkeyPatch, delay: float) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(os, "environ", {**os.environ, "COLUMNS": "80"})
    with progress_bar("work", delay=delay) as report:
        report(1, 4, "first phase")
        time.sleep(0.6)
        report(0, 9, "second phase")
        report(3, 9, "second phase")
    text = screen.getvalue()
    if delay > 1:
        assert text == ""
    else:
        assert "first phase" in text
        assert "1/4" in text
        assert "3/9" in text


def test_names_with_brackets_stay_whole_in_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with progress_bar("work", delay=0.02) as report:
        report(1, 4, "reading x[/bold] and [red]y")
        time.sleep(0.6)
        report(2, 4, "reading x[/bold] and [red]y")
    assert "reading x[/bold] and [red]y" in screen.getvalue()


def test_lines_come_at_a_pace_and_say_what_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_every_phase_begins_with_a_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_what_was_stopped_says_how_to_go_on_if_it_has_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def stop(**how: object) -> list[str]:
        with pytest.raises(KeyboardInterrupt), progress_lines("work", **how):  # type: ignore[arg-type]
            raise KeyboardInterrupt
        return capsys.readouterr().err.splitlines()

    assert stop() == []
    assert stop(stopped="try again") == ["stopped: try again."]
    assert stop(stopped="try again", begun=tmp_path) == ["stopped: try again."]
    assert stop(stopped="try again", begun=tmp_path / "none") == []


class Gone(io.StringIO):
    """A pipe whose reader has left."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_work_goes_on_when_the_reader_of_its_lines_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Gone())
    done = []
    with progress_lines("work", pace=0.0) as report:
        for number in range(3):
            report(number, 3, "working")
            done.append(number)
    assert done == [0, 1, 2]
