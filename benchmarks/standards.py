"""Bundled models on tasks of fev-bench and GIFT-Eval whose data are at hand, beside published rows.

    python benchmarks/standards.py --data DIR --published DIR --out benchmarks/results/standards.json

The data are those of the six public sets: ETTh for fev-bench, m4_hourly for GIFT-Eval. The published rows are
`fev_reference.csv` and `gift_eval_reference.csv` of their folder. Finished rows are kept in ``standards/`` until
all are there: the same command goes on.
"""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
from digests import SCORING, bundled
from provenance import conditions, origin, parser, save

MODELS = ("bundled-bolt", "bundled-2", "bundled")
WORK = Path("standards")
FEV = {"ETT_1H": None, "ETT_1D": "D", "ETT_1W": "W-SUN"}
"""Task of fev-bench → how hours are averaged to its values: whole days, whole weeks that end on Sunday."""
FEV_METRICS = ("SQL", "MASE", "WQL", "WAPE")
GIFT = "m4_hourly/H/short"
GIFT_METRICS = {"MASE": "MASE[0.5]", "CRPS": "mean_weighted_sum_quantile_loss", "ND": "ND[0.5]", "MSIS": "MSIS"}
BESIDE_FEV = ("Seasonal Naive", "AutoTheta", "Toto-2.0-4m", "Chronos-Bolt", "Chronos-2")
BESIDE_GIFT = ("Seasonal_Naive", "Auto_Theta", "Toto-2.0-4m", "TTM-R3-PT", "chronos_bolt_small", "Chronos-2")


def write_tasks(folder: Path, data: Path) -> None:
    """Write ETTh in fev's form, a folder of Parquet for each task."""
    for task, rule in FEV.items():
        if (folder / task / "all.parquet").is_file():
            continue
        parts = []
        for name in ("ETTh1", "ETTh2"):
            raw = pd.read_csv(data / "ETTh" / f"{name}.csv", parse_dates=["date"], index_col="date")
            values = raw if rule is None else raw.resample(rule).mean().iloc[1:-1]
            parts.append(values.reset_index(names="timestamp").assign(id=name))
        (folder / task).mkdir(parents=True)
        pd.concat(parts).to_parquet(folder / task / "all.parquet", index=False)


def published(file: Path, models: tuple[str, ...], metrics: tuple[str, ...]) -> dict[str, dict[str, dict[str, float]]]:
    """Published scores by task and model."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    with file.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            if row["model"] in models and row.get("benchmark", "fev-bench") == "fev-bench":
                found.setdefault(row["task"], {})[row["model"]] = {name: float(row[name]) for name in metrics}
    return found


def on_fev(data: Path, seed: int) -> dict[str, Any]:
    """Scores on fev-bench's tasks by task and model."""
    from rankscope_eval import Forecasting
    from rankscope_eval.fev_suite import evaluate_fev

    write_tasks(WORK / "data", data)
    scores: dict[str, Any] = {task: {} for task in FEV}
    for model in MODELS:
        kept = WORK / f"fev-{model}"
        how: dict[str, Any] = {"data": WORK / "data", "tasks": list(FEV), "kept": kept, "resume": kept.is_dir()}
        for row in evaluate_fev([model], "fev-bench", Forecasting(seed=seed), **how).rows:
            scores[row["task_name"]][row["model_name"]] = {name: row[name] for name in FEV_METRICS}
    return scores


def on_gift(data: Path, seed: int) -> dict[str, Any]:
    """Scores on GIFT-Eval's configuration by model."""
    from rankscope_eval import Forecasting
    from rankscope_eval.gift_eval import evaluate_gift

    kept = WORK / "gift"
    how: dict[str, Any] = {"tasks": [GIFT], "kept": kept, "resume": kept.is_dir()}
    rows = evaluate_gift(MODELS, data, Forecasting(seed=seed), **how).rows
    return {row.model: {name: row.scores[metric] for name, metric in GIFT_METRICS.items()} for row in rows}


def main() -> None:
    """Score and save."""
    words = parser(__doc__, seed=0)
    words.add_argument("--data", type=Path, required=True, help="folder of the public sets")
    words.add_argument("--published", type=Path, required=True, help="folder of the published rows")
    options = words.parse_args()
    before = conditions()
    found = published(options.published / "fev_reference.csv", BESIDE_FEV, FEV_METRICS)
    found |= published(options.published / "gift_eval_reference.csv", BESIDE_GIFT, tuple(GIFT_METRICS))
    beside = {task: found[task] for task in (*FEV, GIFT)}
    gift, fev = on_gift(options.data, options.seed), on_fev(options.data, options.seed)
    code = [f"eval/rankscope_eval/{name}" for name in ("fev_suite", "gift_eval", "local_models.py")]
    result = {
        **origin("standards", *SCORING, *code, *bundled(*MODELS)),
        "conditions": {"before": before, "after": conditions()},
        "seed": options.seed,
        "fev-bench": {task: {"ours": fev[task], "published": beside[task]} for task in FEV},
        "gift-eval": {GIFT: {"ours": gift, "published": beside[GIFT]}},
    }
    save(result, options.out)
    shutil.rmtree(WORK)


if __name__ == "__main__":
    main()
