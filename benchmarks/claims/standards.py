"""Bundled models on tasks that the field reports: fev-bench and GIFT-Eval."""

from __future__ import annotations

from claims.records import Block, Claim, Document, Prose, Result, table

PAGE = "docs/benchmarks.md"
ETT = ("ETT_1H", "ETT_1D", "ETT_1W")
HOURS = "m4_hourly/H/short"

RESULTS: tuple[Result, ...] = (
    Result("standards", "benchmarks/standards.py --data {six} --published {six}/../../reference", minutes=90),
)


def tables(found: Document) -> str:
    """Scores by task, of bundled models first, then of published ones."""
    made = []
    for suite, title in (("fev-bench", "fev-bench"), ("gift-eval", "GIFT-Eval")):
        first = next(iter(found[suite].values()))["ours"]
        metrics = list(next(iter(first.values())))
        rows = []
        for task, both in found[suite].items():
            rows += [(task, f"`{name}`, here", scores) for name, scores in both["ours"].items()]
            rows += [(task, f"{name}, published", scores) for name, scores in both["published"].items()]
        cells = ([task, name, *(f"{scores[metric]:.4f}" for metric in metrics)] for task, name, scores in rows)
        made.append(table((title, "model", *metrics), cells))
    return "\n\n".join(made)


def reading(found: Document) -> bool:
    """True if what the page says of the tables holds."""
    ours = {task: both["ours"] for suite in ("fev-bench", "gift-eval") for task, both in found[suite].items()}

    def lost(task: str, model: str) -> set[str]:
        naive = ours[task]["seasonal-naive"]
        return {metric for metric, score in ours[task][model].items() if score > naive[metric]}

    patches = [lost(task, model) for task in ETT for model in ("bundled-bolt", "bundled-2")]
    sampled = [lost(task, "bundled") for task in ETT]
    return (
        not any({"SQL", "WQL"} & one for one in (*patches, *sampled[1:]))
        and len(sampled[0]) == 4
        and lost(HOURS, "bundled-bolt") == {"MSIS"}
        and all(len(lost(HOURS, model)) == 4 for model in ("bundled-2", "bundled"))
        and all(lost("ETT_1W", model) == {"MASE", "WAPE"} for model in ("bundled-bolt", "bundled-2", "bundled"))
        and [lost("ETT_1D", model) for model in ("bundled-bolt", "bundled-2", "bundled")] == [set(), set(), {"MASE"}]
    )


CLAIMS: tuple[Claim, ...] = (
    Block(PAGE, "standards", ("standards",), tables),
    Prose(
        PAGE,
        "standards",
        "On M4's hours `bundled-2` and `bundled` lose to it in all four scores, `bundled-bolt` in MSIS.",
        holds=reading,
    ),
)
