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
    lines = [
        f"All three with {found['seeds']} seeds, {found['steps']:,} steps of 32 series each, relative to the teacher "
        f"on the {len(found['arms']['teacher'][0]['ratios']['WQL'])} development sets; a batch is forecast "
        f"{found['times_as_fast']['median']:.0f} times as fast as by the teacher, both in the fast runtime:",
        "",
        "| student has | seed | WQL | worst set | MASE | worst set |",
        "|---" * 6 + "|",
    ]
    for arm, words in ARMS.items():
        for run in found["arms"][arm]:
            whole, worst = run["relative"]["all"], run["worst"]
            cells = (f"{interval(whole, one)} | {worst[one][1]:.2f}" for one in ("WQL", "MASE"))
            lines.append(f"| {words} | {run['seed']} | {' | '.join(cells)} |")
    return "\n".join(lines)


CLAIMS: tuple[Claim, ...] = (Block("docs/howto/student.md", "students", ("student-bundled",), students),)
