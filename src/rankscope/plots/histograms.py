"""Relative singular values of two matrices per layer as histograms, model beside model (Fig. 12)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter

from rankscope.errors import OptionError
from rankscope.plots.labels import short_names, thinned
from rankscope.plots.style import MARKS, figure, styled

if TYPE_CHECKING:
    from rankscope.measure.spectrum import SiteSpectrum, SpectrumReport

HISTOGRAM_ROLES = {"self.q": "W_Q", "mlp_in": "W_MLP"}
"""Roles that are drawn, and how numbers and captions name them."""
_TITLES = {"self.q": "$W_Q$", "mlp_in": "$W_{MLP}$"}
DECADES = 5
BINS_PER_DECADE = 5
MOST_LAYERS = 6
_LOWEST = 10.0**-DECADES


def histograms(reports: Sequence[SpectrumReport]) -> Figure:
    """One row of panels per model, one column per matrix; in a panel one histogram per encoder layer.

    Within a panel all layers share one scale; the highest bar of the panel fills nine tenths of a layer's band. Values
    at or below 1e-5 are left out, as in the paper.

    Args:
        reports: spectra of the encoders; matrices of other roles than those of `HISTOGRAM_ROLES` are left out.

    Raises:
        OptionError: no report, or one without spectra of such a matrix.
    """
    if not reports:
        raise OptionError("there is no report: measure at least one model.")
    rows = {report.model: _rows(report) for report in reports}
    names = short_names(list(rows))
    with styled():
        fig, axes = figure(len(rows), 2, height=0.75 + sum(0.42 + 0.19 * _bands(one) for one in rows.values()))
        for line, (name, one) in enumerate(zip(names, rows.values(), strict=True)):
            for column, role in enumerate(_TITLES):
                ax = axes[2 * line + column]
                _panel(ax, one.get(role, []), f"{name}, {_TITLES[role]}")
                if line == len(rows) - 1:
                    ax.set_xlabel(r"$\sigma_j / \sigma_1$")
                if column == 0:
                    ax.set_ylabel("layer")
        patches = [Patch(facecolor=_shade(i), edgecolor=_EDGE, linewidth=0.4) for i in range(DECADES)]
        labels = [f"$10^{{{i - DECADES}}}$–$10^{{{i - DECADES + 1}}}$" for i in range(DECADES)]
        fig.legend(
            patches,
            labels,
            loc="outside lower center",
            ncols=DECADES,
            handlelength=0.9,
            columnspacing=0.7,
            handletextpad=0.3,
        )
    return fig


def counts(sigma: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number of relative singular values in each bin of ``(1e-5, 1]``, and the edges of the bins.

    Bins are open to the left, so that decades are the paper's ``(1e-2, 1e-1]``.

    >>> found, edges = counts(np.array([2.0, 0.2, 0.02, 0.0]))
    >>> [int(count) for count in found[found > 0]], len(edges)
    ([1, 1, 1], 26)
    """
    edges = np.geomspace(_LOWEST, 1.0, DECADES * BINS_PER_DECADE + 1)
    relative = np.asarray(sigma, dtype=np.float64)
    relative = relative / relative.max() if relative.size and relative.max() > 0 else relative
    # a value on an edge belongs below it; the tolerance is that of the edges, which are rounded themselves
    place = np.searchsorted(edges * (1 + 1e-12), relative[relative > _LOWEST], side="left") - 1
    return np.bincount(np.clip(place, 0, len(edges) - 2), minlength=len(edges) - 1), edges


_EDGE = "#4a4a4a"


def _shade(decade: int) -> str:
    """Dark for the smallest singular values, fainter for every decade above."""
    base, white = np.array(to_rgb(MARKS[0].colour)), np.ones(3)
    return to_hex(base + (white - base) * (0.06 + 0.21 * decade))


def _rows(report: SpectrumReport) -> dict[str, list[SiteSpectrum]]:
    found: dict[str, list[SiteSpectrum]] = {}
    for row in report.sites:
        if row.site.role in _TITLES and row.site.stack == "encoder" and row.sigma is not None:
            found.setdefault(row.site.role, []).append(row)
    if not found:
        raise OptionError(f"the report of {report.model} has no spectra of W_Q or W_MLP in an encoder: measure them.")
    return {role: [one[i] for i in thinned(len(one), MOST_LAYERS)] for role, one in found.items()}


def _bands(rows: dict[str, list[SiteSpectrum]]) -> int:
    return max(len(one) for one in rows.values())


def _panel(ax: Axes, rows: Sequence[SiteSpectrum], title: str) -> None:
    ax.set_title(title)
    ax.set_xscale("log")
    ax.set_xlim(_LOWEST, 1.0)
    ax.xaxis.set_major_locator(FixedLocator([10.0**-p for p in range(DECADES, -1, -1)]))
    ax.xaxis.set_minor_locator(LogLocator(subs=[]))
    ax.xaxis.set_minor_formatter(NullFormatter())
    found = [counts(np.asarray(row.sigma)) for row in rows]
    top = max((int(count.max()) for count, _ in found), default=0) or 1
    for band, ((count, edges), row) in enumerate(zip(found, rows, strict=True)):
        floor = len(rows) - 1 - band
        colours = [_shade(i // BINS_PER_DECADE) for i in range(len(count))]
        ax.bar(
            edges[:-1],
            0.9 * count / top,
            np.diff(edges),
            bottom=floor,
            align="edge",
            color=colours,
            edgecolor=_EDGE,
            linewidth=0.3,
            gid=f"{row.site.name}",
        )
        ax.axhline(floor, color=_EDGE, linewidth=0.4)
    ax.set_ylim(0, max(len(rows), 1))
    ax.set_yticks([len(rows) - 1 - band + 0.4 for band in range(len(rows))], [str(row.site.layer) for row in rows])
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
