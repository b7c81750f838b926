"""Before and after training: both are drawn, and drawn apart without colour."""

import copy
import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rankscope.errors import OptionError
from rankscope.plots import start_and_end
from rankscope.plots.falling import START_COLOUR


@pytest.fixture
def start(spectrum_report: Any) -> Any:
    report = copy.deepcopy(spectrum_report)
    report.model = "start"
    for row in report.sites:
        row.sigma = np.full(len(row.sigma), 2.0)
        row.eps_ranks = {key: len(row.sigma) for key in row.eps_ranks}
    return report


@pytest.fixture
def end(spectrum_report: Any) -> Any:
    spectrum_report.model = "end"
    return spectrum_report


def test_both_spectra_of_every_layer_are_drawn_and_their_ranks(start: Any, end: Any) -> None:
    fig = start_and_end(start, end)
    top, below = fig.axes
    rows = [row for row in end.sites if row.site.stack == "encoder" and row.site.role == "self.q"]
    dashed = [line for line in top.lines if line.get_color() == START_COLOUR]
    assert [line.get_ydata().tolist() for line in dashed] == [[1.0] * 24] * 3
    for row in rows:
        (line,) = [line for line in top.lines if line.get_gid() == row.site.name]
        assert line.get_marker() != "None"
        assert np.allclose(line.get_ydata(), row.sigma / row.sigma[0])
    for key, pair in zip(rows[0].eps_ranks, zip(below.lines[::2], below.lines[1::2], strict=True), strict=True):
        assert list(pair[0].get_ydata()) == [row.eps_ranks[key] for row in rows]
        assert list(pair[1].get_ydata()) == [24] * 3
    labels = [text.get_text() for text in top.get_legend().get_texts()]
    assert labels == ["layer 0", "layer 1", "layer 2", "before training"]
    assert [text.get_text() for text in fig.legends[0].get_texts()] == [
        f"ε = {eps}, {when}" for eps in rows[0].eps_ranks for when in ("trained", "before")
    ]


def test_labels_do_not_meet_and_markers_are_whole(start: Any, end: Any) -> None:
    for report in (start, end):
        for row in report.sites:
            row.sigma = np.ones(24)  # all labels are wanted at one place
    fig = start_and_end(start, end)
    fig.draw_without_rendering()
    top, below = fig.axes
    boxes = sorted((text.get_window_extent() for text in top.texts[:3]), key=lambda box: float(box.y0))
    assert all(one.y1 <= other.y0 + 1 for one, other in itertools.pairwise(boxes))
    assert not any(text.get_bbox_patch() for text in top.texts[:3])
    most = max(max(line.get_ydata()) for line in below.lines)
    room = below.transData.transform((0, below.get_ylim()[1]))[1] - below.transData.transform((0, most))[1]
    assert room * 72 / fig.dpi > 2.5  # half a marker, in points


def test_two_networks_are_refused(start: Any, end: Any) -> None:
    fewer = SimpleNamespace(model="end", eps=end.eps, sites=end.sites[4:])
    with pytest.raises(OptionError, match="differ in the shapes"):
        start_and_end(start, fewer)


def test_ranks_alone_are_refused(start: Any, end: Any) -> None:
    end.sites[0].sigma = None
    with pytest.raises(OptionError, match=r"no spectra of encoder self\.q"):
        start_and_end(start, end)
