import numpy as np

from rankscope.plots import memory_over_time


def test_the_resumed_run_is_drawn_behind_the_killed_one():
    runs = {
        "whole": {"samples": [[0.0, 100.0, 0], [600.0, 500.0, 4]]},
        "killed": {"samples": [[0.0, 110.0, 0], [300.0, 510.0, 2]]},
        "resumed": {"samples": [[0.0, 120.0, 2], [360.0, 520.0, 4]]},
    }
    (axes,) = memory_over_time({"runs": runs}).axes
    assert axes.get_xlabel() == "minutes"
    lines = {line.get_label(): line.get_xydata() for line in axes.lines}
    np.testing.assert_allclose(lines["whole"], [[0, 100], [10, 500]])
    np.testing.assert_allclose(lines["killed"], [[0, 110], [5, 510]])
    np.testing.assert_allclose(lines["resumed"], [[5, 120], [11, 520]])
