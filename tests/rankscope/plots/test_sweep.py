"""Figures of sweeps: what is drawn equals what was measured."""

from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from rankscope.errors import DataError, OptionError
from rankscope.measure.sweep import SweepReport
from rankscope.plots import (
    pareto,
    ranks_by_heads,
    ranks_by_vocabulary,
    ranks_by_width,
    spectra_by_patch,
    training_spectra,
)
from rankscope.plots.pareto import front


def lines(ax: Axes) -> dict[str, Any]:
    return {line.get_gid(): line for line in ax.lines if line.get_gid()}


@pytest.mark.parametrize(
    ("draw", "field"), [(ranks_by_width, "d_model"), (ranks_by_vocabulary, "rank"), (ranks_by_heads, "num_heads")]
)
def test_ranks_against_what_was_varied(sweep_report, draw, field):
    report = sweep_report(field, [64, 16, 32], seeds=2)  # in another order than drawn
    ax = draw(report).axes[0]
    drawn = lines(ax)
    assert drawn["ε = 0.1"].get_xdata().tolist() == [16.0, 32.0, 64.0]
    # ranks 3, 4, 5 in the order of the report; means over the two seeds, 0 and 1
    assert drawn["ε = 0.1"].get_ydata().tolist() == [4.5, 5.5, 3.5]
    assert drawn["ε = 0.01"].get_ydata().tolist() == [8.5, 10.5, 6.5]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["16", "32", "64"]
    assert ax.get_xscale() == "log"
    whiskers = [tuple(segment[:, 1]) for segment in ax.collections[0].get_segments()]
    assert sorted(whiskers) == [(6.0, 7.0), (8.0, 9.0), (10.0, 11.0)]
    looks = {(drawn[key].get_marker(), drawn[key].get_linestyle()) for key in ("ε = 0.1", "ε = 0.01")}
    assert len(looks) == 2


def test_contours_are_lines_of_one_ratio(sweep_report):
    fig = ranks_by_width(sweep_report("d_model", [16, 32, 64]))
    contours = {gid: line for gid, line in lines(fig.axes[0]).items() if gid.startswith("contour-")}
    assert contours
    for gid, line in contours.items():
        np.testing.assert_allclose(line.get_ydata(), float(gid.removeprefix("contour-")) * line.get_xdata())


def test_a_sweep_over_something_else_is_refused(sweep_report):
    with pytest.raises(DataError, match=r"has no number model\.d_model: this figure needs a sweep over it"):
        ranks_by_width(sweep_report("num_heads", [2, 4]))


def test_ranks_of_one_head_stand_beside_its_width(sweep_report):
    _, single = ranks_by_heads(sweep_report("num_heads", [3, 6])).axes
    drawn = lines(single)
    assert drawn["ε = 0.1"].get_ydata().tolist() == [1.5, 2.5]  # heads of rank 1 and 2, then 2 and 3
    assert drawn["head-width"].get_ydata().tolist() == [8.0, 8.0]
    assert drawn["head-width"].get_zorder() > max(line.get_zorder() for name, line in drawn.items() if name[0] == "ε")
    assert [text.get_text() for text in single.get_legend().get_texts()] == ["width of a head"]


def test_spectra_by_patch_are_relative_and_in_order(sweep_report):
    report = sweep_report("patch_size", [8, 2])
    (ax,) = spectra_by_patch(report).axes
    assert list(lines(ax)) == ["patch-2", "patch-8"]
    for row in report.done:
        sigma = np.asarray(row.ranks.embeddings[0].sigma)
        drawn = lines(ax)[f"patch-{row.config['model']['patch_size']}"].get_ydata()
        np.testing.assert_allclose(drawn, (sigma / sigma[0])[: len(drawn)])
        assert (sigma / sigma[0] > 1e-8).sum() == len(drawn)
    with pytest.raises(OptionError, match="several points of one patch size"):
        spectra_by_patch(sweep_report("patch_size", [8, 2], seeds=2))


def test_a_sweep_without_a_finished_point(sweep_report):
    report = sweep_report("d_model", [])
    for draw in (ranks_by_width, ranks_by_vocabulary, ranks_by_heads, spectra_by_patch):
        with pytest.raises(OptionError, match=r"no point of sweep 'toy' is done \(failed\)"):
            draw(report)


def test_training_spectra_count_every_singular_value(spectra_frame):
    fig = training_spectra(spectra_frame, steps=(0, 50))
    assert [ax.get_title(loc="left") for ax in fig.axes] == ["encoder, layer 0", "encoder, layer 1"]
    for layer, ax in enumerate(fig.axes):
        assert list(lines(ax)) == ["step-0", "step-50"]
        for step in (0, 50):
            rows = spectra_frame[(spectra_frame["layer"] == layer) & (spectra_frame["step"] == step)]
            line = lines(ax)[f"step-{step}"]
            assert line.get_ydata().sum() == len(rows)
            middle = np.average(np.log10(line.get_xdata()), weights=line.get_ydata())
            assert middle == pytest.approx(np.log10(rows["sigma"]).mean(), abs=0.1)
        assert ax.get_ylim()[1] >= max(line.get_ydata().max() for line in lines(ax).values())


def test_training_spectra_refuse_what_was_not_logged(spectra_frame):
    with pytest.raises(OptionError, match=r"site 'encoder self\.k' is not known"):
        training_spectra(spectra_frame, role="self.k")
    with pytest.raises(OptionError, match="step 51 is not known"):
        training_spectra(spectra_frame, steps=(51,))
    with pytest.raises(OptionError, match="no column 'sigma'"):
        training_spectra(spectra_frame.drop(columns="sigma"))


@pytest.mark.parametrize("cost", ["forecast_seconds", "attention_parameters", "bytes"])
def test_pareto_draws_every_scored_point_and_the_front(sweep_report, cost):
    report = sweep_report("d_model", [1, 2, 3])
    fig = pareto(report, cost=cost)
    for ax, score in zip(fig.axes, ("relative_MASE", "relative_WQL"), strict=True):
        drawn = lines(ax)
        for row in report.done:
            x = row.scores[cost] if cost == "forecast_seconds" else getattr(row.ranks, cost)
            assert drawn[row.point].get_xydata().tolist() == [[x, row.scores[score]]]
        assert len(drawn["front"].get_xdata()) == 3  # dearer points are better here
        assert {text.get_text() for text in ax.texts} == {row.point for row in report.done}


def test_pareto_needs_scores(sweep_report):
    with pytest.raises(OptionError, match="was scored: run it with --score"):
        pareto(SweepReport("toy", "", "out", (0.1,), ()))
    with pytest.raises(OptionError, match="cost 'time' is not known"):
        pareto(sweep_report("d_model", [1]), cost="time")


def test_the_front_against_all_pairs():
    rng = np.random.default_rng(0)
    points = [(float(x), float(y)) for x, y in rng.integers(0, 9, (40, 2))]
    beaten = {p for p in points for q in points if q != p and q[0] <= p[0] and q[1] <= p[1]}
    assert front(points) == sorted(set(points) - beaten)
