"""Every way of making the bundled Chronos-Bolt smaller, at the same sizes of the whole model."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from claims.records import DEV, Block, Claim, Document, Prose, Result

NAME = "roads-bundled-bolt"
RESULTS: tuple[Result, ...] = (Result(NAME, f"benchmarks/roads.py bundled-bolt {DEV}", minutes=300),)


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


def times(found: Document, road: str, size: float) -> dict[str, float]:
    """Time over the original's of a way to a size, by batch."""
    forms = [point["storages"]["float"] for point in found["points"] if (point["road"], point["size"]) == (road, size)]
    timed = next(form["time"] for form in forms if "time" in form)
    return {f"{batch}_series": value for batch, value in timed.items()}


def taken(found: Document) -> set[tuple[str, int]]:
    """Roads that were taken, and their seeds."""
    return {(point["road"], point["seed"]) for point in found["points"]}


PAGE = "docs/theory/roads.md"
CLAIMS: tuple[Claim, ...] = (
    Block(PAGE, "roads", (NAME,), table),
    Prose(
        "README.md",
        NAME,
        "The Chronos-Bolt of 15 % takes {32_series:.2f} of the original's time for 32 series and {1_series:.2f} for a "
        "single one",
        lambda found: times(found, "joint+stream", 0.15),
        moves=0.1,
    ),
    Prose(PAGE, NAME, "So far, with one seed:", holds=lambda found: {seed for _, seed in taken(found)} == {0}),
    Prose(
        PAGE,
        NAME,
        "Neither has been measured yet.",
        holds=lambda found: not {road for road, _ in taken(found)} & {"healed", "from scratch"},
    ),
)
