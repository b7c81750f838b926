"""Ranks of the bundled models' attention matrices, as the pages quote them."""

from __future__ import annotations

from claims.records import Claim, Document, Prose, Result

MODELS = ("bundled", "bundled-bolt", "bundled-2")
RESULTS: tuple[Result, ...] = tuple(Result(f"ranks-{one}", f"benchmarks/ranks.py {one}", minutes=0.5) for one in MODELS)


def over(found: Document, stack: str, *roles: str) -> Document:
    """Ranks of roles of a stack: least, most and mean over the layers."""
    ranks = [rank for role in roles for rank in found["trained"][stack][role]["rank"]]
    return {"least": min(ranks), "most": max(ranks), "mean": sum(ranks) / len(ranks)}


def queries(found: Document) -> Document:
    """Queries of self-attention in both stacks."""
    encoder, decoder = (over(found, stack, "self.q") for stack in ("encoder", "decoder"))
    return {"encoder": encoder, "decoder": decoder}


CLAIMS: tuple[Claim, ...] = (
    *(
        Prose("docs/benchmarks.md", f"ranks-{model}", words, values)
        for model, words, values in (
            (
                "bundled",
                "W_Q's 0.1-rank falls from {start[encoder][self.q][least]}–{start[encoder][self.q][most]} of 256 to "
                "{trained[encoder][self.q][rank][0]}, {trained[encoder][self.q][rank][1]}, "
                "{trained[encoder][self.q][rank][2]} and {trained[encoder][self.q][rank][3]} in layers 0 to 3 of the",
                lambda found: found,
            ),
            (
                "bundled-bolt",
                "and to {rank[0]}, {rank[1]}, {rank[2]} and {rank[3]} in the Bolt model",
                lambda found: found["trained"]["encoder"]["self.q"],
            ),
            (
                "bundled",
                "it does not: {own[0]}, {own[1]}, {own[2]}, {own[3]} (self) and "
                "{cross[0]}, {cross[1]}, {cross[2]}, {cross[3]} (cross)",
                lambda found: {
                    name: found["trained"]["decoder"][role]["rank"]
                    for name, role in (("own", "self.q"), ("cross", "cross.q"))
                },
            ),
            (
                "bundled",
                "W_V does not follow: its 0.1-rank is {least}–{most} in the T5 model",
                lambda found: {
                    "least": min(found["trained"][stack]["self.v"]["least"] for stack in ("encoder", "decoder")),
                    "most": max(found["trained"][stack]["self.v"]["most"] for stack in ("encoder", "decoder")),
                },
            ),
        )
    ),
    Prose(
        "docs/theory/over-parameterised.md",
        "ranks-bundled-bolt",
        "leaves them out of the means; their rows have {decoder[least]} to {decoder[most]}",
        queries,
    ),
    Prose(
        "docs/theory/over-parameterised.md",
        "ranks-bundled-bolt",
        "The queries of this encoder have ε-rank {encoder[least]} to {encoder[most]} of 256 at 0.1",
        queries,
    ),
    Prose(
        "docs/tutorial/first-steps.md",
        "ranks-bundled-bolt",
        "queries and keys of the encoder need {own[least]} to {own[most]} of 256 directions, those of cross-attention "
        "{cross[least]} to {cross[most]}",
        lambda found: {
            "own": over(found, "encoder", "self.q", "self.k"),
            "cross": over(found, "decoder", "cross.q", "cross.k"),
        },
    ),
)
