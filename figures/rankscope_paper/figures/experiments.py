"""Fig. 9, 10, 11: the experiments of App. F, saved or run again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from rankscope.errors import DataError
from rankscope.io import codec
from rankscope.plots.labels import plain_ticks
from rankscope.plots.style import MARKS, SEQUENCE, figure, styled
from rankscope_paper.experiments import (
    EXPERIMENTS,
    ExperimentResult,
    F1Result,
    F2Result,
    F3Result,
    Slope,
    run_experiment,
)
from rankscope_paper.figures.recipe import Drawn, Option, Recipe, Settings, carried

GUIDE = "#9a9a9a"
_SMALLEST = {"1e-5": "10^{-5}", "exp(-5)": "e^{-5}"}
_EVERY = 25
"""Of a run at every rank, one point in so many gets a marker."""


def figure9(result: F1Result) -> Figure:
    """Error of truncated attention against σ_{r+1}, and against the width d, with lines of slope 1 and ½ (Fig. 9)."""
    with styled():
        fig, (left, right) = figure(1, 2)
        for mark, reading in zip(MARKS, result.readings, strict=False):
            run = reading.runs[0]
            label = rf"$\sigma_d = {_SMALLEST[reading.name]}$: {_plus_minus(reading.slope)}"
            every = max(1, len(run.sigma) // _EVERY)
            left.loglog(run.sigma, run.error, label=label, gid=reading.name, markevery=every, **mark.kwargs())
        first = result.readings[0]
        sigma = np.array([first.runs[0].sigma.min(), first.runs[0].sigma.max()])
        middle = np.median(first.runs[0].error / first.runs[0].sigma)
        left.loglog(sigma, sigma * middle / 6, color=GUIDE, linewidth=0.8, linestyle="--", label="slope 1", zorder=0)
        left.set(xlabel=r"$\sigma_{r+1}$", ylabel=r"error $\|Y-\tilde Y\|_F$")
        left.set_title(f"d = {result.d_model}, N = {result.tokens}")
        _above(left)
        _widths(right, result)
    return fig


def _widths(ax: Axes, result: F1Result) -> None:
    panel, mark = result.width, MARKS[2]
    middle = np.exp(np.log(panel.error).mean(axis=1))
    low, high = np.quantile(panel.error, [0.1, 0.9], axis=1)
    ax.vlines(panel.widths, low, high, color=mark.colour, linewidth=0.7)
    ax.loglog(panel.widths, middle, label=f"r = {panel.rank}: {_plus_minus(panel.slope)}", gid="width", **mark.kwargs())
    ends = panel.widths[[0, -1]].astype(float)
    guide = middle[0] * 0.6 * np.sqrt(ends / ends[0])
    ax.loglog(ends, guide, color=GUIDE, linewidth=0.8, linestyle="--", label="slope ½", zorder=0)
    ax.set(xlabel="width $d$")
    ax.set_title(f"{panel.error.shape[1]} draws per width")
    plain_ticks(ax.xaxis, panel.widths[[0, len(panel.widths) // 2, -1]])
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    _above(ax)


def figure10(result: F2Result) -> Figure:
    """Spectrum of the input with the rank that h sketches are worth, and their distance to it against h (Fig. 10)."""
    with styled():
        fig, (left, right) = figure(1, 2)
        index = np.arange(1, result.d_model + 1)
        left.semilogy(index, result.sigma, color=MARKS[0].colour, gid="spectrum")
        colours = mpl.colormaps[SEQUENCE](np.linspace(0, 0.85, len(result.heads)))
        worth = np.median(result.sparse_index, axis=1)
        shown = int(min(result.d_model, 1.15 * worth.max()))
        bottom = result.sigma[shown - 1] / 3
        for h, j, colour in zip(result.heads, worth, colours, strict=True):
            left.vlines(j, bottom, result.sigma[int(j) - 1], color=colour, linewidth=0.9, gid=f"h-{h}")
        tall = [row for row, h in enumerate(result.heads) if h >= result.heads[-1] // 4]
        for row in tall:
            left.annotate(
                f"{result.heads[row]}",
                (worth[row], result.sigma[int(worth[row]) - 1]),
                xytext=(1, 2),
                textcoords="offset points",
            )
        left.set(xlim=(0, shown), ylim=(bottom, 1.6), xlabel="$j$", ylabel=r"$\sigma_j(X)/\sigma_1(X)$")
        left.set_title("rank reached, by $h$")
        pairs = (("sparse", result.sparse, MARKS[0]), ("dense", result.dense, MARKS[1]))
        for name, values, mark in pairs:
            right.loglog(result.heads, np.median(values, axis=1), label=name, gid=name, **mark.kwargs())
        right.set(xlabel="heads $h$", ylabel="distance (eq. 18)")
        right.set_title(f"r = {result.rank}, d = {result.d_model}")
        plain_ticks(right.xaxis, result.heads[::2] if len(result.heads) > 6 else result.heads)
        right.legend(loc="lower left")
    return fig


def figure11(result: F3Result) -> Figure:
    """Relative singular values of X and of MH-Attn(X) + X for each number of heads (Fig. 11)."""
    with styled():
        fig, (ax,) = figure()
        index = np.arange(1, result.d_model + 1)
        ax.semilogy(index, result.sigma_in, color="black", linestyle=(0, (4, 2)), label="input", gid="input")
        colours = mpl.colormaps[SEQUENCE](np.linspace(0, 0.9, len(result.heads)))
        for row, (h, colour) in enumerate(zip(result.heads, colours, strict=True)):
            mark = MARKS[row % len(MARKS)]
            at = int(len(index) * 0.06 * (1 + row))
            every = (at, len(index) // 2)
            face = colour if mark.filled else "white"
            line = {
                **mark.kwargs(),
                "color": colour,
                "markerfacecolor": face,
                "linestyle": "-",
                "markevery": every,
                "linewidth": 0.9,
            }
            ax.semilogy(index, result.sigma_out[0, row], label=f"h = {h}", gid=f"h-{h}", **line)
        floor = max(result.sigma_in.min(), 10 ** np.floor(np.log10(result.sigma_out[0].min())))
        ax.set(xlabel="$j$", ylabel=r"$\sigma_j/\sigma_1$", xlim=(0, result.d_model), ylim=(floor, 1.6))
        ax.legend(ncols=1, loc="center left", bbox_to_anchor=(1.0, 0.5))
        ax.set_title(f"d = {result.d_model}, L = {result.tokens}; upper line: more heads")
    return fig


def _plus_minus(slope: Slope) -> str:
    return f"{slope.value:.2f} ± {(slope.high - slope.low) / 2:.2f}"


def _above(ax: Axes) -> None:
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.12), handlelength=1.8)


def _truncation(result: F1Result) -> str:
    slopes = "; ".join(f"{one.slope.text(3)} for σ_d = {one.name}" for one in result.readings)
    return (
        f"Left: ‖Y − Ỹ‖_F of attention whose three matrices are truncated to rank r, against σ_{{r+1}}, d = "
        f"{result.d_model}, {result.tokens} tokens; fitted exponents (1 in theory): {slopes}. Right: against the "
        f"width d at r = {result.width.rank} with the leading spectrum fixed; exponent (½ in theory) "
        f"{result.width.slope.text(3)}."
    )


def _sketches(result: F2Result) -> str:
    worth = ", ".join(
        f"{index:g} at h = {h}" for h, index in _ends(result.heads, np.median(result.sparse_index, axis=1))
    )
    return (
        f"Left: singular values of X; right: distance ‖QQᵀXᵀ − Xᵀ‖₂ of h sparse sketches of {result.rank} rows each, "
        f"beside one dense sketch of as many rows, d = {result.d_model}. Rank that the sketches are worth: {worth}; "
        f"exponent over h {result.slope.text(3)}."
    )


def _outputs(result: F3Result) -> str:
    means = result.rank_out.mean(axis=0)
    lines = []
    for i, eps in enumerate(result.eps):
        grown = ", ".join(f"{rank:.4g} at h = {h}" for h, rank in _ends(result.heads, means[:, i]))
        falls = "never falls" if result.monotone[i] else "falls at some h"
        lines.append(f"ε = {eps:g}: {result.rank_in[i]} in X, {grown} ({falls})")
    return (
        f"Relative singular values of X and of Y = MH-Attn(X) + X, d = {result.d_model}, {result.tokens} tokens. "
        f"Mean ε-ranks: {'; '.join(lines)}."
    )


def _ends(heads: np.ndarray, values: np.ndarray) -> list[tuple[int, float]]:
    """First, middle and last."""
    picked = sorted({0, len(heads) // 2, len(heads) - 1})
    return [(int(heads[i]), float(values[i])) for i in picked]


def _recipe(
    number: str, name: str, title: str, shows: str, plot: Callable[[Any], Figure], text: Callable[[Any], str]
) -> Recipe:
    make = f"rankscope theory {name} --out FILE.json"

    def draw(settings: Settings) -> Drawn:
        result = _result(name, settings, make)
        size = "reduced size" if result.quick else "published size"
        saved = "" if settings.rerun or settings.quick else ", read from the saved result"
        caption = f"{text(result)} Random matrices, no checkpoint; {size}, seed {result.seed}{saved}."
        return Drawn(plot(result), result.to_frame(), caption, seed=result.seed)

    options: tuple[Option, ...] = ("data", "quick", "rerun", "seed")
    return Recipe(draw, number, title, shows, options, data=(f"{name}.json",), make=make)


def _result(name: str, settings: Settings, make: str) -> ExperimentResult:
    if settings.data is None and (settings.rerun or settings.quick):
        return run_experiment(name, quick=settings.quick, seed=settings.seed, progress=settings.progress)
    file = codec.find(settings.data or carried(f"{name}.json", make), f"{name}.json")
    document = codec.load(file)
    # what `rankscope theory --out FILE.json` wrote has them all
    inside = document.get("experiments", [document]) if isinstance(document, dict) else []
    found = [one for one in inside if isinstance(one, dict) and one.get("id") == name]
    if not found:
        raise DataError(f"{file} holds no experiment {name}: run `{make}`.")
    return codec.parse(EXPERIMENTS[name].kind, found[0], str(file))


fig9 = _recipe(
    *("9", "f1", "Error of truncated attention", "slope 1 over σ_{r+1}, slope ½ over d"), figure9, _truncation
)
fig10 = _recipe(
    *("10", "f2", "Sketches of many heads", "more heads of sparse sketches reach deeper"), figure10, _sketches
)
fig11 = _recipe(
    *("11", "f3", "Rank of an attention layer's output", "it grows with the number of heads"), figure11, _outputs
)
