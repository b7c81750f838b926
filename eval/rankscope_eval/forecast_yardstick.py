"""Compressed forecasters against their original."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from torch import Tensor

from rankscope import load_pipeline
from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.compress.calibrated import lengths
from rankscope.compress.calibration import CalibrationSet, calibration_set
from rankscope.compress.calibration.sets import DEFAULT
from rankscope.engine.progress import Progress
from rankscope.errors import DataError, OptionError
from rankscope.measure.table2 import DatasetScore, Measures, Original
from rankscope_eval.forecasters import pipeline_forecaster
from rankscope_eval.metrics import QUANTILES
from rankscope_eval.overlap import mean_overlap, quantile_distance, quantile_forecasts, top_tokens
from rankscope_eval.relative import relative_scores
from rankscope_eval.scorer import Scorer
from rankscope_eval.sources import read_suite
from rankscope_eval.suites import DEFAULT_SUITE
from rankscope_eval.timing import time_against
from rankscope_eval.yard import OVERLAP_SEED, TIMED, Yard, common_settings, counts, sizes


class ForecastYardstick:
    """WQL and MASE on a suite, and the overlap of tokens or the distance of quantiles on generated series."""

    def __init__(self, checkpoint: Checkpoint, yard: Yard) -> None:
        if yard.text is not None:
            raise OptionError(f"{checkpoint.source} forecasts series: a text is of no use, leave it out.")
        self.checkpoint, self.yard = checkpoint, replace(yard, calibration=yard.calibration or DEFAULT)
        self.scorer = Scorer(read_suite(yard.suite or DEFAULT_SUITE, yard.data, max_series=yard.max_series), yard.how)
        self.context, self.horizon = lengths(checkpoint)
        self.calibration(0)

    def settings(self) -> dict[str, Any]:
        """Suite, series, seeds, device."""
        yard = self.yard
        suite = self.scorer.suite.suite
        tasks = hashlib.sha256(repr(suite.tasks).encode()).hexdigest()[:16]
        data = None if yard.data is None else str(Path(yard.data).resolve())
        return {
            "suite": suite.name,
            "tasks": tasks,
            "data": data,
            "max_series": yard.max_series,
            "num_samples": yard.how.num_samples,
            "batch_size": yard.how.batch_size,
            **common_settings(yard),
        }

    def calibration(self, seed: int) -> CalibrationSet:
        """Generated series, or windows of a user's."""
        return calibration_set(self.yard.calibration or DEFAULT, context=self.context, horizon=self.horizon, seed=seed)

    def probe(self, seed: int) -> CalibrationSet | None:
        """Generated series, as `rankscope.compress.sensitivity` makes them."""
        return None

    def original(self, progress: Progress) -> Original:
        """Score the original on the suite."""
        return replace(sizes(self.checkpoint), scores=self._scores(self._pipeline, progress))

    def compare(
        self, folder: Path, original: Original, progress: Progress
    ) -> tuple[Measures, tuple[DatasetScore, ...]]:
        """Score a model on the suite, compare its outputs, time its forecasts."""
        smaller = open_checkpoint(folder)
        pipeline = self._open(smaller)
        scores = self._scores(pipeline, progress)
        if self.checkpoint.family.strategy == "continuous":
            near = Measures(quantile_distance=self._distance(pipeline))
        else:
            near = Measures(overlap=mean_overlap(self._tokens, self._top(pipeline, progress)))
        progress(0, 0, "time")
        versus = time_against(self._forecast(self._pipeline), self._forecast(pipeline))
        measures = replace(
            near,
            relative_WQL=_relative(scores, original.scores, "WQL"),
            relative_MASE=_relative(scores, original.scores, "MASE"),
            **counts(sizes(smaller)),
            forecast_seconds=median(versus.second),
            time_ratio=versus.ratio,
        )
        return measures, scores

    def _open(self, checkpoint: Checkpoint) -> Any:
        how = self.yard.how
        return load_pipeline(checkpoint, device=how.device, dtype=how.dtype, runtime=how.runtime)

    @cached_property
    def _pipeline(self) -> Any:
        return self._open(self.checkpoint)

    @cached_property
    def _series(self) -> CalibrationSet:
        return calibration_set(
            f"mixture:{self.yard.overlap_series}", context=self.context, horizon=self.horizon, seed=OVERLAP_SEED
        )

    @cached_property
    def _tokens(self) -> Tensor:
        return self._top(self._pipeline, None)

    @cached_property
    def _quantiles(self) -> Tensor:
        return self._quantiles_of(self._pipeline)

    def _top(self, pipeline: Any, progress: Progress | None) -> Tensor:
        return top_tokens(pipeline.inner_model, self.checkpoint.family, self._series, progress=progress)

    def _quantiles_of(self, pipeline: Any) -> Tensor:
        return quantile_forecasts(pipeline, self._series.context, self.horizon, QUANTILES, self.yard.how.batch_size)

    def _distance(self, pipeline: Any) -> float:
        return quantile_distance(self._quantiles, self._quantiles_of(pipeline), self._series.context)

    def _scores(self, pipeline: Any, progress: Progress) -> tuple[DatasetScore, ...]:
        rows = self.scorer.rows(pipeline_forecaster("model", pipeline, self.yard.how), progress)
        return tuple(DatasetScore(r.benchmark, r.dataset, _finite(r.WQL), _finite(r.MASE)) for r in rows)

    def _forecast(self, pipeline: Any) -> Callable[[], Any]:
        series = self._series.context[:TIMED]
        if pipeline.forecast_type.name == "SAMPLES":
            count = self.yard.how.num_samples
            return lambda: pipeline.predict(series, prediction_length=self.horizon, num_samples=count)
        return lambda: quantile_forecasts(pipeline, series, self.horizon, QUANTILES)


def _relative(scores: tuple[DatasetScore, ...], original: tuple[DatasetScore, ...], metric: str) -> float:
    """Geometric mean over data sets.

    Raises:
        DataError: no data set has a usable ratio.
    """

    def by_dataset(rows: tuple[DatasetScore, ...]) -> dict[str, float]:
        scores = {f"{row.benchmark}/{row.dataset}": getattr(row, metric) for row in rows}
        return {name: score for name, score in scores.items() if score is not None}

    found = relative_scores(by_dataset(scores), by_dataset(original))
    if not found.datasets:
        raise DataError(f"no data set has a usable ratio of {metric}.")
    return found.value


def _finite(score: float) -> float | None:
    return score if math.isfinite(score) else None
