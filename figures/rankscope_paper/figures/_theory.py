"""Fig. 9, 10, 11: the experiments of App. F, saved or run again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rankscope.errors import DataError
from rankscope.io import codec
from rankscope_paper.experiments import (
    EXPERIMENTS,
    ExperimentResult,
    F1Result,
    F2Result,
    F3Result,
    Slope,
    run_experiment,
)
from rankscope_paper.figures._record import Drawn, Settings, carried
from rankscope_paper.figures.theory_plots import figure9, figure10, figure11

FIGURES: dict[str, Callable[[Any], Figure]] = {"f1": figure9, "f2": figure10, "f3": figure11}


def draw_truncation(settings: Settings) -> tuple[Drawn, ...]:
    """Fig. 9: error of truncated attention against σ_{r+1} and against d."""
    result = _result("f1", settings)
    assert isinstance(result, F1Result)
    slopes = "; ".join(f"{_slope(one.slope)} for σ_d = {one.name}" for one in result.readings)
    text = (
        f"Left: ‖Y − Ỹ‖_F of attention whose three matrices are truncated to rank r, against σ_{{r+1}}, d = "
        f"{result.d_model}, {result.tokens} tokens; fitted exponents (1 in theory): {slopes}. Right: against the "
        f"width d at r = {result.width.rank} with the leading spectrum fixed; exponent (½ in theory) "
        f"{_slope(result.width.slope)}."
    )
    return _drawn("f1", result, text, settings)


def draw_sketches(settings: Settings) -> tuple[Drawn, ...]:
    """Fig. 10: sparse sketches, one per head, against a single dense one."""
    result = _result("f2", settings)
    assert isinstance(result, F2Result)
    worth = ", ".join(
        f"{index:g} at h = {h}" for h, index in _ends(result.heads, np.median(result.sparse_index, axis=1))
    )
    text = (
        f"Left: singular values of X; right: distance ‖QQᵀXᵀ − Xᵀ‖₂ of h sparse sketches of {result.rank} rows each, "
        f"beside one dense sketch of as many rows, d = {result.d_model}. Rank that the sketches are worth: {worth}; "
        f"exponent over h {_slope(result.slope)}."
    )
    return _drawn("f2", result, text, settings)


def draw_heads(settings: Settings) -> tuple[Drawn, ...]:
    """Fig. 11: spectrum of an attention layer's output for more and more heads."""
    result = _result("f3", settings)
    assert isinstance(result, F3Result)
    means = result.rank_out.mean(axis=0)
    lines = []
    for i, eps in enumerate(result.eps):
        grown = ", ".join(f"{rank:.4g} at h = {h}" for h, rank in _ends(result.heads, means[:, i]))
        falls = "never falls" if result.monotone[i] else "falls at some h"
        lines.append(f"ε = {eps:g}: {result.rank_in[i]} in X, {grown} ({falls})")
    text = (
        f"Relative singular values of X and of Y = MH-Attn(X) + X, d = {result.d_model}, {result.tokens} tokens. "
        f"Mean ε-ranks: {'; '.join(lines)}."
    )
    return _drawn("f3", result, text, settings)


def _result(name: str, settings: Settings) -> ExperimentResult:
    if settings.data is None and (settings.rerun or settings.quick):
        return run_experiment(name, quick=settings.quick, seed=settings.seed, progress=settings.progress)
    path = settings.data or carried(f"{name}.json", f"rankscope theory {name} --out FILE.json")
    file = codec.find(path, f"{name}.json")
    document = codec.load(file)
    # what `rankscope theory --out FILE.json` wrote has them all
    inside = document.get("experiments", [document]) if isinstance(document, dict) else []
    found = [one for one in inside if isinstance(one, dict) and one.get("id") == name]
    if not found:
        raise DataError(f"{file} holds no experiment {name}: run `rankscope theory {name} --out FILE.json`.")
    return codec.parse(EXPERIMENTS[name].kind, found[0], str(file))


def _drawn(name: str, result: ExperimentResult, text: str, settings: Settings) -> tuple[Drawn, ...]:
    size = "reduced size" if result.quick else "published size"
    saved = "" if settings.rerun or settings.quick else ", read from the saved result"
    caption = f"{text} Random matrices, no checkpoint; {size}, seed {result.seed}{saved}."
    return (Drawn(FIGURES[name](result), result.to_frame(), caption),)


def _slope(slope: Slope) -> str:
    return f"{slope.value:.3f} (95 %: {slope.low:.3f} to {slope.high:.3f})"


def _ends(heads: np.ndarray, values: np.ndarray) -> list[tuple[int, float]]:
    """First, middle and last."""
    picked = sorted({0, len(heads) // 2, len(heads) - 1})
    return [(int(heads[i]), float(values[i])) for i in picked]
