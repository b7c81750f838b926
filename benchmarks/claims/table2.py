"""Table 2: every method at every size, and what README and docs quote of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from claims.records import DEV, DRAWN, Block, Claim, Document, Prose, Result

PAGE = "docs/benchmarks.md"
DEFAULTS = {"svd": "uniform-eps", "joint": "sensitivity", "joint+healed": "sensitivity"}
"""Allocations of the rows that are quoted."""
ORDER = ("svd", "asvd", "theorem3", "whitened", "joint", "joint+healed")

RESULTS: tuple[Result, ...] = (
    Result("sampling-seeds-bundled", "benchmarks/sampling_seeds.py bundled --suite {dev}/dev.yaml --data {dev}", 8),
    Result(
        "table2-bundled-bolt",
        f"benchmarks/table2.py bundled-bolt {DEV} --ratios 0.5,0.25,0.15,0.075 "
        "--methods svd,asvd,theorem3,whitened,joint,joint+healed --heal-steps 150 --overlap-series 200",
        minutes=150,
        path=f"{DRAWN}/table2_bundled-bolt.json",
    ),
    Result(
        "table2-bundled",
        f"benchmarks/table2.py bundled {DEV} --ratios 0.25,0.15,0.075 --methods svd,whitened,joint --seeds 0 "
        "--max-series 20 --overlap-series 100 --sampling-seeds 12 --runtime auto",
        minutes=120,
        path=f"{DRAWN}/table2_bundled.json",
    ),
)


def label(row: Document) -> str:
    """Name of a method in the table."""
    steps = f", {row['heal_steps']} steps" if row["heal_steps"] else ""
    return f"`{row['method']}`{steps}"


def quoted(row: Document) -> bool:
    """Whether a row is of its method's default allocation."""
    return bool(row["allocation"] == DEFAULTS.get(row["method"], row["allocation"]))


MARKS = {"held": "✓", "better": "✓", "no worse": "✓", "not shown": "?", "worse": "✗"}
"""Marks of the verdicts."""


def cells(row: Document) -> dict[str, str]:
    """WQL and MASE with 95 % intervals and the mark of their verdicts, and the worst data set of either."""
    found = {}
    for name in ("WQL", "MASE"):
        low, high = row[f"{name}_interval"]
        mark = MARKS[row[f"{name}_verdict"]["word"]]
        found[name] = f"{row[f'relative_{name}']:.3f} {mark}<br>{low:.2f}–{high:.2f}"
    worst = max((row[f"{name}_verdict"] for name in found), key=lambda verdict: verdict["worst_ratio"])
    return {**found, "worst": f"{worst['worst_ratio']:.2f}<br>{worst['worst'].replace('_', ' ')}"}


def table(found: Document) -> str:
    """Scores over the original's by method and size."""
    sizes = sorted({row["ratio"] for row in found["judgements"]}, reverse=True)
    rows: dict[tuple[str, str], dict[float, str]] = {}
    for row in sorted(found["judgements"], key=lambda row: ORDER.index(row["method"])):
        if quoted(row):
            for name, cell in cells(row).items():
                rows.setdefault((label(row), name), {})[row["ratio"]] = cell
    lines = ["| method | | " + " | ".join(f"{size:g}" for size in sizes) + " |", "|---" * (len(sizes) + 2) + "|"]
    for (method, name), row in rows.items():
        first = method if name == "WQL" else ""
        lines.append(f"| {first} | {name} | " + " | ".join(row.get(size, "–") for size in sizes) + " |")
    return "\n".join(lines)


def point(method: str, ratio: float) -> Callable[[Document], dict[str, Any]]:
    """Scores of one cell, its share of the whole model, per cent of WQL that it costs and of likeliest tokens kept."""

    def values(found: Document) -> dict[str, Any]:
        (row,) = (row for row in found["rows"] if (row["method"], row["ratio"]) == (method, ratio) and quoted(row))
        whole = row["parameters"]["median"] / found["original"]["parameters"]
        wql, mase = row["relative_WQL"], row["relative_MASE"]
        overlap = 100 * row["overlap"]["median"] if row["overlap"] else None
        return {"whole": whole, "WQL": wql, "MASE": mase, "costs": 100 * (wql["median"] - 1), "overlap": overlap}

    return values


def judged(found: Document, method: str, ratio: float) -> Document:
    """Scores of losses averaged over the calibrations, with verdict and worst data set."""
    (row,) = (one for one in found["judgements"] if (one["method"], one["ratio"]) == (method, ratio) and quoted(one))
    return row


def cost(method: str, ratio: float) -> Callable[[Document], float]:
    """Per cent of WQL that a method costs at a ratio."""
    return lambda found: 100 * (judged(found, method, ratio)["relative_WQL"] - 1)


def held(found: Document) -> bool:
    """True if the WQL of `joint` at a quarter of the attention is held."""
    return bool(judged(found, "joint", 0.25)["WQL_verdict"]["word"] == "held")


def on_road(found: Document, road: str, size: float) -> float:
    """Per cent of WQL that a way to a size of the whole model costs, in its first point."""
    point = next(one for one in found["points"] if (one["road"], one["size"]) == (road, size))
    return 100 * (point["storages"]["float"]["WQL"] - 1)


def attention(found: Document) -> dict[str, float]:
    """Share of attention in all parameters, by what half of it leaves, and the rest."""
    share = 2 * (1 - point("joint", 0.5)(found)["whole"])
    return {"share": share, "rest": 1 - share}


def hidden(found: Document) -> dict[str, Any]:
    """Mean and worst data set of `joint` at 0.075, unhealed."""
    row = judged(found, "joint", 0.075)
    return {"mean": row["relative_WQL"], **row["WQL_verdict"]}


def chosen(method: str, ratio: float) -> Callable[[Document], dict[str, Any]]:
    """Share of the whole model that a method leaves, and the scores with their intervals."""
    return lambda found: {**judged(found, method, ratio), "whole": point(method, ratio)(found)["whole"]}


_SCORES = (
    "{whole:.2f} | {relative_WQL:.3f} ({WQL_interval[0]:.3f}–{WQL_interval[1]:.3f}) "
    "| {relative_MASE:.3f} ({MASE_interval[0]:.3f}–{MASE_interval[1]:.3f}) |"
)

_CHOOSING = (
    ("`svd`, attention at 0.5", "svd", 0.5),
    ("`svd`, attention at 0.25", "svd", 0.25),
    ("`whitened`, attention at 0.25", "whitened", 0.25),
    ("`joint`, attention at 0.25", "joint", 0.25),
    ("`joint`, attention at 0.15", "joint", 0.15),
    ("`joint`, attention at 0.075", "joint", 0.075),
    ("the same, healed for 150 steps", "joint+healed", 0.075),
)

CLAIMS: tuple[Claim, ...] = (
    Block(PAGE, "table2-bundled-bolt", ("table2-bundled-bolt",), table),
    Block(PAGE, "table2-bundled", ("table2-bundled",), table),
    Prose(
        "docs/reference/scores.md",
        "sampling-seeds-bundled",
        "has a standard deviation of {alone_WQL:.1f} % between seeds, and that of a compressed copy over it, which "
        "`eval` and `table2` print, {WQL:.1f} % (MASE {alone_MASE:.1f} % and {MASE:.1f} %",
        lambda found: {
            **{metric: 100 * value for metric, value in found["deviation"].items()},
            **{f"alone_{metric}": 100 * value for metric, value in found["original_deviation"].items()},
        },
    ),
    Prose(
        "docs/reference/scores.md",
        "sampling-seeds-bundled",
        "such a table needs {WQL} seeds",
        lambda found: found["needed"],
    ),
    Prose(
        PAGE,
        "table2-bundled-bolt",
        "At 0.075 `joint` without healing raises WQL by {costs:.0f} %.",
        lambda found: {"costs": cost("joint", 0.075)(found)},
    ),
    Prose(
        PAGE,
        "table2-bundled",
        "overlap](reference/glossary.md) with the original's next tokens is {joint0:.0f} % for `joint` at 0.15 and "
        "{joint1:.0f} % at 0.075, for `svd` {svd0:.0f} % and {svd1:.0f} %",
        lambda found: {
            f"{method}{at}": point(method, size)(found)["overlap"]
            for method in ("joint", "svd")
            for at, size in enumerate((0.15, 0.075))
        },
    ),
    Prose(
        "docs/howto/choosing.md",
        "table2-bundled-bolt",
        "it raises WQL by {half:.0f} % with half of the attention, and by {whole:.1f} % with half of all parameters",
        lambda found, roads: {"half": cost("svd", 0.5)(found), "whole": on_road(roads, "svd", 0.5)},
        also=("roads-bundled-bolt",),
        moves=0.1,
    ),
    Prose(
        "docs/theory/over-parameterised.md",
        "table2-bundled-bolt",
        "plain `svd` at a quarter of the attention parameters multiplies WQL by {WQL[median]:.1f}",
        point("svd", 0.25),
    ),
    Prose(
        "docs/theory/over-parameterised.md",
        "table2-bundled-bolt",
        "`joint` at the same quarter raises WQL by {costs:.1f} %, equivalent within 2 %.",
        lambda found: {"costs": cost("joint", 0.25)(found)},
        holds=held,
    ),
    Prose(
        "docs/howto/choosing.md",
        "table2-bundled-bolt",
        "Attention is {share:.2f} of `bundled-bolt`: cutting it alone, to nothing, would still leave {rest:.2f}.",
        attention,
    ),
    Prose(
        "docs/howto/choosing.md",
        "table2-bundled-bolt",
        "has {mean:.2f} of the original's WQL over the development sets, and {worst_ratio:.2f} on {worst!s}.",
        hidden,
    ),
    *(
        Prose("docs/howto/choosing.md", "table2-bundled-bolt", f"| {name} | {_SCORES}", chosen(method, size))
        for name, method, size in _CHOOSING
    ),
)
