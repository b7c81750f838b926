"""What changed files and injected faults did to rankscope."""

from __future__ import annotations

from claims.records import Block, Claim, Document, Result

FUZZ = "fuzz"
SEED = 2026
RESULTS: tuple[Result, ...] = (
    Result(
        FUZZ,
        f"python -m tests.fuzz --seconds 3600 --seed {SEED} --out benchmarks/results/fuzz.json",
        minutes=60,
        older=True,
        by_hand=True,
    ),
)


def fuzzed(found: Document) -> str:
    """Inputs, those that came out wrong, and peak memory by kind."""
    lines = ["| kind of file | inputs | wrong | peak memory |", "|---|---|---|---|"]
    for kind, one in sorted(found["counts"].items()):
        lines.append(f"| {kind} | {one['tried']:,} | {sum(one['wrong'].values())} | {one['peak'] / 1e9:.2f} GB |")
    tried = sum(one["tried"] for one in found["counts"].values())
    wrong = sum(sum(one["wrong"].values()) for one in found["counts"].values())
    lines.append(f"| all | {tried:,} | {wrong} | |")
    return "\n".join(lines)


CLAIMS: tuple[Claim, ...] = (Block("docs/reference/robustness.md", FUZZ, (FUZZ,), fuzzed),)
