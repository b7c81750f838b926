"""Figures by layer: what is drawn equals what was measured."""

from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from rankscope.errors import OptionError
from rankscope.measure.flow import FlowReport
from rankscope.plots import flow, ranks_by_layer, size_by_eps, size_of_report, spectra


def lines(ax: Axes) -> dict[str, Any]:
    return {line.get_gid(): line for line in ax.lines if line.get_gid()}


@pytest.mark.parametrize("eps", [None, 0.01])
def test_ranks_by_layer_draws_the_ranks(spectrum_report: Any, eps: float | None) -> None:
    fig = ranks_by_layer(spectrum_report, eps=eps)
    assert [ax.get_title(loc="left") for ax in fig.axes] == ["encoder, self", "decoder, self", "decoder, cross"]
    drawn = {gid: line for ax in fig.axes for gid, line in lines(ax).items()}
    assert len(drawn) == 12
    key = "0.01" if eps else "0.1"
    for gid, line in drawn.items():
        stack, scope, letter = gid.split(".")
        rows = [r for r in spectrum_report.sites if (r.site.stack, r.site.role) == (stack, f"{scope}.{letter}")]
        assert line.get_xdata().tolist() == [row.site.layer for row in rows]
        assert line.get_ydata().tolist() == [row.eps_ranks[key] for row in rows]
    assert fig.axes[0].get_ylabel() == f"ε-rank, ε = {key}"
    assert all(ax.get_xlabel() == "layer" for ax in fig.axes)
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["$W_Q$", "$W_K$", "$W_V$", "$W_O$"]


def test_matrices_that_are_never_trained_are_left_out(spectrum_report: Any) -> None:
    idle = ("decoder", "self.q")
    spectrum_report.is_trained = lambda row: (row.site.stack, row.site.role) != idle
    fig = ranks_by_layer(spectrum_report)
    drawn = {gid for ax in fig.axes for gid in lines(ax)}
    assert len(drawn) == 11
    assert "decoder.self.q" not in drawn


def test_lines_differ_without_colour(spectrum_report: Any) -> None:
    ax = ranks_by_layer(spectrum_report).axes[0]
    looks = {(line.get_marker(), line.get_linestyle()) for line in lines(ax).values()}
    assert len(looks) == 4


def test_spectra_draws_relative_values_with_a_label_each(spectrum_report: Any) -> None:
    (ax,) = spectra(spectrum_report, role="cross.v", stack="decoder").axes
    rows = [row for row in spectrum_report.sites if row.site.role == "cross.v"]
    for row in rows:
        np.testing.assert_allclose(lines(ax)[row.site.name].get_ydata(), row.sigma / row.sigma[0])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["layer 0", "layer 1", "layer 2"]
    assert len({(line.get_marker(), line.get_linestyle()) for line in lines(ax).values()}) == 3  # without colour
    assert ax.get_yscale() == "log"
    assert ax.get_xlabel() == "index $j$ of the singular value"


def test_spectra_needs_spectra_and_a_known_site(spectrum_report: Any) -> None:
    with pytest.raises(OptionError, match=r"site 'encoder self\.w' is not known: did you mean"):
        spectra(spectrum_report, role="self.w")
    spectrum_report.sites[0].sigma = None
    with pytest.raises(OptionError, match="ranks only"):
        spectra(spectrum_report)
    with pytest.raises(OptionError, match="not ranks only"):
        size_of_report(spectrum_report)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_flow_draws_inputs_above_and_ranks_below(flow_report: FlowReport, stack: str) -> None:
    top, bottom = flow(flow_report, stack=stack, eps=0.01).axes
    rows = flow_report.stack(stack)
    for row in rows:
        np.testing.assert_allclose(lines(top)[f"{stack}.{row.layer}"].get_ydata(), row.sigma / row.sigma[0])
    drawn = lines(bottom)
    assert drawn["input"].get_ydata().tolist() == [row.eps_ranks["0.01"] for row in rows]
    for role in ("self.q", "self.k", "self.v"):
        assert drawn[role].get_ydata().tolist() == [row.weight_eps_ranks[role]["0.01"] for row in rows]
    assert top.get_title(loc="left") == f"{stack}, input: constant signals"
    assert bottom.get_ylabel() == "ε-rank, ε = 0.01"


def test_flow_refuses_what_was_not_measured(flow_report: FlowReport) -> None:
    with pytest.raises(OptionError, match="stack 'encodr' is not known: did you mean 'encoder'"):
        flow(flow_report, stack="encodr")
    with pytest.raises(OptionError, match=r"eps 0\.2 is not known"):
        flow(flow_report, eps=0.2)


def test_ranks_by_layer_needs_attention(spectrum_report: Any) -> None:
    spectrum_report.sites = ()
    with pytest.raises(OptionError, match="no attention matrix"):
        ranks_by_layer(spectrum_report)


def test_size_ratio_follows_a_loop(spectrum_report: Any) -> None:
    levels = [0.001, 0.1, 0.4]
    eps, ratios = size_of_report(spectrum_report, levels)
    assert eps == levels
    for level, ratio in zip(levels, ratios, strict=True):
        stored = total = 0
        for row in spectrum_report.sites:
            rank = sum(1 for value in row.sigma if value > level * row.sigma[0])
            stored += min(rank * 48, 24 * 24)
            total += 24 * 24
        assert ratio == stored / total
    (ax,) = size_by_eps({"tiny": (eps, ratios), "other": (eps, ratios)}).axes
    assert lines(ax)["tiny"].get_ydata().tolist() == ratios
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("tolerance ε", "size ratio")
    with pytest.raises(OptionError, match="curves is empty"):
        size_by_eps({})
