"""Networks of low rank by design, beside wide ones that were compressed to the same size."""

from __future__ import annotations

from claims.intervals import interval, span
from claims.records import DEV, DRAWN, Block, Claim, Document, Prose, Result

STOCK = "baseline"
"""Design of the networks with full heads."""
HOW = {"trained": "designed", "attention": "attention compressed", "whole model": "all compressed"}
"""Words for how a network came to its size."""

RESULTS: tuple[Result, ...] = (
    Result(
        "by-design",
        f"benchmarks/by_design.py by-design {DEV}",
        240,
        timed=True,
        older=True,
        path=f"{DRAWN}/by_design.json",
    ),
    Result(
        "by-design-t5",
        "benchmarks/by_design.py by-design-t5 --recipe by_design_t5.yaml --jobs 2 --heal-steps 300 --rounds 5 "
        f"--max-series 16 {DEV}",
        130,
        timed=True,
    ),
)


def by_design(found: Document) -> str:
    """Low-rank designs, and the stock network compressed to their sizes, over the stock network of the same seed."""
    lines = [
        "| | | attention | all weights | WQL | worst set | MASE | healed: WQL | worst set | MASE | time | memory |",
        "|---" * 12 + "|",
    ]
    healed = {(row["design"], row["seed"], row["how"]): row for row in found["rows"] if row.get("healed")}
    for row in (row for row in found["rows"] if row["design"] != STOCK and not row.get("healed")):
        rank = f"r₀ = {row['design'].removeprefix('r')}, seed {row['seed']}"
        after = healed.get((row["design"], row["seed"], row["how"]))
        cells = [rank, HOW[row["how"]], f"{row['size']:.3f}", f"{row['parameters']:.3f}", *scores_and_worst(row)]
        cells += scores_and_worst(after) if after else ["–"] * 3
        cells += [f"{row['time']['32']['median']:.2f}", f"{row['memory']['32']:.2f}"] if "time" in row else ["–"] * 2
        lines.append(f"| {' | '.join(cells)} |")
    for paper in (row["paper"] for row in found["rows"] if row["paper"] and row["seed"] == 0):
        cells = [f"r₀ = {paper['r0']}, the paper's", HOW["trained"], f"{paper['size']:.3f}", "–"]
        cells += [f"{paper['WQL']:.3f}", "–", f"{paper['MASE']:.3f}", *["–"] * 3, f"{paper['time']:.2f}", "–"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def scores_and_worst(row: Document) -> list[str]:
    """Cells of WQL with its interval, its worst data set, and MASE."""
    return [interval(row, "WQL"), f"{row['worst']['WQL'][1]:.2f}", f"{row['MASE']:.3f}"]


def designs(found: Document) -> Document:
    """Scores of designs and of compressed stock networks, least and most; the gain by healing, in per cent of WQL."""
    rows = [row for row in found["rows"] if row["design"] != STOCK]
    forms = {how: [row for row in rows if row["how"] == how and not row.get("healed")] for how in HOW}
    return {
        **{
            how: {key: span(row[key] for row in same) for key in ("WQL", "MASE", "size")} for how, same in forms.items()
        },
        "healed": span(100 * (row["WQL"] - 1) for row in rows if row.get("healed")),
        "time": span(row["time"]["32"]["median"] for row in forms["trained"] if "time" in row),
        "seeds": next(row for row in found["rows"] if row["design"] == STOCK and row["seed"] == 1),
        "r7": next(row for row in forms["trained"] if row["design"] == "r7"),
    }


def of_t5(found: Document) -> Document:
    """Of the design of Chronos-T5: WQL designed, and compressed to its attention, healed too; time and memory."""
    rows = {(row["how"], bool(row.get("healed"))): row for row in found["rows"] if row["design"] != STOCK}
    designed = rows["trained", False]
    return {
        "designed": designed["WQL"],
        "cut": rows["attention", False]["WQL"],
        "healed": rows["attention", True]["WQL"],
        "time": designed["time"]["32"]["median"],
        "memory": designed["memory"]["32"],
    }


def only_the_cut_is_shown_worse(found: Document) -> bool:
    """True if of all compared the unhealed cut of attention alone has an interval without 1."""
    rows = [row for row in found["rows"] if row["design"] != STOCK]
    apart = [row for row in rows if not row["WQL_interval"][0] <= 1 <= row["WQL_interval"][1]]
    return [(row["how"], bool(row.get("healed"))) for row in apart] == [("attention", False)]


def short_commit(found: Document) -> Document:
    """Commit and date of a result."""
    return {"commit": found["commit"][:8], "date": found["date"]}


CLAIMS: tuple[Claim, ...] = (
    Block("docs/benchmarks.md", "by-design", ("by-design",), by_design),
    Block("docs/benchmarks.md", "by-design-t5", ("by-design-t5",), by_design),
    Prose(
        "docs/benchmarks.md", "by-design", "of commit {commit!s} ({date!s}), before the latest changes", short_commit
    ),
    Prose(
        "docs/benchmarks.md",
        "by-design",
        "in all four runs: {trained[WQL][least]:.2f} to {trained[WQL][most]:.2f} of the WQL and "
        "{trained[MASE][least]:.2f} to {trained[MASE][most]:.2f} of the MASE",
        designs,
        holds=lambda found: designs(found)["trained"]["WQL"]["most"] < 1,
    ),
    Prose("docs/benchmarks.md", "by-design", "differ by a factor of {seeds[WQL]:.2f} between", designs),
    Prose(
        "docs/benchmarks.md",
        "by-design",
        "attention of the designs, {attention[WQL][least]:.3f} to {attention[WQL][most]:.3f}; cut to their parameters, "
        "exactly what it was",
        designs,
        holds=lambda found: abs(designs(found)["whole model"]["WQL"]["most"] - 1) < 1e-5,
    ),
    Prose(
        "docs/howto/choosing.md",
        "by-design",
        "| by design, r₀ = 7, against full heads after equal steps | {parameters:.2f} | {WQL:.3f} "
        "({WQL_interval[0]:.3f}–{WQL_interval[1]:.3f}) | {MASE:.3f} ({MASE_interval[0]:.3f}–{MASE_interval[1]:.3f}) |",
        lambda found: designs(found)["r7"],
    ),
    Prose(
        "docs/tutorial/by-design.md",
        "by-design",
        "{trained[WQL][least]:.2f} to {trained[WQL][most]:.2f} of the full-width network's WQL at "
        "{trained[size][least]:.2f} to {trained[size][most]:.2f} of the attention's size",
        designs,
    ),
    Prose(
        "docs/benchmarks.md",
        "by-design",
        "Healing changes WQL by {healed[least]:.0f} to +{healed[most]:.0f} %",
        designs,
    ),
    Prose(
        "docs/benchmarks.md",
        "by-design",
        "no worse on average, in {time[least]:.2f} to {time[most]:.2f} of the time",
        designs,
        holds=lambda found: designs(found)["trained"]["WQL"]["most"] < 1,
    ),
    Prose(
        "docs/benchmarks.md",
        "by-design-t5",
        "Only the unhealed cut of the attention is shown to score worse ({cut:.2f}; healed {healed:.2f}); the designed "
        "network has {designed:.2f} of the WQL, in {time:.2f} of the time and {memory:.2f} of the memory",
        of_t5,
        holds=only_the_cut_is_shown_worse,
    ),
)
