"""Fig. 8: angles and spectra of embedded noise and sinusoids under four embedding strategies."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rankscope.analysis.embedding import EmbeddingSpectrum, measure_embedding
from rankscope.checkpoints import Checkpoint, describe, list_bundled
from rankscope.errors import DataError
from rankscope.figures import _models
from rankscope.figures._embedding import SIGNALS, angle_frame, corpus_size, mean_angle
from rankscope.figures._record import Drawn, Settings
from rankscope.plots.strategies import strategies

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
    rows = {kind: _rows(checkpoints, kind, settings) for kind in reversed(SIGNALS)}
    frames = []
    for kind, found in rows.items():
        frames.append(angle_frame({name: row.angles for name, row in found.items()}, "model").assign(quantity="angle"))
        frames += [
            pd.DataFrame(
                {
                    "model": name,
                    "index": np.arange(1, len(row.sigma) + 1),
                    "relative_sigma": row.relative,
                    "quantity": "spectrum",
                }
            )
            for name, row in found.items()
        ]
        for frame in frames[-1 - len(found) :]:
            frame.insert(0, "signal", kind)
    angles, ranks = [], []
    for name in rows["sine"]:
        of = {SIGNALS[kind]: found[name] for kind, found in rows.items()}
        angles.append(
            f"{name} {', '.join(f'{np.rad2deg(mean_angle(row.angles)):.0f}° ({x})' for x, row in of.items())}"
        )
        ranks.append(f"{name} {', '.join(f'{row.eps_ranks[EPS]} of {row.d_model} ({x})' for x, row in of.items())}")
    size = corpus_size(settings)
    caption = (
        f"Top: angles between the embedded vectors of the first {ITEMS} tokens of white noise and of sinusoids; "
        "bottom: "
        f"relative singular values of all embedded tokens ({size['n']} series of {size['length']} values of each "
        "signal, "
        f"seed {size['seed']}). Mean angles: {'; '.join(angles)}. ε-ranks, ε = {EPS}: {'; '.join(ranks)}. Measured on "
        f"{_models.listed(checkpoints)}."
    )
    return (Drawn(strategies(rows), pd.concat(frames, ignore_index=True), caption),)


def _rows(checkpoints: list[Checkpoint], kind: str, settings: Settings) -> dict[str, EmbeddingSpectrum]:
    report = measure_embedding(
        checkpoints, kind, **corpus_size(settings), angle_items=ITEMS, progress=settings.progress
    )
    found = {row.model: row for row in report.rows if row.matrix == "corpus"}
    for checkpoint in checkpoints:
        if checkpoint.source not in found:
            raise DataError(f"{checkpoint.source} embeds no series: figure 8 compares embedded signals.")
    return found
