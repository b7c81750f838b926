"""Scores of a network that is still being trained."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rankscope.errors import DataError, OptionError
from rankscope_eval.baselines import BASELINES
from rankscope_eval.evaluation import BASELINE, evaluate_task
from rankscope_eval.forecasters import BATCH_SIZE, NUM_SAMPLES, Forecaster, pipeline_forecaster, quiet_imports
from rankscope_eval.relative import geometric_mean, relative_scores
from rankscope_eval.report import EvalRow
from rankscope_eval.sources import check_local, data_folder, task_series
from rankscope_eval.suites import DEFAULT_SUITE, Suite, load_suite

MODEL = "in training"


def score_during_training(
    suite: str | Path | Suite = DEFAULT_SUITE,
    series: int = 0,
    data: str | Path | None = None,
    *,
    num_samples: int = NUM_SAMPLES,
    batch_size: int = BATCH_SIZE,
    seed: int = 0,
) -> Callable[[Any], dict[str, float]]:
    """Make what ``rankscope.train.pretrain`` takes as ``validate``.

    The data are read, and the seasonal-naive forecasts made, at once: what cannot be used is refused before the
    training begins.

    Args:
        suite: a shipped suite, a YAML file, or a loaded suite.
        series: at most this many series of each task, the first ones; 0 for all.
        data: folder of local data files.
        num_samples: sample paths of a Chronos-T5.
        batch_size: series per forward pass.
        seed: random state of the sample paths, the same at every call.

    Returns:
        A function from a Chronos-T5 or Chronos-Bolt module in evaluation mode to its scores: ``WQL`` and ``MASE``,
        geometric means over the tasks, and ``relative_WQL`` and ``relative_MASE``, geometric means of the score over
        that of seasonal-naive. A task whose forecasts are NaN makes its means NaN.

    Raises:
        RankscopeError: the suite, an option or the data cannot be used.
    """
    if series < 0:
        raise OptionError(f"series is {series}: give at least 1, or 0 for all.")
    chosen = suite if isinstance(suite, Suite) else load_suite(suite)
    folder = data_folder(chosen, data)
    check_local(chosen, folder, series or None)
    quiet_imports()
    held = [(task, task_series(task, folder, series or None)) for task in chosen.tasks]
    naive = Forecaster(BASELINE, BASELINES[BASELINE], seed)
    baseline = [evaluate_task(naive, task, found) for task, found in held]

    def scores(network: Any) -> dict[str, float]:
        pipeline = live_pipeline(network)
        model = pipeline_forecaster(MODEL, pipeline, num_samples=num_samples, batch_size=batch_size, seed=seed)
        rows: list[EvalRow | None] = []
        for task, found in held:
            try:
                rows.append(evaluate_task(model, task, found))
            except DataError:  # the series were good enough for seasonal-naive: the forecasts are NaN
                rows.append(None)
        return {
            "WQL": _mean(rows, baseline, "WQL"),
            "MASE": _mean(rows, baseline, "MASE"),
            "relative_WQL": _ratio(rows, baseline, "WQL"),
            "relative_MASE": _ratio(rows, baseline, "MASE"),
        }

    return scores


def live_pipeline(network: Any) -> Any:
    """Wrap a module in the pipeline that chronos-forecasting would load its saved folder into."""
    from chronos import ChronosBoltPipeline, ChronosConfig, ChronosPipeline
    from chronos.chronos import ChronosModel

    settings = network.config.chronos_config
    if "input_patch_size" in settings:
        return ChronosBoltPipeline(network)
    config: Any = ChronosConfig(**settings)
    return ChronosPipeline(config.create_tokenizer(), ChronosModel(config, network))


def _mean(rows: Sequence[EvalRow | None], baseline: Sequence[EvalRow], score: str) -> float:
    """Geometric mean over the tasks on which the baseline has a score; NaN where a forecast was."""
    usable = [row for row, naive in zip(rows, baseline, strict=True) if math.isfinite(getattr(naive, score))]
    if not all(usable):
        return math.nan
    values = [float(getattr(row, score)) for row in usable]
    return geometric_mean(value for value in values if value > 0)


def _ratio(rows: Sequence[EvalRow | None], baseline: Sequence[EvalRow], score: str) -> float:
    if not all(rows):
        return math.nan
    ours, theirs = ({str(n): float(getattr(row, score)) for n, row in enumerate(of)} for of in (rows, baseline))
    return relative_scores(ours, theirs).value
