"""Students of a sampling teacher, with their controls: docs/howto/student.md."""

from __future__ import annotations

from statistics import fmean

from claims.intervals import interval
from claims.records import DEV, Block, Claim, Document, Prose, Result

RESULTS: tuple[Result, ...] = (Result("student-bundled", f"benchmarks/student.py bundled {DEV}", minutes=330),)
ARMS = {
    "teacher": "teacher's encoder and forecasts",
    "encoder alone": "teacher's encoder alone",
    "from scratch": "neither: from scratch",
}


def students(found: Document) -> str:
    """Scores of students over their teacher's by what they have of it, with every seed."""
    sets, seeds = len(found["runs"][0]["ratios"]["WQL"]), len({run["seed"] for run in found["runs"]})
    said = f"{found['steps']:,} steps of 32 series each, relative to the teacher on the {sets} development sets"
    if "times_as_fast" in found:
        said += f"; a batch is forecast {found['times_as_fast']['median']:.0f} times as fast, both in the fast runtime"
    lines = [
        f"Students with {seeds} seed{'s' if seeds > 1 else ''}, {said}:",
        "",
        "| student has | seed | WQL | worst set | MASE | worst set |",
        "|---" * 6 + "|",
    ]
    for arm, words in ARMS.items():
        for run in (one for one in found["runs"] if one["arm"] == arm):
            whole, worst = run["relative"]["all"], run["worst"]
            cells = (f"{interval(whole, one)} | {worst[one][1]:.2f}" for one in ("WQL", "MASE"))
            lines.append(f"| {words} | {run['seed']} | {' | '.join(cells)} |")
    if left := found["seeds"] * len(ARMS) - len(found["runs"]):
        lines += ["", f"{left} of {left + len(found['runs'])} students are still to be trained."]
    return "\n".join(lines)


def scores(found: Document, metric: str = "WQL") -> dict[str, list[float]]:
    """A score over the teacher's of every arm, by seed."""
    return {arm: [run["relative"]["all"][metric] for run in found["runs"] if run["arm"] == arm] for arm in ARMS}


def means(found: Document) -> dict[str, float]:
    """Mean WQL of every arm."""
    arms = {"alone": "encoder alone", "taught": "teacher", "scratch": "from scratch"}
    return {word: fmean(scores(found)[arm]) for word, arm in arms.items()}


def forecasts_cost(found: Document) -> dict[str, float]:
    """Least and largest loss, in per cent of WQL and MASE, by the teacher's forecasts beside its encoder, of a seed."""
    costs: dict[str, float] = {}
    for metric in ("WQL", "MASE"):
        known = scores(found, metric)
        pairs = zip(known["teacher"], known["encoder alone"], strict=True)
        each = [100 * (taught / alone - 1) for taught, alone in pairs]
        costs |= {f"{metric}_least": min(each), f"{metric}_most": max(each)}
    return costs


def with_the_encoder(found: Document) -> dict[str, float]:
    """Speed of the students that have the encoder alone, their mean scores, and the ends of all their intervals."""
    runs = [run["relative"]["all"] for run in found["runs"] if run["arm"] == "encoder alone"]
    ends = [end for run in runs for metric in ("WQL", "MASE") for end in run[f"{metric}_interval"]]
    means = {metric: fmean(run[metric] for run in runs) for metric in ("WQL", "MASE")}
    return {"faster": found["times_as_fast"]["median"], **means, "low": min(ends), "high": max(ends)}


def in_order(found: Document) -> bool:
    """True if the arms are in the order that the page states on average, and no interval excludes 1."""
    mean, intervals = means(found), [run["relative"]["all"]["WQL_interval"] for run in found["runs"]]
    return mean["alone"] < mean["taught"] < mean["scratch"] and all(low < 1 < high for low, high in intervals)


def encoder_helps(found: Document) -> bool:
    """True if every student with the teacher's encoder has lower scores than every one from scratch."""
    runs = [(run["arm"] == "from scratch", run["relative"]["all"]) for run in found["runs"]]
    having, lacking = ([scored for bare, scored in runs if bare == scratch] for scratch in (False, True))
    return all(max(one[name] for one in having) < min(one[name] for one in lacking) for name in ("WQL", "MASE"))


PAGE = "docs/howto/student.md"
CLAIMS: tuple[Claim, ...] = (
    Block(PAGE, "students", ("student-bundled",), students),
    Prose(
        PAGE,
        "student-bundled",
        "Mean WQL is {alone:.3f} with the encoder alone, {taught:.3f} taught as well, {scratch:.3f} from scratch.",
        means,
        holds=in_order,
    ),
    Prose(
        PAGE,
        "student-bundled",
        "With every seed the student that was taught has the higher scores of the first two, by {WQL_least:.1f} to "
        "{WQL_most:.1f} % in WQL and {MASE_least:.1f} to {MASE_most:.1f} % in MASE",
        forecasts_cost,
        holds=lambda found: min(forecasts_cost(found).values()) > 0,
    ),
    Prose(
        "README.md",
        "student-bundled",
        "forecasts {faster:.0f} times as fast as it in the same runtime, with {WQL:.2f} of its WQL and {MASE:.2f} of "
        "its MASE (means of three students on the eleven development sets; the intervals of single ones reach from "
        "{low:.2f} to {high:.2f}",
        with_the_encoder,
    ),
    Prose(
        "docs/theory/roads.md",
        "student-bundled",
        "a Chronos-Bolt with its encoder, {faster:.0f} times as fast",
        lambda found: {"faster": found["times_as_fast"]["median"]},
    ),
    Prose(
        PAGE,
        "student-bundled",
        "every student with the teacher's encoder has a lower WQL and a lower MASE than every one without",
        holds=encoder_helps,
    ),
)
