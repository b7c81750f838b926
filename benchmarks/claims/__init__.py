"""The registry: which command makes which result, and which numbers of which page come from it."""

from __future__ import annotations

from claims import (
    cards,
    compression,
    designs,
    figures,
    healing,
    lab,
    published_shapes,
    ranks,
    rates,
    roads,
    robustness,
    scores,
    speed,
    standards,
    students,
    table2,
    training,
)
from claims.records import Block, Claim, ClaimError, Document, Printed, Prose, Result

RESULTS: dict[str, Result] = {
    one.name: one
    for one in (
        *ranks.RESULTS,
        *scores.RESULTS,
        *compression.RESULTS,
        *healing.RESULTS,
        *students.RESULTS,
        *designs.RESULTS,
        *published_shapes.RESULTS,
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


STALE = {
    "changed": "To be measured again, because code, models or the command have changed since:",
    "not finished": "Not finished, and shown as far as they go:",
    "never": "Never measured:",
    "six": "Code has changed since; kept as measured, because the test sets are read only for what is final:",
}
"""How results that are not up to date are introduced, by the beginning of the reason."""


def stale_note() -> str:
    """Paragraphs that name the results that have to be measured again, and those on the test sets that are kept."""
    lists: dict[str, list[str]] = {words: [] for words in STALE.values()}
    for one in RESULTS.values():
        if why := one.stale():
            begins = next((begins for begins in STALE if why.startswith(begins)), "changed")
            lists[STALE["six" if one.reads_test_sets else begins]].append(f"`{one.name}`")
    written = [f"{words}\n{joined}." for words, names in lists.items() if (joined := ",\n".join(names))]
    return "\n\n".join(written) or "Every result is as new as the code and the models that it was measured with."


CLAIMS: tuple[Claim, ...] = (
    *scores.CLAIMS,
    *compression.CLAIMS,
    *healing.CLAIMS,
    *students.CLAIMS,
    *designs.CLAIMS,
    *published_shapes.CLAIMS,
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
