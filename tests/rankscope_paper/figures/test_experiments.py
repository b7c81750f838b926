"""Figures 9 to 11 draw the numbers of their results."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from rankscope_paper.experiments import run_f1, run_f2, run_f3
from rankscope_paper.experiments.f1 import F1Size
from rankscope_paper.figures.experiments import figure9, figure10, figure11


def lines(figure: Figure) -> dict[str, np.ndarray]:
    return {str(line.get_gid()): np.array(line.get_data()) for ax in figure.axes for line in ax.lines if line.get_gid()}


def test_figure_9() -> None:
    result = run_f1(size=F1Size(24, 64, 2, 8, (16, 32), 2, 4.0, 3))
    drawn = lines(figure9(result))
    for reading in result.readings:
        np.testing.assert_array_equal(drawn[reading.name], [reading.runs[0].sigma, reading.runs[0].error])
    np.testing.assert_allclose(drawn["width"][1], np.exp(np.log(result.width.error).mean(axis=1)))


def test_figure_10() -> None:
    result = run_f2(quick=True)
    drawn = lines(figure10(result))
    np.testing.assert_array_equal(drawn["spectrum"][1], result.sigma)
    np.testing.assert_array_equal(drawn["sparse"], [result.heads, np.median(result.sparse, axis=1)])


def test_figure_11() -> None:
    result = run_f3(quick=True)
    drawn = lines(figure11(result))
    np.testing.assert_array_equal(drawn["input"][1], result.sigma_in)
    for row, h in enumerate(result.heads):
        np.testing.assert_array_equal(drawn[f"h-{h}"][1], result.sigma_out[0, row])


@pytest.mark.parametrize("draw", [figure10, figure11])
def test_axes_are_named(draw: object) -> None:
    assert callable(draw)
    figure = draw(run_f2(quick=True) if draw is figure10 else run_f3(quick=True))
    assert all(ax.get_xlabel() and ax.get_ylabel() for ax in figure.axes)
