"""Report on fev tasks: fev's summaries, leaderboard and pairwise comparison, and verdicts against the baseline."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from rankscope_eval.bases import Judged, judge_by_base
from rankscope_eval.fev_suite.tasks import fev
from rankscope_eval.relative import RESAMPLES, Interval

if TYPE_CHECKING:
    import pandas as pd

Summary = Mapping[str, Any]
"""Fev's summary of one model on one task: the task's fields, its metrics, `test_error`, seconds."""
SAME = {"ETTh": "ETT", "ETTm": "ETT", "monash_nn5_weekly": "nn5"}
"""Data sets whose names do not show that they are of one source."""


@dataclass(frozen=True)
class FevRank:
    """A model's line of fev's leaderboard; intervals are fev's, of 95 %, over tasks.

    Attributes:
        model: name of the model.
        skill: 1 − geometric mean over tasks of error / baseline error, each ratio clipped to 0.01…100.
        skill_interval: of it.
        win_rate: share of comparisons with the other models, task by task, that it wins; ties count half.
        win_rate_interval: of it.
        seconds: median time of a task's forecasts.
    """

    model: str
    skill: float
    skill_interval: Interval
    win_rate: float
    win_rate_interval: Interval
    seconds: float


@dataclass(frozen=True)
class FevPair:
    """A model against the baseline.

    Attributes:
        model: name of the model.
        baseline: name of the baseline.
        win_rate: share of the tasks that it wins; ties count half.
        win_rate_interval: fev's, of 95 %, over tasks.
        errors: the task's metric over the baseline's, judged over sources of data.
    """

    model: str
    baseline: str
    win_rate: float
    win_rate_interval: Interval
    errors: Judged


@dataclass(frozen=True)
class FevReport:
    """Scores on fev tasks.

    Attributes:
        suite: list of tasks.
        baseline: model of the comparisons.
        metric: each task's own evaluation metric, where all have the same.
        seed: of sampled forecasts.
        rows: fev's summaries, a model and task each.
        leaderboard: best skill first.
        pairs: every model against the baseline.
        notes: what a reader has to know: covariates that are not used, series that are left out.
    """

    suite: str
    baseline: str
    metric: str
    seed: int
    seconds: float
    rows: tuple[Summary, ...]
    leaderboard: tuple[FevRank, ...]
    pairs: tuple[FevPair, ...]
    notes: tuple[str, ...] = ()

    SCHEMA: ClassVar = "rankscope/fev@1"

    def to_frame(self) -> pd.DataFrame:
        """Summaries as fev's leaderboard code reads them from CSV."""
        import pandas as pd

        return pd.DataFrame([{name: _cell(name, value) for name, value in row.items()} for row in self.rows])


def _cell(name: str, value: Any) -> Any:
    """A value as every format of tables takes it: lists as JSON, cutoffs of both kinds as text."""
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return str(value) if name in ("initial_cutoff", "window_step_size") and value is not None else value


def base_of(data_set: str) -> str:
    """Source of a data set, by its name.

    >>> [base_of(name) for name in ("ETT_1H", "ETT_15T", "ETTh", "boomlet_1062", "uk_covid_nation_1D", "m5_1M")]
    ['ETT', 'ETT', 'ETT', 'boomlet', 'uk_covid_nation', 'm5']
    >>> [base_of(name) for name in ("epf_be", "monash_m1_quarterly", "fred_md_2025", "exchange_rate")]
    ['epf_be', 'monash_m1_quarterly', 'fred_md', 'exchange_rate']
    """
    return SAME.get(data_set) or re.sub(r"_\d+[A-Z]$|_\d+$", "", data_set)


def comparable(rows: Sequence[Summary], baseline: str) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Rows of the tasks that models can be compared on, and the names of the others.

    On these an error is not finite, or the baseline's is zero: constant series, labels that are all missing.
    """
    others = {
        row["task_name"]: None
        for row in rows
        if not math.isfinite(row["test_error"]) or (row["model_name"] == baseline and row["test_error"] <= 0)
    }
    return [dict(row) for row in rows if row["task_name"] not in others], tuple(others)


def metric_of(summary: Summary) -> str:
    """Name of a task's own metric."""
    metric = summary["eval_metric"]
    return metric if isinstance(metric, str) else str(metric["name"])


def rank_models(rows: Sequence[Summary], baseline: str) -> tuple[FevRank, ...]:
    """Fev's leaderboard of `comparable` rows."""
    kept, _ = comparable(rows, baseline)
    if not kept:
        return ()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # means of no comparison, where the baseline is the only model
        board = fev().leaderboard(kept, baseline_model=baseline, n_resamples=RESAMPLES)
    return tuple(
        FevRank(
            str(model),
            float(line["skill_score"]),
            _ends(line, "skill_score"),
            float(line["win_rate"]),
            _ends(line, "win_rate"),
            float(line["median_inference_time_s"]),
        )
        for model, line in board.sort_values("skill_score", ascending=False).iterrows()
    )


def compare(rows: Sequence[Summary], baseline: str, margin: float, resamples: int = RESAMPLES) -> tuple[FevPair, ...]:
    """Every model against the baseline: fev's win rate, and a verdict over sources of data, on `comparable` rows."""
    kept, lost = comparable(rows, baseline)
    errors: dict[str, dict[str, float]] = {}
    sources: dict[str, str] = {}
    for row in kept:
        errors.setdefault(row["model_name"], {})[row["task_name"]] = row["test_error"]
        config = row["dataset_config"]
        sources[row["task_name"]] = base_of(config) if config else row["dataset_path"]
    others = [name for name in errors if name != baseline]
    if not kept or not others:
        return ()
    table = fev().pairwise_comparison(kept, n_resamples=resamples)
    found = []
    for model in others:
        line = table.loc[(model, baseline)]
        judged = judge_by_base(errors[model], errors[baseline], sources.__getitem__, margin)
        judged = replace(judged, left_out=(*lost, *judged.left_out))
        found.append(FevPair(model, baseline, float(line["win_rate"]), _ends(line, "win_rate"), judged))
    return tuple(found)


def _ends(line: Any, name: str) -> Interval:
    """Interval of a number in a row of fev's tables."""
    return float(line[f"{name}_lower"]), float(line[f"{name}_upper"])
