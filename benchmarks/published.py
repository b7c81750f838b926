"""Published Chronos checkpoints: download, reproduce the published scores, measure ranks, compress, score again.

Needs a network (or a filled cache of huggingface_hub, and `--data` with the data sets). Every step is a `rankscope`
command that writes into the folder; a step whose output is there is not run again. The page is FOLDER/report.html;
exit code 1 if a score is further from the published one than allowed.

    python benchmarks/published.py --folder verify-published --out benchmarks/results/published.json
    python benchmarks/published.py --folder bolt --models amazon/chronos-bolt-base --tasks nn5 --data DIR
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from provenance import origin, parser, save

SUITE = "chronos-zero-shot"
SCORES = "published-scores.json"
MODELS = ("amazon/chronos-t5-tiny", "amazon/chronos-bolt-tiny")
TASKS = ("nn5", "monash_m3_monthly", "monash_m1_quarterly", "exchange_rate")
SAMPLED = {"nn5": 0.01, "monash_m3_monthly": 0.013}
"""By how much two published runs of one Chronos-T5 differ at most (WQL or MASE, five sizes): chronos-forecasting's
table and the one in autogluon/fev's repository, August 2026. On the other tasks they differ by up to 0.22."""
DETERMINISTIC = 0.005
"""Share by which scores of what samples nothing may differ; Chronos-Bolt's differ by 0.0005 between those tables."""
SIZES: dict[str, tuple[str, ...]] = {
    "whole-0.3": ("--ratio", "0.3"),
    "int8": ("--storage", "int8"),
    "svd-0.25": ("--method", "svd", "--attention-ratio", "0.25"),
    "joint-0.25": ("--method", "joint", "--attention-ratio", "0.25"),
    "joint-0.25-mlp": ("--method", "joint", "--attention-ratio", "0.25", "--sites", "attention,mlp"),
}


def steps(models: Sequence[str], tasks: Sequence[str], data: str | None) -> Iterator[tuple[str, list[str]]]:
    """Yield what every command writes, in the folder, and its words."""
    scored = ["--suite", SUITE, "--tasks", ",".join(tasks), *(["--data", data] if data else []), "--resume"]
    yield SCORES, ["eval", *models, "seasonal-naive", *scored]
    for model in models:
        name = model.rpartition("/")[2]
        yield f"{name}/spectrum.json", ["spectrum", model, "--eps", "0.1,0.01", "--sites", "all"]
        yield f"{name}/flow.json", ["flow", model]
        for size, words in SIZES.items():
            yield f"{name}/{size}", ["compress", model, *words]
        smaller = [f"{name}/{size}" for size in SIZES]
        yield f"{name}/eval.json", ["eval", *smaller, "--baseline", model, *scored]


def allowed(task: str, sampled: bool) -> float | None:
    """Share by which a score may differ from the published one, None where that would say nothing.

    Scores here and there are both single draws where paths are sampled, so twice what two published ones differ by.
    """
    if not sampled:
        return DETERMINISTIC
    return 2 * SAMPLED[task] if task in SAMPLED else None


def compare(rows: Sequence[Mapping[str, Any]], sampled: Container[str]) -> list[dict[str, Any]]:
    """Put the scores of an evaluation beside the published ones, where there are any.

    Args:
        rows: rows of the JSON document of `rankscope eval`.
        sampled: models that draw sample paths.

    Returns:
        A row per score: ``share`` that it is above the published one, ``allowed``, and ``held``, each None where the
        published score is itself one draw among widely different ones.
    """
    found = []
    for row in rows:
        limit = allowed(row["dataset"], row["model"] in sampled)
        for metric in ("MASE", "WQL"):
            published = row[f"published_{metric}"]
            if published is None:
                continue
            share = row[metric] / published - 1
            held = None if limit is None else math.isfinite(share) and abs(share) <= limit
            one = {"model": row["model"], "dataset": row["dataset"], "metric": metric, "here": row[metric]}
            found.append({**one, "published": published, "share": share, "allowed": limit, "held": held})
    return found


def run(folder: Path, output: str, words: Sequence[str]) -> None:
    """Run a command in the folder, unless what it writes is there.

    Raises:
        SystemExit: the command failed; the code is its own.
    """
    if (folder / output).exists():
        print(f"there already: {output}", flush=True)
        return
    (folder / output).parent.mkdir(parents=True, exist_ok=True)
    print("$ rankscope", *words, "--out", output, flush=True)
    done = subprocess.run([sys.executable, "-m", "rankscope_cli", *words, "--out", output], cwd=folder)
    if done.returncode:
        raise SystemExit(done.returncode)


def main() -> None:
    """Download, reproduce, measure, compress and report."""
    words = parser(__doc__)
    words.add_argument(
        "--folder", type=Path, default=Path("verify-published"), help="where results and smaller models go"
    )
    words.add_argument("--models", default=",".join(MODELS), help="hub ids with published scores")
    words.add_argument("--tasks", default=",".join(TASKS), help=f"tasks of {SUITE}")
    words.add_argument("--data", help="folder of data sets that are at hand; the others come from the hub")
    options = words.parse_args()
    from rankscope.checkpoints import describe

    models, folder = options.models.split(","), options.folder
    folder.mkdir(parents=True, exist_ok=True)
    data = None if options.data is None else str(Path(options.data).resolve())
    for output, command in steps(models, options.tasks.split(","), data):
        run(folder, output, command)
    title = ["--title", "Published Chronos checkpoints", "--force"]
    subprocess.run([sys.executable, "-m", "rankscope_cli", "report", ".", *title], cwd=folder, check=True)
    report = json.loads((folder / SCORES).read_text(encoding="utf-8"))
    sampled = {model for model in models if describe(model).family.name == "chronos-t5"}
    scores = compare(report["rows"], sampled)
    save({**origin("published", "src/rankscope", "eval/rankscope_eval"), "suite": SUITE, "scores": scores}, options.out)
    for one in scores:
        mark = {True: "held", False: "OFF", None: "–"}[one["held"]]
        limit = "one draw of many" if one["allowed"] is None else f"within {one['allowed']:.1%}"
        print(
            f"{mark:4} {one['model']:26} {one['dataset']:20} {one['metric']:4} {one['here']:.4f}, "
            f"published {one['published']:.4f}: {one['share']:+.2%} ({limit})"
        )
    judged = [one["held"] for one in scores if one["held"] is not None]
    print(f"{sum(judged)} of {len(judged)} published scores reproduced; {folder / 'report.html'}")
    if not judged or not all(judged):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
