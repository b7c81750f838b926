"""Size ratio of a factored model against the tolerance ε (Q7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from matplotlib.figure import Figure

from rankscope.errors import OptionError
from rankscope.numerics import eps_ranks, size_ratio
from rankscope.plots.labels import short_names
from rankscope.plots.style import MARKS, figure, styled

if TYPE_CHECKING:
    from rankscope.measure.spectrum import SpectrumReport


def size_by_eps(curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Figure:
    """Size ratio against ε on a logarithmic axis, one line per model.

    Args:
        curves: model → (ε, size ratio), ε above 0.

    Raises:
        OptionError: no curve.
    """
    if not curves:
        raise OptionError("curves is empty: give at least one model.")
    with styled():
        fig, (ax,) = figure(height=2.2 if len(curves) == 1 else 2.5)
        names = short_names(list(curves))
        for i, (name, (eps, ratios)) in enumerate(zip(names, curves.values(), strict=True)):
            mark = MARKS[i % len(MARKS)].kwargs() | {"markevery": max(len(eps) // 8, 1)}
            ax.plot(eps, ratios, label=name, gid=name, **mark)
        ax.set_xscale("log")
        ax.set_ylim(0, 1.05)
        ax.set_xlabel("tolerance ε")
        ax.set_ylabel("size ratio")
        if len(curves) > 1:
            fig.legend(loc="outside upper left", ncols=1)
        else:
            ax.set_title(names[0])
    return fig


def size_of_report(report: SpectrumReport, eps: Sequence[float] | None = None) -> tuple[list[float], list[float]]:
    """Size ratio of the report's attention matrices at each ε, by default 61 of them from 1e-4 to 0.5.

    Raises:
        OptionError: the report holds ranks only.
    """
    levels = list(eps) if eps is not None else np.geomspace(1e-4, 0.5, 61).tolist()
    rows = [row for row in report.sites if row.site.kind == "attention"]
    if not rows or any(row.sigma is None for row in rows):
        raise OptionError("the report holds no spectra of attention matrices: measure them, not ranks only.")
    ranks = torch.stack([eps_ranks(torch.as_tensor(row.sigma), levels) for row in rows])
    shapes = [(int(row.shape[0]), int(row.shape[1])) for row in rows]
    return levels, [size_ratio(shapes, column.tolist()) for column in ranks.T]
