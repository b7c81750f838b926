import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from rankscope.plots.labels import label_ends, sequence_colours, short_names, spread, thinned, wrapped
from rankscope.plots.style import figure, styled


def drawn(rates: list[float], bottom: float = 1e-4) -> tuple[Axes, list[Line2D]]:
    with styled():
        _, (ax,) = figure()
        index = np.arange(1, 21)
        lines = [ax.plot(index, np.exp(-rate * (index - 1)))[0] for rate in rates]
        ax.set_yscale("log")
        ax.set_xlim(1, 20)
        ax.set_ylim(bottom, 1)
        label_ends(ax, lines, [f"layer {i}" for i in range(len(rates))], height=1.7)
    return ax, lines


def test_labels_right_of_the_axes_keep_the_order_of_the_lines() -> None:
    ax, _ = drawn([0.30, 0.301, 0.302, 0.1])
    places = {text.get_text(): text.get_position() for text in ax.texts}
    assert all(x > 1 for x, _ in places.values())
    heights = [places[f"layer {i}"][1] for i in (3, 0, 1, 2)]
    assert heights == sorted(heights, reverse=True)
    assert min(-np.diff(heights)) > 0.05


def test_a_line_that_leaves_is_labelled_where_it_leaves() -> None:
    ax, _ = drawn([0.1, 2.0])
    left, bottom = {text.get_text(): text.get_position() for text in ax.texts}["layer 1"]
    crossing = (np.log(1e4) / 2.0) / 19  # in axes coordinates
    assert left == pytest.approx(crossing + 0.02, abs=1e-6)
    assert bottom < 0.1


def test_steep_lines_get_a_legend_and_dashes() -> None:
    ax, lines = drawn([1.0, 2.0, 3.0])
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["layer 0", "layer 1", "layer 2"]
    assert not ax.texts
    assert len({line.get_linestyle() for line in lines}) == 3


def test_zeros_on_a_logarithmic_axis_are_an_end() -> None:
    with styled():
        _, (ax,) = figure()
        lines = [ax.plot([1, 2, 3, 4], y)[0] for y in ([1, 0, 0, 0], [1, 0.5, 0.4, 0.3])]
        ax.set_yscale("log")
        ax.set_ylim(0.01, 1)
        ax.set_xlim(1, 4)
        label_ends(ax, lines, ["a", "b"], height=1.7)
    assert {text.get_text() for text in ax.texts} == {"a", "b"}


def test_spread_keeps_order_gap_and_bounds() -> None:
    wanted = [0.99, 0.5, 0.98, 0.51, 0.0]
    got = spread(wanted, 0.1)
    assert np.argsort(got).tolist() == np.argsort(wanted).tolist()
    assert np.diff(sorted(got)).min() >= 0.1 - 1e-9
    assert min(got) >= 0
    assert max(got) <= 1
    assert spread([], 0.1) == []
    assert sorted(spread([0.5] * 11, 0.5)) == pytest.approx([i / 10 for i in range(11)])


def test_thinned_keeps_the_ends() -> None:
    assert thinned(3, 5) == [0, 1, 2]
    assert len(thinned(30, 6)) == 6
    assert (thinned(30, 6)[0], thinned(30, 6)[-1]) == (0, 29)


def test_names() -> None:
    assert short_names(["amazon/chronos-t5-base", "./small/"]) == ["chronos-t5-base", "small"]
    assert short_names(["a/x", "b/x"]) == ["a/x", "b/x"]
    assert short_names(["a/x", "a/x"]) == ["x", "x"]
    ends = [f"runs/{'x' * 40}{end}" for end in ("-1", "-2")]
    assert short_names(ends) == ["xxxxxxxxxxxxxx…xxxxxxxxxxx-1", "xxxxxxxxxxxxxx…xxxxxxxxxxx-2"]
    middles = [f"{'x' * 20}{middle}{'x' * 20}" for middle in "ab"]
    assert short_names(middles) == middles
    assert wrapped("dummy-chronos-model", 2) == "dummy-chronos-\nmodel"


def test_sequence_gets_lighter() -> None:
    red, green, blue = np.array([[int(c[i : i + 2], 16) for c in sequence_colours(9)] for i in (1, 3, 5)])
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    assert (np.diff(luminance) > 0).all()
    assert len(sequence_colours(1)) == 1
