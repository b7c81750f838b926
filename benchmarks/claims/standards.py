"""Bundled models on tasks that the field reports: fev-bench and GIFT-Eval."""

from __future__ import annotations

from claims.records import Block, Claim, Document, Prose, Result

PAGE = "docs/benchmarks.md"

RESULTS: tuple[Result, ...] = (
    Result("standards", "benchmarks/standards.py --data {six} --published {six}/../../reference", minutes=90),
)


def tables(found: Document) -> str:
    """Scores by task, of bundled models first, then of published ones."""
    lines = []
    for suite, title in (("fev-bench", "fev-bench"), ("gift-eval", "GIFT-Eval")):
        first = next(iter(found[suite].values()))["ours"]
        metrics = list(next(iter(first.values())))
        lines += [f"| {title} | model | {' | '.join(metrics)} |", "|---" * (2 + len(metrics)) + "|"]
        for task, both in found[suite].items():
            rows = [
                *((f"`{name}`, here", scores) for name, scores in both["ours"].items()),
                *((f"{name}, published", scores) for name, scores in both["published"].items()),
            ]
            for name, scores in rows:
                lines.append(f"| {task} | {name} | {' | '.join(f'{scores[metric]:.4f}' for metric in metrics)} |")
        lines.append("")
    return "\n".join(lines)


def reading(found: Document) -> bool:
    """True if what the page says of the tables holds."""
    ours = {task: both["ours"] for suite in ("fev-bench", "gift-eval") for task, both in found[suite].items()}
    hours = ours.pop("m4_hourly/H/short")
    models = ("bundled-bolt", "bundled-2")
    beaten = all(
        rows[model][metric] < rows["seasonal-naive"][metric]
        for rows in ours.values()
        for model in models
        for metric in ("SQL", "WQL")
    )
    lost = [model for model in models if hours[model]["MASE"] > hours["seasonal-naive"]["MASE"]]
    wide = all(hours[model]["MSIS"] > hours["seasonal-naive"]["MSIS"] for model in models)
    return beaten and wide and lost == ["bundled-2"]


CLAIMS: tuple[Claim, ...] = (
    Block(PAGE, "standards", ("standards",), tables),
    Prose(PAGE, "standards", "on M4's hours `bundled-2` loses to it in MASE, and both in MSIS", holds=reading),
)
