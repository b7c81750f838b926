"""Every way of making the bundled Chronos-Bolt smaller, at the same sizes of the whole model."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from claims.records import DEV, Block, Claim, Document, Prose, Result, table

NAME = "roads-bundled-bolt"
FLOAT32 = "roads-float32"
RESULTS: tuple[Result, ...] = (
    Result(NAME, f"benchmarks/roads.py bundled-bolt {DEV}", minutes=300),
    Result("roads-bundled-2", f"benchmarks/roads.py bundled-2 --seeds 1 {DEV}", minutes=45),
    Result(
        "roads-bundled",
        f"benchmarks/roads.py bundled --seeds 1 --rounds 3 --max-series 16 --heal-steps 300 {DEV}",
        minutes=120,
    ),
    Result(FLOAT32, f"benchmarks/roads.py bundled-bolt {DEV}", minutes=300, older=True),
)
"""The study on Chronos-Bolt, Chronos-2 and Chronos-T5 (16 series of each set), and the first points of Chronos-Bolt on
a processor without bfloat16 units, in float32."""


def roads(found: Document) -> str:
    """Medians over the seeds, of WQL with its interval, by road and size; time and memory where they were measured."""
    groups = by_size(found)
    order = {road: at for at, road in enumerate(dict.fromkeys(point["road"] for point in found["points"]))}
    runs = any("time" in point["storages"]["float"] for point in found["points"] if "storages" in point)
    head = ["", "whole model", "WQL", "worst set", "MASE", "worst set"]
    head += ["memory", "time, 1 series", "32 series"] if runs else []
    head += ["int8: bytes", "WQL", "seeds"]
    rows = []
    for (road, size), points in sorted(groups.items(), key=lambda one: (order[one[0][0]], -one[0][1])):
        reached = [point["storages"] for point in points if "storages" in point]
        if not reached:
            rows.append([road, f"{size:g}: out of reach", *[""] * (len(head) - 2)])
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
            f"{middle(plain, lambda one: one['worst']['MASE'][1]):.2f}",
        ]
        if runs:
            cells += [
                f"{middle(timed, lambda one: one['memory']['32']):.2f}",
                *(f"{middle(timed, lambda one, batch=batch: one['time'][batch]):.2f}" for batch in ("1", "32")),
            ]
        cells += [
            f"{middle(small, lambda one: one['bytes']):.3f}",
            f"{middle(small, lambda one: one['WQL']):.3f}",
            str(len(reached)),
        ]
        rows.append([road, *cells])
    missing, points = found["missing"], found["missing"] + len(found["points"])
    return table(head, rows) + (f"\n\n{missing} of {points} points are still to be measured." if missing else "")


def by_size(found: Document) -> dict[tuple[str, float], list[Document]]:
    """Points of every seed by road and size."""
    groups: dict[tuple[str, float], list[Document]] = {}
    for point in found["points"]:
        groups.setdefault((point["road"], point["size"]), []).append(point)
    return groups


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


def calibrations(found: Document) -> dict[str, list[float]]:
    """WQL and worst set of everything under one budget at 0.15, by seed of the calibration."""
    same = [point["storages"]["float"] for point in by_size(found)["joint+stream", 0.15]]
    return {"WQL": [one["WQL"] for one in same], "worst": [one["worst"]["WQL"][1] for one in same]}


def in_bfloat16(found: Document) -> bool:
    """True if every point was timed on a processor with bfloat16 units."""
    return all(any("bf16" in unit for unit in point["machine"]["units"]) for point in found["points"])


def in_float32(found: Document) -> bool:
    """True if no point was timed on a processor with bfloat16 units."""
    return not any("bf16" in unit for point in found["points"] for unit in point["machine"]["units"])


def medians(found: Document) -> dict[tuple[str, float], dict[str, float]]:
    """Medians over the seeds, as in the table: ``WQL``, ends ``low`` and ``high`` of its interval, ``worst`` set."""
    groups = {
        key: [point["storages"]["float"] for point in points if "storages" in point]
        for key, points in by_size(found).items()
    }
    return {
        key: {
            "WQL": middle(some, lambda one: one["WQL"]),
            "worst": middle(some, lambda one: one["worst"]["WQL"][1]),
            "low": min(one["WQL_interval"][0] for one in some),
            "high": max(one["WQL_interval"][1] for one in some),
        }
        for key, some in groups.items()
        if some
    }


def one_budget_is_best(found: Document) -> bool:
    """True if of the roads without training everything under one budget has the lowest mean from 15 % down.

    And from 25 % down the mildest worst set; and if its interval overlaps that of `joint` at 15 and 10 %, which has the
    lower mean at 25 %.
    """
    scored = medians(found)
    others = ("svd", "joint", "stream", "joint+stream of 16")
    for size in (0.25, 0.15, 0.1, 0.05):
        best = scored["joint+stream", size]
        same = [scored[road, size] for road in others if (road, size) in scored]
        if any((size < 0.25 and one["WQL"] < best["WQL"]) or one["worst"] < best["worst"] for one in same):
            return False
    pairs = [(scored["joint+stream", size], scored["joint", size]) for size in (0.15, 0.1)]
    overlap = all(ours["high"] > theirs["low"] for ours, theirs in pairs)
    return overlap and scored["joint", 0.25]["WQL"] < scored["joint+stream", 0.25]["WQL"]


def trained(found: Document) -> dict[str, float]:
    """Most that healing lowers and raises WQL (%), the worst set at 10 % before and after, WQL of 5 % from scratch."""
    scored = medians(found)
    sizes = [size for road, size in scored if road == "healed"]
    changes = [100 * (scored["healed", size]["WQL"] / scored["joint+stream", size]["WQL"] - 1) for size in sizes]
    return {
        "lowers": -min(changes),
        "raises": max(changes),
        "cut": scored["joint+stream", 0.1]["worst"],
        "healed": scored["healed", 0.1]["worst"],
        "scratch": scored["from scratch", 0.05]["WQL"],
    }


def healing_makes_the_worst_milder(found: Document) -> bool:
    """True if healing makes the worst set milder at every size, and WQL lower at some sizes and higher at others."""
    scored = medians(found)
    pairs = [(form, scored["joint+stream", size]) for (road, size), form in scored.items() if road == "healed"]
    lower = {form["WQL"] < cut["WQL"] for form, cut in pairs}
    return all(form["worst"] < cut["worst"] for form, cut in pairs) and lower == {True, False}


def trained_models(found: Document) -> dict[str, float]:
    """WQL of everything under one budget by size, before and after healing, and the least and most from scratch."""
    scored, sizes = medians(found), {"25": 0.25, "15": 0.15, "10": 0.1, "05": 0.05}
    cut = {f"c{name}": scored["joint+stream", size]["WQL"] for name, size in sizes.items()}
    healed = {f"h{name}": scored["healed", size]["WQL"] for name, size in sizes.items() if ("healed", size) in scored}
    scratch = [form["WQL"] for (road, _), form in scored.items() if road == "from scratch"]
    return {**cut, **healed, "least": min(scratch), "most": max(scratch)}


def of_chronos_2(found: Document) -> dict[str, float]:
    """The same, and time and memory of everything under one budget at 15 %."""
    small = forms(found)["joint+stream", 0.15]
    costs = {"many": small["time"]["32"], "one": small["time"]["1"], "memory": small["memory"]["32"]}
    return {**trained_models(found), **costs}


def one_budget_is_best_of_chronos_2(found: Document) -> bool:
    """True if everything under one budget is best from 25 % down without training, and healing lowers every mean."""
    scored = medians(found)
    others = [
        form["WQL"] > scored["joint+stream", size]["WQL"]
        for (road, size), form in scored.items()
        if size <= 0.25 and road in ("svd", "joint", "stream", "joint+stream of 16")
    ]
    healed = [scored["healed", size]["WQL"] < scored["joint+stream", size]["WQL"] for size in (0.15, 0.1, 0.05)]
    return all((*others, *healed))


def of_chronos_t5(found: Document) -> dict[str, float]:
    """WQL of the same models, and the time of everything under one budget for 32 series at 15 %."""
    return {**trained_models(found), "time": forms(found)["joint+stream", 0.15]["time"]["32"]}


def one_budget_is_best_of_chronos_t5(found: Document) -> bool:
    """True if everything under one budget is best at 25 % and below without training, and worst where the page says."""
    scored, first = medians(found), forms(found)
    worst = [first["joint+stream", size]["worst"]["WQL"][0] for size in (0.15, 0.1, 0.05)]
    return all(name.endswith(("yearly", "quarterly")) for name in worst) and all(
        form["WQL"] > scored["joint+stream", size]["WQL"]
        for (road, size), form in scored.items()
        if size <= 0.25 and road in ("svd", "joint", "stream", "joint+stream of 16")
    )


PAGE = "docs/theory/roads.md"
CLAIMS: tuple[Claim, ...] = (
    Block(PAGE, "roads", (NAME,), roads),
    Block(PAGE, "roads-bundled-2", ("roads-bundled-2",), roads),
    Block(PAGE, "roads-bundled", ("roads-bundled",), roads),
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
        "README.md",
        NAME,
        "Two other draws gave the Chronos-Bolt of 15 % a WQL of {WQL[1]:.3f} and {WQL[2]:.3f} on the development sets "
        "(worst sets {worst[1]:.2f} and {worst[2]:.2f})",
        calibrations,
    ),
    Prose(
        PAGE,
        NAME,
        "of `joint+stream` at 15 % it has a WQL of {WQL[0]:.3f}, the two others {WQL[1]:.3f} and {WQL[2]:.3f} (worst "
        "sets {worst[0]:.2f}, {worst[1]:.2f} and {worst[2]:.2f})",
        calibrations,
    ),
    Prose(
        PAGE,
        NAME,
        "Without training, `joint+stream` has the lowest mean WQL from 15 % of the parameters down, and from 25 % down "
        "the mildest worst data set too. Its 95 % interval overlaps that of `joint`, which has the lower mean at 25 %",
        holds=one_budget_is_best,
    ),
    Prose(
        PAGE,
        NAME,
        "makes the worst data set milder at every size (at 10 % of the parameters {cut:.2f} → {healed:.2f}); the mean "
        "WQL moves by little, between {lowers:.1f} % lower and {raises:.1f} % higher. A model of 5 % trained from "
        "scratch has {scratch:.2f} times the original's WQL",
        trained,
        holds=healing_makes_the_worst_milder,
    ),
    Prose(
        PAGE,
        "roads-bundled-2",
        "From a quarter of the parameters down `joint+stream` has the lowest mean WQL without training: {c25:.3f}, "
        "{c15:.3f}, {c10:.3f} and {c05:.3f} times the original's at 25, 15, 10 and 5 %. Healing lowers it to "
        "{h15:.3f}, {h10:.3f} and {h05:.3f} at 15, 10 and 5 %; models of these sizes from scratch have {least:.2f} to "
        "{most:.2f}. At 15 % it takes {many:.2f} of the time for 32 series and {one:.2f} for one, and {memory:.2f} "
        "times the memory",
        of_chronos_2,
        holds=one_budget_is_best_of_chronos_2,
    ),
    Prose(
        PAGE,
        "roads-bundled",
        "From a quarter of the parameters down `joint+stream` has the lowest mean WQL without training, but loses more "
        "than with the other two models: {c25:.2f}, {c15:.2f}, {c10:.2f} and {c05:.2f} times the original's at 25, 15, "
        "10 and 5 %. At 15 % it takes {time:.2f} of the time for 32 series. Healing for 300 steps lowers WQL to "
        "{h15:.2f}, {h10:.2f} and {h05:.2f} times the original's at 15, 10 and 5 %; models of these sizes from scratch "
        "have {least:.2f} to {most:.2f}",
        of_chronos_t5,
        holds=one_budget_is_best_of_chronos_t5,
    ),
)
