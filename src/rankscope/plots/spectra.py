"""Relative spectra of one role's matrices, layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from rankscope.errors import OptionError, unknown_choice
from rankscope.plots.labels import label_ends, sequence_colours, thinned
from rankscope.plots.style import figure, styled

if TYPE_CHECKING:
    from rankscope.measure.spectrum import SpectrumReport

FLOOR = 1e-6
"""Relative singular values below this are rounding of float32 weights."""


def spectra(report: SpectrumReport, *, role: str = "self.q", stack: str = "encoder") -> Figure:
    """σ_j/σ_1 of one role in every layer of a stack, labelled at the line ends (first layers dark).

    Args:
        report: measured with spectra, not with ranks only.
        role: e.g. ``self.q`` or ``mlp_in``.
        stack: ``encoder`` or ``decoder``.

    Raises:
        OptionError: the report has no such site, or no spectra.
    """
    rows = [row for row in report.sites if (row.site.stack, row.site.role) == (stack, role)]
    if not rows:
        choices = sorted({f"{row.site.stack} {row.site.role}" for row in report.sites})
        raise OptionError(unknown_choice("site", f"{stack} {role}", choices))
    values = [_relative(row.sigma) for row in rows if row.sigma is not None]
    if len(values) < len(rows):
        raise OptionError("the report holds ranks only: measure it with spectra to draw them.")
    with styled():
        fig, (ax,) = figure(height=2.3)
        lines = []
        for row, sigma, colour in zip(rows, values, sequence_colours(len(rows)), strict=True):
            lines += ax.plot(np.arange(1, len(sigma) + 1), sigma, color=colour, gid=row.site.name)
        ax.set_yscale("log")
        smallest = min(float(sigma[sigma > 0].min(initial=1.0)) for sigma in values)
        ax.set_ylim(max(FLOOR, smallest / 1.5), 1.5)
        ax.set_xlim(1, max(2, *(len(sigma) for sigma in values)))
        ax.set_xlabel("index $j$ of the singular value")
        ax.set_ylabel(r"$\sigma_j / \sigma_1$")
        ax.set_title(f"{stack}, {_role_title(role)}")
        shown = thinned(len(rows), 14)
        labels = [_layer_title(rows[i].site.layer) for i in shown]
        label_ends(ax, [lines[i] for i in shown], labels, height=1.7)
    return fig


def _relative(sigma: np.ndarray) -> np.ndarray:
    values = np.asarray(sigma, dtype=np.float64)
    return values / values[0] if values.size and values[0] > 0 else values


def _role_title(role: str) -> str:
    scope, _, letter = role.partition(".")
    return f"$W_{letter.upper()}$ of {scope}-attention" if letter else role


def _layer_title(layer: int | None) -> str:
    return "model" if layer is None else f"layer {layer}"
