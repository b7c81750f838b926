"""Figures 1, 6, 7, 8, 15: what is drawn equals what was given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from rankscope.errors import OptionError
from rankscope.measure.embedding import EmbeddingSpectrum, Projection
from rankscope.numerics import angle_matrix
from rankscope.plots import CostPoint
from rankscope.plots.style import COLUMN
from rankscope_paper.figures.overview import overview
from rankscope_paper.figures.results import DesignPoint, frontier
from rankscope_paper.figures.strategies import strategies
from rankscope_paper.figures.values import EmbeddedValues, embedded_line, embedded_values


def lines(fig: Figure) -> dict[str, Any]:
    return {line.get_gid(): line for ax in fig.axes for line in ax.lines if line.get_gid()}


def test_the_frontier_has_every_point() -> None:
    design = [
        DesignPoint("3", 0.7, 0.9, 0.8),
        DesignPoint("64", 1.0, 1.0, 1.0),
        DesignPoint("3", 0.4, 1.1, 0.95, "paper"),
    ]
    slow = CostPoint("c", 3.0, 3.0, 3.0, 0.8, 0.5)
    models = {
        "A": [CostPoint("a", 2.0, 1.5, 3.0, 0.7, 0.6), slow],
        "local": [CostPoint("b", 0.1, 0.1, 0.1, 1.0, 1.0, True)],
    }
    fig = frontier(design, models)
    above, below = fig.axes[:3], fig.axes[3:]
    for ax, column in zip(above, ("time", "WQL", "MASE"), strict=True):
        drawn = {line.get_gid(): line.get_xydata().tolist() for line in ax.lines if line.get_gid()}
        assert drawn["3, designed"] == [[getattr(design[0], column), 1]]
        assert drawn["3, paper"] == [[getattr(design[2], column), 1]]
    assert [text.get_text() for text in above[0].get_yticklabels()] == ["$r_0$ = 64", "$r_0$ = 3"]
    for ax, values in zip(below, ((2.0, 3.0, 0.1), (0.7, 0.8, 1.0), (0.6, 0.5, 1.0)), strict=True):
        drawn = {line.get_gid(): line for line in ax.lines if line.get_gid()}
        for name, value in zip(("A: a", "A: c", "local: b"), values, strict=True):
            (x,), (y,) = drawn[name].get_data()
            assert (x, below[0].get_yticklabels()[int(y)].get_text()) == (value, name[-1])
    # c is slower than a: it is on no front in WQL, where a is better, but on that in MASE
    assert [ax.get_xscale() for ax in below] == ["log", "linear", "linear"]
    faces = [{line.get_gid(): line.get_markerfacecolor() for line in ax.lines} for ax in below[1:]]
    assert [face["A: c"] == "white" for face in faces] == [True, False]
    assert all(face["A: a"] != "white" != face["local: b"] for face in faces)
    assert fig.get_figwidth() == COLUMN
    models["local"].append(CostPoint("d", 0.2, 0.2, 0.2, 40.0, 1.0, True))  # one diverges: the others stay apart
    assert [ax.get_xscale() for ax in frontier(design, models).axes[3:]] == ["log", "log", "linear"]


def test_values_are_points_where_quantised_and_lines_where_continuous() -> None:
    x = np.linspace(-1, 1, 5)
    columns = np.stack([x, x**2], axis=1)
    fig = embedded_values([EmbeddedValues(k, k, x, columns, -columns) for k in ("quantised", "continuous")])
    for ax, factor, style in zip(fig.axes, (1, 1, -1, -1), ("None", "-", "None", "-"), strict=True):
        drawn = [line for line in ax.lines if line.get_gid()]
        np.testing.assert_allclose(drawn[1].get_ydata(), factor * x**2)
        assert drawn[0].get_linestyle() == style


def test_values_before_training_stand_below() -> None:
    x = np.linspace(-1, 1, 5)
    columns = np.stack([x, x**2], axis=1)
    known = EmbeddedValues("a", "continuous", x, columns, -columns, start=3 * columns)
    fig = embedded_values([known, EmbeddedValues("b", "continuous", x, columns, -columns)])
    drawn = [{line.get_gid(): line for line in ax.lines if line.get_gid()} for ax in fig.axes]
    np.testing.assert_allclose(drawn[4]["start-2"].get_ydata(), 3 * x**2)
    assert not drawn[5]


def test_one_panel_per_rank() -> None:
    points = {rank: np.full((7, 2), float(rank)) for rank in (1, 2, 4)}
    fig = embedded_line(np.arange(7.0), points)
    panels = [ax for ax in fig.axes if ax.get_title(loc="left")]
    assert [ax.get_title(loc="left") for ax in panels] == ["rank 1", "rank 2", "rank 4"]
    for ax, xy in zip(panels, points.values(), strict=True):
        np.testing.assert_array_equal(ax.collections[0].get_offsets(), xy)


def test_three_panels_of_the_overview() -> None:
    sigma = np.array([1.0, 0.5, 0.25, 0.0])
    cost = {"SVD": ([0.1, 0.5], [2.0, 1.0])}
    drawn = lines(overview({"m": sigma}, {"m": [0.2, 0.4]}, cost))
    np.testing.assert_allclose(drawn["embedding: m"].get_xydata(), [[0.25, 1], [0.5, 0.5], [0.75, 0.25]])
    np.testing.assert_allclose(drawn["depth: m"].get_xydata(), [[0, 0.2], [1, 0.4]])
    np.testing.assert_allclose(drawn["cost: SVD"].get_xydata(), [[0.1, 2], [0.5, 1]])
    assert drawn["embedding: m"].get_marker() == drawn["depth: m"].get_marker()
    before = lines(overview({"m": sigma}, {"m": [0.2, 0.4]}, cost, {"m": sigma[:2]}))
    np.testing.assert_allclose(before["start: m"].get_xydata(), [[0.5, 1], [1, 0.5]])
    with pytest.raises(OptionError, match="depth is empty"):
        overview({"m": sigma}, {}, cost)


def embedded(model: str, seed: int) -> EmbeddingSpectrum:
    x = torch.randn(40, 24, generator=torch.Generator().manual_seed(seed)) * torch.exp(-0.3 * torch.arange(24.0))
    sigma, shown = torch.linalg.svdvals(x).numpy(), Projection(x[:, :2].numpy(), np.arange(40.0), "patch mean")
    angles = angle_matrix(x).numpy()
    rows: dict[str, Any] = {"tokens": 40, "d_model": 24, "sigma": sigma, "eps_ranks": {"0.1": 9}, "effective_rank": 3.0}
    return EmbeddingSpectrum(model, "f", "patch", 1, "corpus", 2.0, angles, shown, **rows)


def test_strategies_show_each_model_under_each_signal() -> None:
    a, b = embedded("a", 0), embedded("b", 1)
    fig = strategies({"noise": {"a": a, "b": b}, "sine": {"a": b, "b": a}})
    images = [ax.images[0].get_array() for ax in fig.axes if ax.images and ax.get_label() != "<colorbar>"]
    for image, row in zip(images, (a, b, b, a), strict=True):
        np.testing.assert_allclose(image, np.rad2deg(row.angles))
    drawn = lines(fig)
    shown = b.relative[b.relative > 1e-7]
    np.testing.assert_allclose(drawn["sine: a"].get_ydata(), shown)
