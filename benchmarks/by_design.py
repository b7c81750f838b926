"""Design for low rank, or compress? The paper's Table 3, beside the stock network compressed to the same sizes.

Trains what `rankscope sweep RECIPE --out by-design/` has not trained yet: head widths r(i) and full width, on the same
series. The stock network is then compressed to each design's size, healed and not: its attention alone to the design's
attention, and all of it to the design's parameters. Scores are over those of the stock network of the same seed; time
and peak memory over its, in the fast runtime, in alternating rounds.

    python benchmarks/by_design.py by-design/ --suite dev.yaml --data DIR --out by-design.json
    python benchmarks/by_design.py t5/ --recipe by_design_t5.yaml --jobs 2 --heal-steps 300 --rounds 5 --max-series 16 \
        --suite dev.yaml --data DIR --out by-design-t5.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from accuracy import scored, sizes_of, times_over
from digests import COMPRESSION, HEALING, SCORING
from provenance import conditions, origin, parser, save, suite_options, work_folder

BASELINE = "baseline"
BATCHES = (1, 32)
HERE = Path(__file__).parent
KINDS = ("attention", "whole model")
PAPER = {
    "r3": {"r0": 3, "alpha": 0.27, "size": 0.075, "time": 0.346, "space": 0.186, "WQL": 1.034, "MASE": 0.988},
    "r5": {"r0": 5, "alpha": 0.35, "size": 0.150, "time": 0.398, "space": 0.312, "WQL": 1.048, "MASE": 0.982},
    "r7": {"r0": 7, "alpha": 0.40, "size": 0.250, "time": 0.494, "space": 0.440, "WQL": 1.021, "MASE": 0.949},
}
"""Table 3 of the paper (Chronos-T5 base, trained from scratch, in-domain scores), relative to its baseline."""


def attention_numbers(folder: Path) -> int:
    """Return the stored parameters of a checkpoint's attention matrices."""
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", "pt") as file:
        names = [name for name in list(file.keys()) if "Attention" in name and "relative_attention_bias" not in name]
        return sum(file.get_tensor(name).numel() for name in names)


def named(point: str) -> tuple[str, int]:
    """Return the design and the seed of a point of the sweep: ``r3-1`` is the design ``r3`` with seed 1."""
    design, _, seed = point.partition("-")
    return design, int(seed or 0)


def forms(trained: dict[tuple[str, int], Path], place: Path, steps: int) -> Iterator[tuple[dict[str, Any], Path]]:
    """Yield every model with what it is: the trained ones, and the baselines compressed to the size of each design."""
    from rankscope import open_checkpoint
    from rankscope.choices import Method
    from rankscope.compress import CompressOptions, compress
    from rankscope.compress.heal import HealConfig, heal

    for (design, seed), folder in trained.items():
        yield {"design": design, "seed": seed, "how": "trained"}, folder
        if design == BASELINE:
            continue
        base = trained[BASELINE, seed]
        budgets: tuple[dict[str, Any], ...] = (
            {"attention_ratio": attention_numbers(folder) / attention_numbers(base)},
            {"ratio": open_checkpoint(folder).parameters / open_checkpoint(base).parameters},
        )
        for kind, budget in zip(KINDS, budgets, strict=True):
            small = place / f"{design}-{seed}-{kind.split()[0]}"
            method: Method = "joint" if kind == KINDS[0] else "joint+stream"
            compress(base, CompressOptions(method=method, calibration="mixture:1024", seed=seed, **budget), out=small)
            facts = {"design": design, "seed": seed, "how": kind}
            yield {**facts, "healed": 0}, small
            healed = small.with_name(f"{small.name}-healed")
            heal(small, base, HealConfig(steps=steps, seed=seed), out=healed)
            yield {**facts, "healed": steps}, healed


def show(row: dict[str, Any]) -> str:
    """A model in one line."""
    healed = ", healed" if row.get("healed") else ""
    return (
        f"{row['design']:9} seed {row['seed']}  {row['how'] + healed:20}  {row['size']:.3f} of the attention, "
        f"{row['parameters']:.3f} of all  WQL {row['WQL']:.3f}  MASE {row['MASE']:.3f}"
    )


def main() -> None:
    """Train what is missing, measure, print and save."""
    words = parser(__doc__, rounds=15, jobs=1)
    words.add_argument("sweep", type=Path, help="folder of `rankscope sweep`, new or existing")
    words.add_argument("--recipe", choices=[file.name for file in HERE.glob("*.yaml")], default="by_design.yaml")
    words.add_argument("--heal-steps", type=int, default=600)
    suite_options(words)
    words.add_argument("--max-series", type=int, help="of every task")
    given = words.parse_args()
    training = (f"benchmarks/{given.recipe}", "src/rankscope/train")
    used = (*training, "benchmarks/accuracy.py", "benchmarks/scores.py", "eval/rankscope_eval/bench")
    before, facts = conditions(), origin("by_design", *used, *SCORING, *COMPRESSION, *HEALING)
    # the networks are kept as long as what trains them stays the same, whatever scores them
    work_folder(given.sweep, {"used": {path: facts["used"][path] for path in training}})
    sweep = ["rankscope", "sweep", str(HERE / given.recipe), "--out", str(given.sweep), "--jobs", str(given.jobs)]
    subprocess.run(sweep, check=True)
    points = sorted(one for one in (given.sweep / "points").iterdir() if (one / "config.json").exists())
    trained = {named(path.name): path for path in points}
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        folders: dict[Path, dict[str, Any]] = {}
        for form, folder in forms(trained, Path(place), given.heal_steps):
            rows.append({**form, **_scores(form, folder, trained, given, Path(place))})
            print(show(rows[-1]), flush=True)
            if form["seed"] == 0 and not form.get("healed"):  # seeds and healing change no shape
                folders[folder] = rows[-1]
        for name, found in times_over([*folders], trained[BASELINE, 0], BATCHES, given.rounds).items():
            folders[Path(name)].update(found)
    found = {
        **facts,
        "conditions": {"before": before, "after": conditions()},
        "suite": Path(given.suite).name,
        "max_series": given.max_series,
        "rows": rows,
    }
    save(found, given.out)


def _scores(
    form: dict[str, Any],
    folder: Path,
    trained: dict[tuple[str, int], Path],
    given: argparse.Namespace,
    place: Path,
) -> dict[str, Any]:
    """Sizes, and scores over the baseline's of the same seed; baselines' over that of seed 0."""
    from rankscope import open_checkpoint

    base = trained[BASELINE, 0 if form["design"] == BASELINE else form["seed"]]
    options = argparse.Namespace(suite=given.suite, data=given.data, max_series=given.max_series, model=str(base))
    found = scored(folder, 0, options, place / f"rows-{base.name}")
    training = json.loads((trained[form["design"], form["seed"]] / "pretrain.json").read_text(encoding="utf-8"))
    return {
        "steps": training["report"]["steps"],
        "size": attention_numbers(folder) / attention_numbers(base),
        **sizes_of(folder, open_checkpoint(base)),
        **found["relative"]["all"],
        "worst": found["worst"],
        "paper": PAPER.get(form["design"]) if form["how"] == "trained" else None,
    }


if __name__ == "__main__":
    main()
