"""Every way of making the bundled Chronos-Bolt smaller, at the same sizes of the whole model."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from claims.records import DEV, Block, Claim, Document, Prose, Result

NAME = "roads-bundled-bolt"
FLOAT32 = "roads-float32"
RESULTS: tuple[Result, ...] = (
    Result(NAME, f"benchmarks/roads.py bundled-bolt {DEV}", minutes=300),
    Result(FLOAT32, f"benchmarks/roads.py bundled-bolt {DEV}", minutes=300, older=True),
)
"""The study, and the first of its points on a processor without bfloat16 units, where models run in float32."""


def table(found: Document) -> str:
    """Medians over the seeds, of WQL with its interval, by road and size."""
    lines = [
        "| | whole model | WQL | worst set | MASE | memory | time, 1 series | 32 series | int8: bytes | WQL | seeds |",
        "|---" * 11 + "|",
    ]
    groups: dict[tuple[str, float], list[Document]] = {}
    for point in found["points"]:
        groups.setdefault((point["road"], point["size"]), []).append(point)
    order = {road: at for at, road in enumerate(dict.fromkeys(point["road"] for point in found["points"]))}
    for (road, size), points in sorted(groups.items(), key=lambda one: (order[one[0][0]], -one[0][1])):
        reached = [point["storages"] for point in points if "storages" in point]
        if not reached:
            lines.append(f"| {road} | {size:g}: out of reach |" + " |" * 9)
            continue
        plain, small = ([one[storage] for one in reached] for storage in ("float", "int8"))
        low = min(one["WQL_interval"][0] for one in plain)
        high = max(one["WQL_interval"][1] for one in plain)
        timed = [one for one in plain if "time" in one]
        cells = [
            f"{middle(plain, lambda one: one['parameters']):.2f}",
            f"{middle(plain, lambda one: one['WQL']):.3f} ({low:.3f}–{high:.3f})",
            f"{middle(plain, lambda one: one['worst']['WQL'][1]):.2f}",
            f"{middle(plain, lambda one: one['MASE']):.3f}",
            f"{middle(timed, lambda one: one['memory']['32']):.2f}",
            *(f"{middle(timed, lambda one, batch=batch: one['time'][batch]):.2f}" for batch in ("1", "32")),
            f"{middle(small, lambda one: one['bytes']):.3f}",
            f"{middle(small, lambda one: one['WQL']):.3f}",
            str(len(reached)),
        ]
        lines.append(f"| {road} | " + " | ".join(cells) + " |")
    if found["missing"]:
        lines += [
            "",
            f"{found['missing']} of {found['missing'] + len(found['points'])} points are still to be measured.",
        ]
    return "\n".join(lines)


def middle(forms: Sequence[Document], value: Callable[..., float]) -> float:
    """Median over the seeds."""
    return statistics.median(map(value, forms))


def forms(found: Document) -> dict[tuple[str, float], Document]:
    """Scores of the first seed in floating point, by road and size."""
    points = [point for point in found["points"] if point["seed"] == 0 and "storages" in point]
    return {(point["road"], point["size"]): point["storages"]["float"] for point in points}


def quoted(found: Document) -> dict[str, float]:
    """Time over the original's of everything under one budget at 0.15, for a series and for 32, and peak memory."""
    form = forms(found)["joint+stream", 0.15]
    return {"one": form["time"]["1"], "many": form["time"]["32"], "memory": form["memory"]["32"]}


def in_bfloat16(found: Document) -> bool:
    """True if every point was timed on a processor with bfloat16 units."""
    return all(any("bf16" in unit for unit in point["machine"]["units"]) for point in found["points"])


def in_float32(found: Document) -> bool:
    """True if no point was timed on a processor with bfloat16 units."""
    return not any("bf16" in unit for point in found["points"] for unit in point["machine"]["units"])


def one_budget_is_best(found: Document) -> bool:
    """True if of the roads without training everything under one budget has the lowest mean and worst from 15 % down.

    And if its interval overlaps that of `joint` at 15 and 10 %, which has the lower mean at 25 %.
    """
    scored = forms(found)
    others = ("svd", "joint", "stream", "joint+stream of 16")
    for size in (0.15, 0.1, 0.05):
        best = scored["joint+stream", size]
        same = [scored[road, size] for road in others if (road, size) in scored]
        if any(one["WQL"] < best["WQL"] or one["worst"]["WQL"][1] < best["worst"]["WQL"][1] for one in same):
            return False
    pairs = [(scored["joint+stream", size], scored["joint", size]) for size in (0.15, 0.1)]
    overlap = all(ours["WQL_interval"][1] > theirs["WQL_interval"][0] for ours, theirs in pairs)
    return overlap and scored["joint", 0.25]["WQL"] < scored["joint+stream", 0.25]["WQL"]


def trained(found: Document) -> dict[str, float]:
    """WQL at 5 % of the parameters: cut, healed, and from scratch."""
    scored, size = forms(found), 0.05
    roads = {"cut": "joint+stream", "healed": "healed", "scratch": "from scratch"}
    return {word: scored[road, size]["WQL"] for word, road in roads.items()}


PAGE = "docs/theory/roads.md"
CLAIMS: tuple[Claim, ...] = (
    Block(PAGE, "roads", (NAME,), table),
    Prose(
        "README.md",
        NAME,
        "takes {many:.2f} of the original's time for 32 series and {one:.2f} for a single one, both in rankscope's "
        "runtime, in bfloat16 on a processor with units for it",
        quoted,
        holds=in_bfloat16,
    ),
    Prose(
        "README.md",
        FLOAT32,
        "in float32 on one without them {many:.2f} and {one:.2f}",
        quoted,
        holds=in_float32,
    ),
    Prose(PAGE, NAME, "The times above are of a processor with bfloat16 units", holds=in_bfloat16),
    Prose(
        PAGE,
        FLOAT32,
        "took {many:.2f} of the original's time for 32 series and {one:.2f} for one, and {memory:.2f} of its memory",
        quoted,
        holds=in_float32,
    ),
    Prose(
        PAGE,
        NAME,
        "from 15 % of the parameters down everything under one budget (`joint+stream`) has the lowest mean and the "
        "mildest worst data set, though its 95 % interval overlaps that of `joint`, which is ahead at 25 %",
        holds=one_budget_is_best,
    ),
    Prose(
        PAGE,
        NAME,
        "brings 5 % of the parameters from {cut:.3f} to {healed:.3f} of the original's WQL, and at 15 % gains nothing; "
        "a model of 5 % that began from nothing has {scratch:.2f}",
        trained,
        holds=lambda found: forms(found)["healed", 0.15]["WQL"] > forms(found)["joint+stream", 0.15]["WQL"],
    ),
)
