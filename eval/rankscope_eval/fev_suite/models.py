"""Models on fev tasks: checkpoints through their pipelines, and the local models of fev's published results."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rankscope_eval.fev_suite.tasks import fev
from rankscope_eval.forecasters import Forecasting
from rankscope_eval.local_models import MODELS, forecast_locally
from rankscope_eval.reasons import as_data_error

if TYPE_CHECKING:
    from fev import Task

CONTEXT = 1000
"""Values at the end of a series that local models read, as the model of that kind in fev's repository (August 2026)."""

Predictions = tuple[list[Any], float]
"""Predictions of every window, and the seconds that they took."""


@dataclass(frozen=True)
class FevForecaster:
    """A model that forecasts the windows of a fev task.

    Attributes:
        name: name of the model.
        predict: predictions and seconds for a task.
        files: identity of the weights: files of the checkpoint.
        covariates: True if the model reads covariates, and several targets together.
    """

    name: str
    predict: Callable[[Task], Predictions]
    files: tuple[Any, ...] = ()
    covariates: bool = False

    def __call__(self, task: Task, seed: int) -> Predictions:
        """Forecast all windows; what is sampled begins at the seed.

        Raises:
            DataError: a window has no series that is long enough, or its values cannot be forecast.
        """
        from rankscope.engine.randomness import seeded

        with seeded(seed), as_data_error(f"{self.name} on fev task {task.task_name}"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # horizons beyond what a model was trained for are the task's wish
            return self.predict(task)


def open_fev_forecaster(model: str, how: Forecasting) -> FevForecaster:
    """Open a local model by name, or a checkpoint.

    Raises:
        RankscopeError: as `rankscope_eval.open_forecaster` says.
    """
    if model in MODELS:
        return FevForecaster(model, lambda task: _local(model, task))
    from chronos import Chronos2Pipeline

    from rankscope import load_pipeline
    from rankscope.checkpoints import open_checkpoint

    checkpoint = open_checkpoint(model, revision=how.revision)
    pipeline: Any = load_pipeline(checkpoint, device=how.device, dtype=how.dtype, runtime=how.runtime)
    sampled = {"num_samples": how.num_samples} if pipeline.forecast_type.name == "SAMPLES" else {}

    def predict(task: Task) -> Predictions:
        found: Predictions = pipeline.predict_fev(task, batch_size=how.batch_size, **sampled)
        return found

    files = tuple(sorted(path for path in checkpoint.folder.iterdir() if path.is_file()))
    return FevForecaster(model, predict, files, isinstance(pipeline, Chronos2Pipeline))


def _local(model: str, task: Task) -> Predictions:
    """Forecast the last `CONTEXT` values of every series and target on their own.

    What has no forecast, a series shorter than a season, is zero, as in fev's published results.
    """
    import numpy as np
    import pandas as pd

    season: int = task.seasonality if task.seasonality <= CONTEXT else 1
    found, seconds = [], 0.0
    for window in task.iter_windows(num_proc=1):
        past, _ = window.get_input_data()
        targets = [past.data.table.column(name).to_numpy() for name in task.target_columns]
        series = [np.asarray(one, dtype=float)[-CONTEXT:] for item in zip(*targets, strict=True) for one in item]
        begun = time.monotonic()
        point, quantiles = forecast_locally(model, series, task.horizon, season, task.quantile_levels)
        seconds += time.monotonic() - begun
        levels = {str(level): values.ravel() for level, values in zip(task.quantile_levels, quantiles, strict=True)}
        frame = pd.DataFrame({"predictions": point.ravel(), **levels}).fillna(0.0)
        found.append(
            fev().utils.convert_forecast_df_to_predictions(
                frame, task.horizon, task.quantile_levels, task.target_columns
            )
        )
    return found, seconds
