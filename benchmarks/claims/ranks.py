"""Ranks of the bundled models' attention matrices, as the pages quote them."""

from __future__ import annotations

from claims.intervals import span
from claims.records import Claim, Document, Prose, Result

MODELS = ("bundled", "bundled-bolt", "bundled-2")
RESULTS: tuple[Result, ...] = tuple(Result(f"ranks-{one}", f"benchmarks/ranks.py {one}", minutes=0.5) for one in MODELS)


def over(found: Document, stack: str, *roles: str) -> Document:
    """Ranks of roles of a stack: least, most and mean over the layers."""
    ranks = [rank for role in roles for rank in found["trained"][stack][role]["rank"]]
    return {**span(ranks), "mean": sum(ranks) / len(ranks)}


def queries(found: Document) -> Document:
    """Queries of self-attention in both stacks."""
    encoder, decoder = (over(found, stack, "self.q") for stack in ("encoder", "decoder"))
    return {"encoder": encoder, "decoder": decoder}


def encoder_queries(found: Document) -> Document:
    """W_Q of self-attention in the encoder: ranks of the layers, and their range at the start."""
    start = found["start"]["encoder"]["self.q"]
    ranks = found["trained"]["encoder"]["self.q"]["rank"]
    return {"start": start, "rank": ranks, "grow": ranks[0] == min(ranks) and ranks[-1] > 1.5 * ranks[0]}


def mean_ranks(ranks: Document, stack: str) -> list[str]:
    """Mean ε-rank over the layers and attentions of a stack by projection: trained, and at the start in brackets."""
    cells = []
    for letter in "qkvo":
        means = []
        for state in ("trained", "start"):
            found = [
                one for role, row in ranks[state][stack].items() if role.endswith(f".{letter}") for one in row["rank"]
            ]
            means.append(sum(found) / len(found))
        cells.append(f"{means[0]:.0f} ({means[1]:.0f})")
    return cells


def at_start(found: Document) -> Document:
    """Ranks of all matrices before training."""
    ranks = [rank for stack in found["start"].values() for one in stack.values() for rank in one["rank"]]
    return span(ranks)


WIDTH = 256
"""Of the bundled models' attention matrices, which are square."""


def size_ratios(*found: Document) -> Document:
    """Share of the attention matrices' numbers that factors of their ε-ranks would have, by model and over all."""
    shares = {}
    for one in found:
        ranks = [rank for stack in one["trained"].values() for role in stack.values() for rank in role["rank"]]
        shares[one["model"].replace("-", "_")] = sum(min(2 * rank, WIDTH) for rank in ranks) / (WIDTH * len(ranks))
    return shares


CLAIMS: tuple[Claim, ...] = (
    *(
        Prose("docs/benchmarks.md", f"ranks-{model}", words, values, holds=holds)
        for model, words, values, holds in (
            (
                "bundled-bolt",
                "from {start[least]}–{start[most]} of 256 to {rank[0]}, {rank[1]}, {rank[2]} and {rank[3]} in "
                "layers 0 to 3 of the Bolt model",
                encoder_queries,
                lambda found: encoder_queries(found)["grow"],
            ),
            (
                "bundled-2",
                "and to {rank[0]}, {rank[1]}, {rank[2]}, {rank[3]}, {rank[4]} and {rank[5]} in the six layers of the "
                "Chronos-2 model",
                encoder_queries,
                lambda found: encoder_queries(found)["grow"],
            ),
            (
                "bundled",
                "it is {rank[0]}, {rank[1]}, {rank[2]} and {rank[3]} at the end, no lower in early layers than in "
                "late ones",
                encoder_queries,
                lambda found: not encoder_queries(found)["grow"],
            ),
        )
    ),
    Prose(
        "docs/benchmarks.md",
        "ranks-bundled-bolt",
        "in the Bolt model's encoder W_K ends at {keys[least]} to {keys[most]} and W_V and W_O at {values[least]} to "
        "{values[most]}",
        lambda found: {
            "keys": over(found, "encoder", "self.k"),
            "values": over(found, "encoder", "self.v", "self.o"),
        },
    ),
    Prose(
        "docs/theory/over-parameterised.md",
        "ranks-bundled-bolt",
        "leaves them out of the means; their ε-ranks are {decoder[least]} to {decoder[most]}",
        queries,
    ),
    Prose(
        "docs/theory/over-parameterised.md",
        "ranks-bundled-bolt",
        "The queries of this encoder have ε-rank {encoder[least]} to {encoder[most]} of 256",
        queries,
    ),
    Prose(
        "docs/theory/over-parameterised.md",
        "ranks-bundled-bolt",
        "has an ε-rank near full ({least} to {most} of 256 here)",
        at_start,
    ),
    Prose(
        "docs/index.md",
        "ranks-bundled-bolt",
        "values of a query matrix {encoder[least]} to {encoder[most]} are above a tenth of the largest",
        queries,
    ),
    Prose(
        "docs/tutorial/first-steps.md",
        "ranks-bundled-bolt",
        "Queries are low: {own[least]} to {own[most]} of 256 in the encoder, {cross[least]} to {cross[most]} in "
        "cross-attention",
        lambda found: {
            "own": over(found, "encoder", "self.q"),
            "cross": over(found, "decoder", "cross.q"),
        },
    ),
    Prose(
        "docs/benchmarks.md",
        "ranks-bundled",
        "at the same ε the attention matrices keep {bundled:.3f} of their parameters in the T5 model, "
        "{bundled_bolt:.3f} in the Bolt model and {bundled_2:.3f} in the Chronos-2 model",
        size_ratios,
        also=("ranks-bundled-bolt", "ranks-bundled-2"),
        holds=lambda *found: min(size_ratios(*found).values()) > 0.85,
    ),
)
