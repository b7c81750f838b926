"""Bundled models on tasks that the field reports: fev-bench and GIFT-Eval."""

from __future__ import annotations

from claims.records import Block, Claim, Document, Result

RESULTS: tuple[Result, ...] = (
    Result("standards", "benchmarks/standards.py --data {six} --published {six}/../../reference", minutes=15),
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


CLAIMS: tuple[Claim, ...] = (Block("docs/benchmarks.md", "standards", ("standards",), tables),)
