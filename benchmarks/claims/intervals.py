"""Scores with their intervals, and ranges of numbers, as pages print them."""

from __future__ import annotations

from collections.abc import Iterable

from claims.records import Document

METRICS = ("MASE", "WQL")
Span = dict[str, float]


def interval(row: Document, metric: str) -> str:
    """Score with its 95 % interval."""
    low, high = row[f"{metric}_interval"]
    return f"{row[metric]:.3f} ({low:.3f}–{high:.3f})"


def span(values: Iterable[float]) -> Span:
    """Least and most."""
    found = list(values)
    return {"least": min(found), "most": max(found)}
