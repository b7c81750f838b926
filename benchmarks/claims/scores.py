"""What README and cards print, apart from the times (`claims.speed`)."""

from __future__ import annotations

from collections.abc import Callable

from claims.records import Block, Claim, Document, Prose, Result

EMBEDDED = "--suite embedded"
SIX = "--suite {six}/backtest.yaml --data {six}"
DEV = "--suite {dev}/dev.yaml --data {dev}"
TWINS = {"bundled-bolt": "amazon/chronos-bolt-tiny", "bundled": "amazon/chronos-t5-tiny"}
"""Published models of the bundled ones' shapes."""

RESULTS: tuple[Result, ...] = (
    Result("quarter-bundled-bolt", "benchmarks/accuracy.py quarter bundled-bolt", minutes=4),
    *(
        Result(f"scores-{model}", f"benchmarks/scores.py {model} {SIX} --beside {twin}", minutes=4)
        for model, twin in TWINS.items()
    ),
    *(Result(f"development-{model}", f"benchmarks/scores.py {model} {DEV}", minutes=3) for model in TWINS),
    *(Result(f"ranks-{model}", f"benchmarks/ranks.py {model}", minutes=0.5) for model in TWINS),
    Result("storage-accuracy-bundled-bolt", f"benchmarks/accuracy.py storage bundled-bolt {DEV}", minutes=6),
    Result("storage-accuracy-bundled", "benchmarks/accuracy.py storage bundled --seeds 3", minutes=15),
    Result("heal-bundled-bolt", f"benchmarks/heal.py {SIX}", minutes=15),
    Result("allocation-bundled-bolt", f"benchmarks/accuracy.py allocation bundled-bolt {DEV}", minutes=40),
    Result("by-design", f"benchmarks/by_design.py by-design {SIX} --rounds 9", minutes=90, timed=True),
)


def by_design(found: Document) -> str:
    """Low-rank designs over the stock network, beside the paper's."""
    lines = [
        "| r₀ | α | attention size | all weights | time (min–max) | WQL | MASE |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        paper, time, whole = row["paper"], row["time"], row["space"]
        if paper:
            lines.append(
                f"| {paper['r0']} | {paper['alpha']:.2f} | {row['size']:.3f} ({paper['size']:.3f}) | {whole:.3f} "
                f"| {time['median']:.2f} ({time['min']:.2f}–{time['max']:.2f}) "
                f"| {row['WQL']:.3f} ({paper['WQL']:.3f}) | {row['MASE']:.3f} ({paper['MASE']:.3f}) |"
            )
    return "\n".join(lines)


def row_of(name: str) -> Callable[[Document], Document]:
    """Values of one row, by its name."""
    return lambda found: next(row for row in found["rows"] if row["name"] == name)


CLAIMS: tuple[Claim, ...] = (
    Block("docs/benchmarks.md", "by-design", ("by-design",), by_design),
    Prose(
        "docs/howto/choosing.md",
        "by-design",
        "| by design, r₀ = 7, against stock after equal steps | {space:.2f} | {WQL:.3f} | {MASE:.3f} |",
        row_of("r7"),
    ),
)
