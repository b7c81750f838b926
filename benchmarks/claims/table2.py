"""Table 2: every method at every size, and what README and docs quote of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from claims.common import SIX
from claims.records import Block, Claim, Document, Prose, Result

FOLDER = "figures/rankscope_paper/figures/data"
SIZES = (0.5, 0.25, 0.15, 0.1, 0.075, 0.05)
PAGE = "docs/benchmarks.md"
CALIBRATIONS = 3
DEFAULTS = {"svd": "uniform-eps", "joint": "sensitivity", "joint+healed": "sensitivity"}
"""Allocations of the rows that are quoted."""
ORDER = ("svd", "asvd", "theorem3", "whitened", "joint", "joint+healed")

RESULTS: tuple[Result, ...] = (
    Result("sampling-seeds-bundled", "benchmarks/sampling_seeds.py bundled --suite {dev}/dev.yaml --data {dev}", 8),
    Result(
        "table2-bundled-bolt",
        f"benchmarks/table2.py bundled-bolt {SIX} --methods svd,asvd,theorem3,whitened,joint,joint+healed "
        "--heal-steps 150 --overlap-series 200 --energy",
        minutes=90,
        path=f"{FOLDER}/table2_bundled-bolt.json",
    ),
    Result(
        "table2-bundled",
        f"benchmarks/table2.py bundled {SIX} --ratios 0.25,0.15,0.075 --methods svd,whitened,joint --seeds 0 "
        "--max-series 20 --overlap-series 100 --sampling-seeds 12 --runtime auto",
        minutes=60,
        path=f"{FOLDER}/table2_bundled.json",
    ),
)


def label(row: Document) -> str:
    """Name of a method in the table."""
    steps = f", {row['heal_steps']} steps" if row["heal_steps"] else ""
    other = ", energy" if (row["method"], row["allocation"]) == ("joint", "energy") else ""
    return f"`{row['method']}`{other}{steps}"


def key(row: Document) -> tuple[Any, ...]:
    """Ratio, method, allocation and healing: what a row and its judgement have in common."""
    return row["ratio"], row["method"], row["allocation"], row["heal_steps"]


def cell(row: Document, judged: Document | None) -> str:
    """WQL with its 95 % interval, MASE with its own, the verdict of the two and the worst data set.

    In a table without judgements: median over the calibrations, their range, and their number where it is another one.
    """
    score, seeds = row["relative_WQL"], len(row["seeds"])
    if judged is not None:
        found = {name: judged[f"{name}_verdict"] for name in ("WQL", "MASE")}
        worst = max(found.values(), key=lambda verdict: verdict["worst_ratio"])
        lines = [
            f"{name} {judged[f'relative_{name}']:.3f} "
            + "({:.2f}–{:.2f}) ".format(*judged[f"{name}_interval"])
            + verdict["word"]
            for name, verdict in found.items()
        ]
        return "<br>".join([*lines, f"worst {worst['worst'].replace('_', ' ')} {worst['worst_ratio']:.2f}"])
    spread = [f"{score['min']:.3f}–{score['max']:.3f}"] if seeds > 1 else []
    fewer = [f"n = {seeds}"] if seeds not in (0, CALIBRATIONS) else []
    return "<br>".join([f"{score['median']:.3f}", *spread, *fewer])


def table(found: Document) -> str:
    """WQL over the original's by method and size; a method of fewer sizes than `svd` is quoted in the text."""
    sizes = sorted({row["ratio"] for row in found["rows"] if row["method"] == "svd"}, reverse=True)
    rows: dict[str, dict[float, str]] = {}
    judged = {key(one): one for one in found.get("judgements", ())}
    for row in sorted(found["rows"], key=lambda row: (ORDER.index(row["method"]), row["allocation"])):
        quoted = row["allocation"] == DEFAULTS.get(row["method"], row["allocation"])
        if not quoted and row["method"] != "joint":
            continue
        rows.setdefault(label(row), {})[row["ratio"]] = cell(row, judged.get(key(row)))
    lines = ["| method | " + " | ".join(f"{size:g}" for size in sizes) + " |", "|---" * (len(sizes) + 1) + "|"]
    lines += [
        f"| {name} | " + " | ".join(cells[size] for size in sizes) + " |"
        for name, cells in rows.items()
        if set(sizes) <= set(cells)
    ]
    return "\n".join(lines)


def point(
    method: str, ratio: float, allocation: str | None = None, heal_steps: int | None = None
) -> Callable[[Document], dict[str, Any]]:
    """Scores of one cell, its share of the whole model, per cent of WQL that it costs and of likeliest tokens kept."""

    def values(found: Document) -> dict[str, Any]:
        (row,) = (
            row
            for row in found["rows"]
            if (row["method"], row["ratio"]) == (method, ratio)
            and (allocation or DEFAULTS.get(method, row["allocation"])) == row["allocation"]
            and (heal_steps is None or row["heal_steps"] == heal_steps)
        )
        whole = row["parameters"]["median"] / found["original"]["parameters"]
        wql, mase = row["relative_WQL"], row["relative_MASE"]
        overlap = 100 * row["overlap"]["median"] if row["overlap"] else None
        return {"whole": whole, "WQL": wql, "MASE": mase, "costs": 100 * (wql["median"] - 1), "overlap": overlap}

    return values


def attention(found: Document) -> dict[str, float]:
    """Share of attention in all parameters, by what half of it leaves, and the rest."""
    share = 2 * (1 - point("joint", 0.5)(found)["whole"])
    return {"share": share, "rest": 1 - share}


def hidden(found: Document) -> dict[str, Any]:
    """Mean and worst data set of `joint` at 0.075, unhealed."""
    (row,) = (one for one in found["judgements"] if key(one) == (0.075, "joint", DEFAULTS["joint"], None))
    return {"mean": row["relative_WQL"], **row["WQL_verdict"]}


_RANGES = (
    "| {whole:.2f} | {WQL[median]:.3f} ({WQL[min]:.3f}–{WQL[max]:.3f}) "
    "| {MASE[median]:.3f} ({MASE[min]:.3f}–{MASE[max]:.3f}) |"
)
_ONE = "| {whole:.2f} | {WQL[median]:.3f} | {MASE[median]:.3f} |"
_CHOOSING = (
    ("`svd`, attention at 0.5", _ONE, point("svd", 0.5)),
    ("`svd`, attention at 0.25", _ONE, point("svd", 0.25)),
    ("`whitened`, attention at 0.25", _RANGES, point("whitened", 0.25)),
    ("`joint`, attention at 0.25", _RANGES, point("joint", 0.25)),
    ("`joint`, attention at 0.15", _RANGES, point("joint", 0.15)),
    ("`joint`, attention at 0.075", _RANGES, point("joint", 0.075)),
    ("the same, healed for 150 steps", _RANGES, point("joint+healed", 0.075, heal_steps=150)),
)

CLAIMS: tuple[Claim, ...] = (
    Block(PAGE, "table2-bundled-bolt", ("table2-bundled-bolt",), table),
    Block(PAGE, "table2-bundled", ("table2-bundled",), table),
    Prose(
        "docs/howto/benchmark.md",
        "sampling-seeds-bundled",
        "has a standard deviation of {alone_WQL:.1f} % between seeds, and that of a compressed copy over it, which "
        "`eval` and `table2` print, {WQL:.1f} % (MASE {alone_MASE:.1f} % and {MASE:.1f} %",
        lambda found: {
            **{metric: 100 * value for metric, value in found["deviation"].items()},
            **{f"alone_{metric}": 100 * value for metric, value in found["original_deviation"].items()},
        },
    ),
    Prose(
        "docs/howto/benchmark.md",
        "sampling-seeds-bundled",
        "such a table needs {WQL} seeds",
        lambda found: found["needed"],
    ),
    Prose(
        PAGE,
        "table2-bundled-bolt",
        "Below 0.1 `joint` without healing costs more than a tenth.",
        holds=lambda found: all(point("joint", size)(found)["costs"] > 10 for size in (0.075, 0.05)),
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
        "docs/theory/over-parameterised.md",
        "table2-bundled-bolt",
        "plain `svd` at a quarter of the attention numbers multiplies WQL by {WQL[median]:.1f}",
        point("svd", 0.25),
    ),
    Prose(
        "docs/theory/over-parameterised.md",
        "table2-bundled-bolt",
        "`joint` at the same quarter costs {costs:.1f} % of WQL.",
        point("joint", 0.25),
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
        "has {mean:.2f} of the original's WQL over the six sets, and {worst_ratio:.2f} on {worst!s}.",
        hidden,
    ),
    *(Prose("docs/howto/choosing.md", "table2-bundled-bolt", f"| {name} {words}", of) for name, words, of in _CHOOSING),
    Prose(
        "docs/howto/heal.md",
        "table2-bundled-bolt",
        "150 steps give {WQL[median]:.3f} ({WQL[min]:.3f}–{WQL[max]:.3f})",
        point("joint+healed", 0.075, heal_steps=150),
    ),
)
