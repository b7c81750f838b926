"""Sweeps as figures: ranks of W_Q against what was varied (Fig. 4a, 4c, 16), embeddings by patch size (Fig. 3a)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from rankscope.errors import OptionError
from rankscope.measure.spectrum import eps_key
from rankscope.measure.sweep import ALL, mean_head_rank
from rankscope.plots.labels import plain_ticks
from rankscope.plots.style import MARKS, Mark, figure, styled

if TYPE_CHECKING:
    from rankscope.measure.sweep import PointRanks, SweepReport, SweepRow

FLOOR = 1e-8
"""Relative singular values below this are rounding of the stored float32 weights."""
CONTOUR = "#b9c6d4"
START = "#8a8a8a"
RATIOS = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02)
"""Contours of rank over width."""

Value = Callable[["PointRanks", str], float]


def ranks_by_width(report: SweepReport, *, start: SweepReport | None = None) -> Figure:
    """Mean ε-rank of W_Q against the width d, one line per ε, over contours of rank/d (Fig. 4a, b).

    Args:
        report: a sweep over ``model.d_model``.
        start: the same points before training, drawn in grey at the largest ε.

    Raises:
        OptionError: no point is done.
        DataError: a point has no such field.
    """
    with styled():
        fig, (ax,) = figure()
        _mean_ranks(ax, report, "model.d_model", start)
        _logarithmic(ax)
        low, high = ax.get_xlim()
        bottom, top = ax.get_ylim()
        for ratio in RATIOS:
            end = min(high, top / ratio)
            x = np.array([low, end])
            if ratio * end > 1.2 * bottom:
                ax.plot(x, ratio * x, color=CONTOUR, linewidth=0.7, zorder=0, gid=f"contour-{ratio:g}")
                place: dict[str, Any] = {"xytext": (0, 1), "textcoords": "offset points", "va": "bottom", "ha": "right"}
                ax.annotate(f"{ratio:g}", (end, ratio * end), size=7, color="#5d7288", **place)
        ax.set_ylim(bottom, top)
        ax.set_xlabel("width $d$ (thin lines: rank/$d$)")
        _legend(fig, ax)
    return fig


def ranks_by_vocabulary(report: SweepReport, *, start: SweepReport | None = None) -> Figure:
    """Mean ε-rank of W_Q against the algebraic rank of a fixed vocabulary, one line per ε (Fig. 4c).

    Args:
        report: a sweep over ``embedding.rank``.
        start: as in `ranks_by_width`.

    Raises:
        OptionError: no point is done.
        DataError: a point has no such field.
    """
    with styled():
        fig, (ax,) = figure()
        _mean_ranks(ax, report, "embedding.rank", start)
        _logarithmic(ax)
        ax.set_xlabel("rank of the fixed vocabulary")
        _legend(fig, ax)
    return fig


def ranks_by_heads(report: SweepReport, *, start: SweepReport | None = None) -> Figure:
    """Mean ε-rank of W_Q (left) and of one head's rows of it (right) against the number of heads (Fig. 16).

    The thin black line on the right is the width of a head, the most that its rank can be.

    Args:
        report: a sweep over ``model.num_heads``.
        start: as in `ranks_by_width`.

    Raises:
        OptionError: no point is done.
        DataError: a point has no such field.
    """
    with styled():
        fig, (whole, single) = figure(1, 2)
        _mean_ranks(whole, report, "model.num_heads", start)
        _lines(single, report, "model.num_heads", mean_head_rank, start)
        widths = sorted({(row.number("model.num_heads"), row.number("model.d_kv")) for row in report.done})
        thin: dict[str, Any] = {
            "color": "black",
            "linewidth": 0.6,
            "zorder": 3,
        }  # over the lines of small ε, which follow it
        single.plot(*zip(*widths, strict=True), label="width of a head", gid="head-width", **thin)
        single.legend(handles=single.lines[-1:], loc="upper right")
        single.set_ylabel("mean ε-rank of one head")
        for ax in (whole, single):
            ax.set_xlabel("heads $h$")
        _legend(fig, whole)
    return fig


def spectra_by_patch(report: SweepReport) -> Figure:
    """Relative singular values of embedded sinusoids, one line per patch size (Fig. 3a).

    Raises:
        OptionError: no point is done, or there is more than one of a patch size.
    """
    rows = sorted(_done(report), key=lambda row: row.number("model.patch_size"))
    sizes = [int(row.number("model.patch_size")) for row in rows]
    if len(set(sizes)) < len(sizes):
        raise OptionError("the sweep has several points of one patch size: draw those of one seed.")
    with styled():
        fig, (ax,) = figure()
        smallest = 1.0
        for position, (row, size) in enumerate(zip(rows, sizes, strict=True)):
            sigma = np.asarray(row.corpus().sigma)
            relative = sigma / sigma[0] if sigma[0] > 0 else sigma
            shown = relative[relative > FLOOR]
            smallest = min(smallest, float(shown.min(initial=1.0)))
            mark = MARKS[position % len(MARKS)].kwargs() | {"markevery": (position, max(len(shown) // 7, 1))}
            ax.plot(np.arange(1, len(shown) + 1), shown, label=f"k = {size}", gid=f"patch-{size}", **mark)
        ax.set_yscale("log")
        ax.set_ylim(max(FLOOR, smallest / 1.5), 1.5)
        ax.set_xlim(left=0)
        ax.set_xlabel("index $j$ of the singular value")
        ax.set_ylabel(r"$\sigma_j / \sigma_1$ of the embedding")
        fig.legend(loc="outside upper center", ncols=3, title="patch size")
    return fig


def _done(report: SweepReport) -> tuple[SweepRow, ...]:
    if not report.done:
        states = ", ".join(sorted({row.state for row in report.points}))
        raise OptionError(f"no point of sweep {report.name!r} is done ({states}): run the sweep first.")
    return report.done


def _mean_ranks(ax: Axes, report: SweepReport, field: str, start: SweepReport | None) -> None:
    _lines(ax, report, field, lambda ranks, key: ranks.mean_ranks[ALL][key], start)
    ax.set_ylabel("mean ε-rank of $W_Q$")


def _lines(ax: Axes, report: SweepReport, field: str, value: Value, start: SweepReport | None) -> None:
    """One line per ε over a binary logarithmic x axis, limits set; seeds are averaged, whiskers span them."""
    found = _by_value(report, field)
    xs = sorted(found)
    top = 0.0
    for mark, eps in zip(MARKS, sorted(report.eps), strict=False):
        ys = [[value(ranks, eps_key(eps)) for ranks in found[x]] for x in xs]
        top = max(top, *(max(y) for y in ys))
        _line(ax, xs, ys, mark, f"ε = {eps:g}")
    if start is not None and start.done:
        eps, before = max(report.eps), _by_value(start, field)
        means = [fmean(value(ranks, eps_key(eps)) for ranks in before[x]) for x in sorted(before)]
        top = max(top, *means)
        label = f"ε = {eps:g}, start"
        ax.plot(sorted(before), means, label=label, gid=label, color=START, linestyle="--", marker="x", zorder=1)
    ax.set_xscale("log", base=2)
    plain_ticks(ax.xaxis, xs)
    ax.set_xlim(xs[0] / 1.25, xs[-1] * 1.25)
    ax.set_ylim(0, max(top, 1.0) * 1.08)


def _by_value(report: SweepReport, field: str) -> dict[float, list[PointRanks]]:
    found: dict[float, list[PointRanks]] = {}
    for row in _done(report):
        if row.ranks is not None:
            found.setdefault(row.number(field), []).append(row.ranks)
    return found


def _logarithmic(ax: Axes) -> None:
    """Logarithmic ranks: an outlier leaves the others apart."""
    values = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in ax.lines])
    low, high = min(values[values > 0], default=1.0), max(values, default=1.0)
    ax.set_yscale("log", base=2)
    ax.set_ylim(low / 1.4, high * 1.4)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _line(ax: Axes, xs: Sequence[float], ys: Sequence[Sequence[float]], mark: Mark, label: str) -> None:
    means = [fmean(y) for y in ys]
    ax.plot(xs, means, label=label, gid=label, **mark.kwargs())
    if any(len(y) > 1 for y in ys):
        spans = [
            [m - min(y) for m, y in zip(means, ys, strict=True)],
            [max(y) - m for m, y in zip(means, ys, strict=True)],
        ]
        ax.errorbar(xs, means, yerr=spans, fmt="none", ecolor=mark.colour, elinewidth=0.7, capsize=2)


def _legend(fig: Figure, ax: Axes) -> None:
    handles, labels = ax.get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=4 if len(labels) == 4 else 3)
