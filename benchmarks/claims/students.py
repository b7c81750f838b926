"""Students of a sampling teacher, with their controls: docs/howto/student.md."""

from __future__ import annotations

from claims.intervals import interval
from claims.records import DEV, Block, Claim, Document, Result

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


CLAIMS: tuple[Claim, ...] = (Block("docs/howto/student.md", "students", ("student-bundled",), students),)
