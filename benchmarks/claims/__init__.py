"""The registry: which command makes which result, and which numbers of which page come from it."""

from __future__ import annotations

from claims import readme, speed
from claims.records import Block, Claim, ClaimError, Document, Printed, Prose, Result

RESULTS: dict[str, Result] = {one.name: one for one in (*readme.RESULTS, *speed.RESULTS)}
"""In the order in which they are measured: what README and cards print comes first."""


def stale_note() -> str:
    """Sentence that names the results that have to be measured again."""
    names = [f"`{name}`" for name, result in RESULTS.items() if result.stale()]
    if not names:
        return "Every result is as new as the code and the models that it was measured with."
    return f"To be measured again, because code or models have changed since, or never measured: {', '.join(names)}."


CLAIMS: tuple[Claim, ...] = (
    *readme.CLAIMS,
    *speed.CLAIMS,
    Block("docs/benchmarks.md", "stale", (), stale_note, moves=float("inf")),
)

__all__ = ["RESULTS", "CLAIMS", "Block", "Claim", "ClaimError", "Document", "Printed", "Prose", "Result"]
