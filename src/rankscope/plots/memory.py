"""Memory of forecasts of a long file over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rankscope.plots.style import MARKS, figure, styled


def memory_over_time(result: Mapping[str, Any]) -> Figure:
    """Draw the resident memory of an undisturbed run, and of one that was killed and resumed.

    Args:
        result: what ``benchmarks/stream.py`` writes: ``runs`` with ``whole``, ``killed`` and ``resumed``, each with
            ``samples`` of seconds, megabytes and finished parts.
    """
    with styled():
        fig, (axes,) = figure()
        killed = result["runs"]["killed"]["samples"][-1][0]
        unit, seconds = ("minutes", 60.0) if result["runs"]["whole"]["samples"][-1][0] > 300 else ("seconds", 1.0)
        for mark, name in zip(MARKS, ("whole", "killed", "resumed"), strict=False):
            samples = np.array(result["runs"][name]["samples"])
            shift = killed if name == "resumed" else 0.0
            axes.plot(
                (samples[:, 0] + shift) / seconds, samples[:, 1], color=mark.colour, linestyle=mark.dash, label=name
            )
        axes.axvline(killed / seconds, color="black", linestyle=":", linewidth=0.8)
        axes.set(xlabel=unit, ylabel="resident memory (MB)", ylim=(0, None))
        axes.legend()
    return fig
