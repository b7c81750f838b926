"""The registry: which command makes which result, and which numbers of which page come from it."""

from __future__ import annotations

from claims import (
    cards,
    designs,
    figures,
    healing,
    lab,
    ranks,
    rates,
    roads,
    robustness,
    scores,
    speed,
    standards,
    table2,
    training,
)
from claims.records import Block, Claim, ClaimError, Document, Printed, Prose, Result

RESULTS: dict[str, Result] = {
    one.name: one
    for one in (
        *ranks.RESULTS,
        *scores.RESULTS,
        *healing.RESULTS,
        *designs.RESULTS,
        *roads.RESULTS,
        *standards.RESULTS,
        *training.RESULTS,
        *speed.RESULTS,
        *table2.RESULTS,
        *robustness.RESULTS,
        *figures.RESULTS,
        *cards.RESULTS,
        *lab.RESULTS,
    )
}
"""In the order in which they are measured: what README and cards print comes first."""


def stale_note() -> str:
    """Sentence that names the results that have to be measured again."""
    names = [f"`{name}`" for name, result in RESULTS.items() if result.stale()]
    if not names:
        return "Every result is as new as the code and the models that it was measured with."
    first = "To be measured again, because code or models have changed since, or never measured:"
    return "\n".join([first, *(f"{name}," for name in names[:-1]), f"{names[-1]}."])


CLAIMS: tuple[Claim, ...] = (
    *scores.CLAIMS,
    *healing.CLAIMS,
    *designs.CLAIMS,
    *roads.CLAIMS,
    *standards.CLAIMS,
    *training.CLAIMS,
    *speed.CLAIMS,
    *rates.CLAIMS,
    *ranks.CLAIMS,
    *table2.CLAIMS,
    *robustness.CLAIMS,
    *figures.CLAIMS,
    *cards.CLAIMS,
    *lab.CLAIMS,
    Block("docs/benchmarks.md", "stale", (), stale_note, moves=float("inf")),
)

__all__ = ["RESULTS", "CLAIMS", "Block", "Claim", "ClaimError", "Document", "Printed", "Prose", "Result"]
