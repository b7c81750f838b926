"""Figure 12: counts agree with a slow loop, and bars with the counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from rankscope.errors import OptionError
from rankscope.families import Site
from rankscope.plots.histograms import counts, histograms


def report(model: str, sigmas: list[np.ndarray], role: str = "self.q") -> Any:
    sites = [
        SimpleNamespace(site=Site(f"{i}.weight", "encoder", i, role), sigma=sigma) for i, sigma in enumerate(sigmas)
    ]
    return SimpleNamespace(model=model, sites=tuple(sites))


def test_counts_agree_with_a_slow_loop() -> None:
    sigma = np.random.default_rng(0).lognormal(0, 3, 500)
    found, edges = counts(sigma)
    relative = sigma / sigma.max()
    for count, low, high in zip(found, edges[:-1], edges[1:], strict=True):
        assert count == sum(low < value <= high for value in relative)
    assert found.sum() == (relative > 1e-5).sum()


def test_a_value_on_the_edge_belongs_to_the_decade_below() -> None:
    found, _ = counts(np.array([1.0, 0.1, 0.01, 1e-5]))
    assert [int(part.sum()) for part in np.split(found, 5)] == [0, 0, 1, 1, 1]


def test_bars_of_the_histograms() -> None:
    sigmas = [np.geomspace(1, 1e-4, 40), np.geomspace(1, 1e-2, 40)]
    fig = histograms([report("a/x", sigmas), report("b/y", sigmas)])
    left, right = fig.axes[:2]
    assert left.get_title(loc="left") == "x, $W_Q$"
    assert not right.patches  # no W_MLP was measured
    bands = [container.patches for container in left.containers]
    assert len(bands) == 2
    tallest = max(int(counts(sigma)[0].max()) for sigma in sigmas)
    for floor, patches, sigma in zip((1, 0), bands, sigmas, strict=True):
        np.testing.assert_allclose([bar.get_height() for bar in patches], 0.9 * counts(sigma)[0] / tallest)
        assert {bar.get_y() for bar in patches} == {floor}
        shades = [to_rgb(bar.get_facecolor()) for bar in patches]
        assert len(set(shades)) == 5
        brightness = [sum(shade) for shade in shades]
        assert brightness == sorted(brightness)  # fainter towards σ_1
    with pytest.raises(OptionError, match="has no spectra of W_Q or W_MLP"):
        histograms([report("x", sigmas, "self.k")])
    with pytest.raises(OptionError, match="there is no report"):
        histograms([])
