"""Tables of the lab's pages: the records of its finished runs, summarised as `rankscope lab` does.

Nothing is trained: benchmarks/results/lab holds a file per run. Losses of cut layers, and
what was claimed of codebooks, are those of the study that the figure `lab-ranks` draws: weights are not kept here.

    python benchmarks/lab_tables.py encoders --out benchmarks/results/lab-encoder-tables.json
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from provenance import ROOT, origin, parser, save

from rankscope.io import codec
from rankscope_lab.encoders.report import AuditReport, audit_report, audit_runs, protocol
from rankscope_lab.encoders.run_spec import ARCHITECTURES, DROP_IN
from rankscope_lab.encoders.runs import stored_runs
from rankscope_lab.encoders.tables.spec import Row
from rankscope_lab.measure.record import INPUT, OUTPUT
from rankscope_lab.ranks.questions import QUESTIONS
from rankscope_lab.ranks.runs import ENCODERS, read_runs
from rankscope_lab.ranks.study import RankRow, RankStudy, study_runs
from rankscope_lab.slt.ablations import ABLATIONS
from rankscope_lab.slt.report import study_report
from rankscope_lab.slt.run_spec import FIELD, RELEASED, RunResult
from rankscope_lab.statistics import ALPHA, FEWEST, NO, UNCLEAR, YES, Finding

RUNS = "benchmarks/results/lab"
CODES = f"{RUNS}/vq-etth1.json"
STUDY = "figures/rankscope_paper/figures/data/lab_ranks.json"
LAB = "lab/rankscope_lab"
DIGITS = 6
Document = dict[str, Any]


def rounded(value: Any) -> Any:
    """A document with its numbers to six digits."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(one) for one in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def picked(document: Document, *names: str) -> Document:
    """Some of its fields."""
    return {name: document[name] for name in names}


def audited(tables: Sequence[str], seeds: int, encoders: Sequence[str]) -> AuditReport:
    """Tables of the audit from the stored runs."""
    asked = protocol(tables, seeds=seeds, encoders=encoders)
    return audit_report(asked, stored_runs(ROOT / RUNS / "encoders", audit_runs(asked)))


def number(row: Row) -> Document:
    """One number of a table beside the published one."""
    kept = ("setting", "encoder", "measure", "title", "digits", "published", "verdict", "p", "adjusted", "counted")
    return {**picked(codec.plain(row), *kept), **codec.plain(row.summary)}


def printed(report: AuditReport) -> Document:
    """Tables by name."""
    return {table.id: [number(row) for row in table.rows] for table in report.tables}


def counts(report: AuditReport) -> Document:
    """How many numbers agree with the published ones, and what Welch's tests say."""
    verdicts = Counter(row.verdict.replace(" ", "_") for row in report.counted)
    alone = sum(row.counted for table in report.tables if table.id in ("8", "9") for row in table.rows)
    tested = [row for row in report.counted if row.p is not None]
    return {
        "all": len(report.counted),
        **verdicts,
        "from_one_seed": alone,
        "tested": len(tested),
        "different": sum(row.p < ALPHA for row in tested if row.p is not None),
        "least_adjusted": min(row.adjusted for row in tested if row.adjusted is not None),
    }


def encoders() -> Document:
    """The audit: tables of five seeds, of one seed of `ci` and `cat`, of more channels, paired tests and findings."""
    whole = audited(["1", "5", "8", "9", "10", "11", "13", "paired"], 5, DROP_IN)
    findings = audited(["findings"], 5, ["linear", "linear-ppe", "linear-scaled", "linear-rotated"]).findings
    pairs = [row for row in whole.paired.rows if row.measured is not None] if whole.paired else []
    alone = audited(["1", "9"], 1, ARCHITECTURES)
    orders = [check for report in (whole, alone) for table in report.tables for check in table.checks]
    return {
        "counts": counts(whole),
        "tables": printed(whole),
        "one_seed": printed(alone),
        "channels": printed(audited(["6"], 3, ["mlp"])),
        "paired": [picked(codec.plain(row), "published", "measured") for row in pairs],
        "findings": [codec.plain(row) for row in findings.rows] if findings else [],
        "mask_orders": [picked(codec.plain(check), "subject", "seeds", "n") for check in orders],
    }


def sparse_layers() -> Document:
    """Errors of every model, comparisons of all ablations, and how errors move over the epochs."""
    runs = [codec.read(RunResult, file) for file in sorted((ROOT / RUNS / "slt").glob("*.json"))]
    report = study_report(runs, tuple(ABLATIONS))
    kept = ("dataset", "protocol", "model", "mse", "mae", "best_mse", "verdict", "parameters")
    epochs: dict[str, Document] = {}
    trained = [run for run in runs if run.parameters]
    for run in trained:
        if run.spec.protocol == RELEASED.name:
            steps = [abs(after.test.mse - before.test.mse) for before, after in pairwise(run.epochs)]
            found = epochs.setdefault(run.spec.dataset, {}).setdefault(run.spec.model, {"step": 0.0, "best": []})
            found["step"] = max(found["step"], *steps)
            found["best"].append(run.best.number)
    field = [run for run in trained if run.spec.protocol == FIELD.name]
    return {
        "rows": [picked(codec.plain(row), *kept) for row in report.rows],
        "comparisons": [codec.plain(one) for one in report.comparisons],
        "epochs": epochs,
        "field": {"runs": len(field), "best_at_the_end": sum(run.best is run.last for run in field)},
    }


def tokenizers() -> Document:
    """Means over seeds, and what single runs are quoted for."""
    found = json.loads((ROOT / CODES).read_text(encoding="utf-8"))
    kept = ("id", "error", "used", "training_loss", "codebook", "stream", "steps", "fresh", "points", "every", "daily")
    runs = [picked(run, *(name for name in kept if name in run)) for run in found["runs"]]
    for run in runs:
        run.get("codebook", {}).pop("sigma", None)
    return {**picked(found, "data", "rows"), "every_naive": _naive(found), "runs": runs}


def _naive(found: Document) -> Document:
    naive: Document = next(run["every_naive"] for run in found["runs"] if "every_naive" in run)
    return naive


def ranks() -> Document:
    """Ranks of the stream by depth, claims about them, and from the drawn study losses of cut layers."""
    study = study_runs(read_runs([ROOT / RUNS / "encoders", ROOT / RUNS / "slt"]))
    drawn = codec.read(RankStudy, ROOT / STUDY)
    findings = [
        *(one for one in study.findings if one.question in "ab"),
        *(one for one in drawn.findings if one.question in "cd"),
    ]
    shown = [one for one in findings if one.verdict != UNCLEAR or one.second == "linear"]
    named = ("question", "setting", "claim", "measure", "first", "second", "p", "above", "pairs", "verdict")
    cut = ("setting", "variant", "kind", "method", "asked", "ratio", "relative")
    return {
        "claims": {letter: claims([one for one in findings if one.question == letter]) for letter in QUESTIONS},
        "findings": [picked(codec.plain(one), *named) for one in shown],
        "streams": [place(row) for row in study.rows if row.what in (INPUT, OUTPUT) and row.seeds >= FEWEST],
        "queries": [place(row) for row in study.rows if row.study == ENCODERS and row.what == "q" and not row.layer],
        "curves": [picked(codec.plain(one), *cut) for one in drawn.curves if one.asked < 1],
    }


def claims(findings: Sequence[Finding]) -> Document:
    """By setting: how many claims were tested, and how many are clear, either way."""
    settings: dict[str, Document] = {}
    for one in findings:
        found = settings.setdefault(one.setting, {"all": 0, YES: 0, NO: 0, UNCLEAR: 0})
        found["all"] += 1
        found[one.verdict] += 1
    return settings


def place(row: RankRow) -> Document:
    """Ranks at a place of a model."""
    kept = ("setting", "variant", "effective", "centred", "eps_ranks")
    return {**picked(codec.plain(row), *kept), "depth": (row.layer or 0) + (row.what == OUTPUT)}


STUDIES: dict[str, tuple[Callable[[], Document], tuple[str, ...]]] = {
    "encoders": (
        encoders,
        (
            *(f"{LAB}/encoders/{name}" for name in ("tables", "report.py", "findings.py", "geometry.py")),
            *(f"{LAB}/encoders/{name}" for name in ("published.py", "published.json", "run_spec.py")),
            f"{LAB}/statistics.py",
            f"{RUNS}/encoders",
        ),
    ),
    "slt": (
        sparse_layers,
        (
            *(f"{LAB}/slt/{name}" for name in ("report.py", "ablations.py", "published.py", "published.json")),
            *(f"{LAB}/slt/run_spec.py", f"{LAB}/statistics.py", f"{RUNS}/slt"),
        ),
    ),
    "tokenizers": (tokenizers, (CODES,)),
    "ranks": (
        ranks,
        (
            *(f"{LAB}/ranks/{name}" for name in ("study.py", "questions.py", "runs.py")),
            *(f"{LAB}/statistics.py", f"{RUNS}/encoders", f"{RUNS}/slt", STUDY),
        ),
    ),
}
"""Study → what summarises it, and the code and records that its numbers depend on."""


def main() -> None:
    """Summarise one study."""
    words = parser(__doc__ or "")
    words.add_argument("study", choices=STUDIES)
    options = words.parse_args()
    summary, used = STUDIES[options.study]
    save({**origin("lab_tables", *used), **rounded(summary())}, options.out)


if __name__ == "__main__":
    main()
