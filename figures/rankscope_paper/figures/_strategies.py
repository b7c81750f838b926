"""Fig. 8: angles and spectra of embedded noise and sinusoids under four embedding strategies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from rankscope.checkpoints import Checkpoint, describe, list_bundled
from rankscope.errors import DataError
from rankscope.measure.embedding import EmbeddingReport, EmbeddingSpectrum
from rankscope.plots.strategies import strategies
from rankscope_paper.figures import _models
from rankscope_paper.figures._embedding import SIGNALS, angle_frame, mean_angle, measured
from rankscope_paper.figures._record import Drawn, Settings

FAMILIES = ("chronos-t5", "chronos-bolt", "wavetoken", "time-moe")
"""The four strategies of the paper, by family."""
EPS = "0.1"
ITEMS = 64
"""Tokens of an angle map."""


def models() -> tuple[str, ...]:
    """Of each of the four families the first checkpoint that this installation carries."""
    carried = {name: describe(name).family.name for name in _models.bundled()} if list_bundled() else {}
    found = (next((name for name, family in carried.items() if family == wanted), None) for wanted in FAMILIES)
    return tuple(name for name in found if name is not None)


def draw_strategies(settings: Settings) -> tuple[Drawn, ...]:
    """Measure every model under both signals, and draw their angles and spectra."""
    checkpoints = _models.opened(settings, models())
    reports = {kind: measured(checkpoints, kind, settings, ITEMS) for kind in reversed(SIGNALS)}
    rows = {kind: _rows(report, checkpoints) for kind, report in reports.items()}
    angles, ranks = [], []
    for name in rows["sine"]:
        of = {SIGNALS[kind]: found[name] for kind, found in rows.items()}
        means = (f"{np.rad2deg(mean_angle(row.angles)):.0f}° ({signal})" for signal, row in of.items())
        angles.append(f"{name} {', '.join(means)}")
        ranks.append(f"{name} {', '.join(f'{row.eps_ranks[EPS]} of {row.d_model} ({x})' for x, row in of.items())}")
    size = reports["sine"]
    caption = (
        f"Top: angles between the embedded vectors of the first tokens ({ITEMS} at most) of white noise and of "
        f"sinusoids; bottom: relative singular values of all embedded tokens ({size.n} series of {size.length} "
        f"values of each signal, seed {size.seed}). Mean angles: {'; '.join(angles)}. ε-ranks, ε = {EPS}: "
        f"{'; '.join(ranks)}. Measured on {_models.listed(checkpoints)}."
    )
    return (Drawn(strategies(rows), _frame(rows), caption),)


def _rows(report: EmbeddingReport, checkpoints: Sequence[Checkpoint]) -> dict[str, EmbeddingSpectrum]:
    found = {row.model: row for row in report.rows if row.matrix == "corpus"}
    for checkpoint in checkpoints:
        if checkpoint.source not in found:
            raise DataError(f"{checkpoint.source} embeds no series: figure 8 compares embedded signals.")
    return found


def _frame(rows: Mapping[str, Mapping[str, EmbeddingSpectrum]]) -> pd.DataFrame:
    """Angles and relative singular values, told apart by ``quantity``."""
    frames = []
    for kind, found in rows.items():
        pairs = angle_frame({name: row.angles for name, row in found.items()}, "model")
        frames.append(pairs.assign(signal=kind, quantity="angle"))
        for name, row in found.items():
            index = np.arange(1, len(row.sigma) + 1)
            sigma = pd.DataFrame({"model": name, "index": index, "relative_sigma": row.relative})
            frames.append(sigma.assign(signal=kind, quantity="spectrum"))
    table = pd.concat(frames, ignore_index=True)
    whole = dict.fromkeys(("row", "column", "index"), "Int64")
    return table[["signal", "model", "quantity", "row", "column", "degrees", "index", "relative_sigma"]].astype(whole)
