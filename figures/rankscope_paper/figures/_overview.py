"""Fig. 1: the three claims of the paper, each as a measurement."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rankscope.checkpoints import Checkpoint, describe, list_bundled
from rankscope.errors import RankscopeError
from rankscope.measure.spectrum import measure_spectrum
from rankscope.measure.table2 import Table2Report, read_table2
from rankscope.plots.labels import short_names
from rankscope.plots.overview import Overview, overview
from rankscope_paper.figures import _models
from rankscope_paper.figures._embedding import CORPUS, corpus_of, inputs_of, measured
from rankscope_paper.figures._record import Drawn, Settings
from rankscope_paper.figures._results import MAKE_TABLE, TABLES
from rankscope_paper.figures._saved import carried

EPS = 0.1
METHODS = {"svd": "SVD", "whitened": "whitened", "joint": "joint"}
"""Methods of Table 2 that are drawn: the paper's, and the two that look at what enters a layer."""


def models() -> tuple[str, ...]:
    """One model per modality and kind of embedding that this installation carries."""
    found = list(_models.REFERENCE)
    for modality in ("text", "image"):
        family = "t5" if modality == "text" else None
        name = next((one for one in list_bundled() if _is(one, modality, family)), None)
        found += [name] if name else []
    return tuple(found)


def draw_overview(settings: Settings) -> tuple[Drawn, ...]:
    """Draw embedding spectra by modality, ranks of W_Q by layer, and the cost of compression."""
    checkpoints = _models.opened(settings, () if settings.models else models())
    names = dict(
        zip((one.source for one in checkpoints), short_names([one.source for one in checkpoints]), strict=True)
    )
    report = measured(checkpoints, CORPUS, settings, angle_items=1)
    embeddings = {names[row.model]: row.relative for row in inputs_of(report).rows}
    depth = {names[one.source]: ranks for one in checkpoints if (ranks := _ranks(one, settings.device))}
    path = settings.data or carried(TABLES["bundled-bolt"], MAKE_TABLE)
    table = read_table2(path)
    cost = _cost(table)
    shown = Overview(embeddings, depth, EPS, cost, "WQL")
    spans = "; ".join(f"{name} {ranks[0]:.2f} to {ranks[-1]:.2f}" for name, ranks in depth.items())
    shares = "; ".join(f"{name} {(sigma > EPS).mean():.2f}" for name, sigma in embeddings.items())
    caption = (
        f"(a) Relative singular values of embedding matrices: of {corpus_of(report)} for series "
        f"models, of the vocabulary or of generated images for the others; share above {EPS:g}: {shares}. (b) "
        f"ε-rank of W_Q over the width in every encoder layer, ε = {EPS:g}, first to last: {spans}. (c) WQL of "
        f"{table.model} over the original's after compression, against the share of the attention's numbers that is "
        f"left. Panels a and b measured on {_models.listed(checkpoints)}, seed {settings.seed}; c from the saved "
        f"Table 2 of {table.model}."
    )
    return (Drawn(overview(shown), _frame(shown), caption),)


def _is(name: str, modality: str, family: str | None) -> bool:
    try:
        found = describe(name).family
    except RankscopeError:
        return False
    return found.modality == modality and family in (None, found.name)


def _ranks(checkpoint: Checkpoint, device: str) -> list[float]:
    rows = measure_spectrum(checkpoint, (EPS,), ("q",), device=device).sites
    return [
        row.eps_ranks[repr(EPS)] / min(row.shape)
        for row in rows
        if row.site.stack == "encoder" and row.site.role == "self.q"
    ]


def _cost(table: Table2Report) -> dict[str, tuple[list[float], list[float]]]:
    found: dict[str, tuple[list[float], list[float]]] = {}
    for method, title in METHODS.items():
        best: dict[float, tuple[float, float]] = {}
        for row in table.rows:
            size, score = row.median.reached, row.median.relative_WQL
            if row.method != method or size is None or score is None:
                continue
            if row.ratio not in best or score < best[row.ratio][1]:
                best[row.ratio] = (size, score)
        if best:
            sizes, scores = zip(*sorted(best.values()), strict=True)
            found[title] = (list(sizes), list(scores))
    return found


def _frame(shown: Overview) -> pd.DataFrame:
    rows = [
        ("a", name, "relative_sigma", (j + 1) / len(sigma), float(value))
        for name, sigma in shown.embeddings.items()
        for j, value in enumerate(np.asarray(sigma))
    ]
    rows += [
        ("b", name, "relative_rank", float(layer), rank)
        for name, ranks in shown.depth.items()
        for layer, rank in enumerate(ranks)
    ]
    rows += [
        ("c", method, "relative_WQL", size, score)
        for method, (sizes, scores) in shown.cost.items()
        for size, score in zip(sizes, scores, strict=True)
    ]
    return pd.DataFrame(rows, columns=["panel", "line", "quantity", "x", "value"])
