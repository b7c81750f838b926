"""Score compressed models against the original: accuracy and agreement of forecasts, log-perplexity of text models."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rankscope import load_pipeline
from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.compress.calibration import CalibrationSet, calibration_set
from rankscope.compress.calibration.sources import PROBE_SEED, PROBED_WINDOWS, default_set, lengths, named_set
from rankscope.compress.calibration.statistics import digest
from rankscope.compress.calibration.text import calibration_windows, read_tokens
from rankscope.engine import Progress
from rankscope.engine.device import resolve_dtype
from rankscope.errors import DataError, FamilyError, OptionError, check_count
from rankscope.measure.cache import cache_bytes
from rankscope.measure.tradeoff import DatasetScore, Measures, Original
from rankscope.series import Columns
from rankscope_eval.bench.turns import alternate, ratios, timed
from rankscope_eval.forecasters import Forecasting, pipeline_forecaster
from rankscope_eval.metrics import QUANTILES
from rankscope_eval.relative import Sums, relative_scores
from rankscope_eval.scorer import Scorer
from rankscope_eval.sources import read_suite
from rankscope_eval.suites import DEFAULT_SUITE, Suite
from rankscope_eval.tradeoff.folder import KeptOriginal
from rankscope_eval.tradeoff.overlap import (
    log_perplexity,
    mean_overlap,
    quantile_distance,
    quantile_forecasts,
    teacher_passes,
    text_windows,
    top_tokens,
)
from rankscope_eval.verdict import MARGIN, check_margin

OVERLAP_SEED = 1_000_000
"""Seed of the comparison series, distinct from all calibration seeds."""
TIMED, ROUNDS = 8, 3
"""Batch size (series or text windows) and repetitions for timing."""
DEFAULT_TEXT = "text:256"


@dataclass(frozen=True)
class TradeoffOptions:
    """Data and measurement settings.

    Attributes:
        suite: shipped suite, YAML file or suite for scoring (default: ``embedded``).
        data: folder with local data files.
        max_series: use only the first series of each data set.
        how: forecasting settings.
        sampling_seeds: seeds that sampled forecasts are drawn with and their losses averaged over; forecasts that are
            not sampled are made once.
        margin: relative difference that verdicts count as none.
        overlap_series: synthetic series, or text windows, for comparing outputs.
        calibration: calibration set (default: the model's, as `compress` has it); ``text:N`` for a text model.
        text: text file for a text model.
        columns: non-default column names of the calibration set's files.
        freq: frequency of the calibration set's files (default: inferred).
    """

    suite: str | Suite | None = None
    data: str | None = None
    max_series: int | None = None
    how: Forecasting = field(default_factory=lambda: Forecasting(runtime="stock"))
    sampling_seeds: int = 1
    margin: float = MARGIN
    overlap_series: int = 1000
    calibration: str | None = None
    text: str | None = None
    columns: Columns | None = None
    freq: str | None = None

    def __post_init__(self) -> None:
        check_count("overlap_series", self.overlap_series)
        check_count("sampling_seeds", self.sampling_seeds)
        check_margin(self.margin)
        resolve_dtype(self.how.dtype)


class ForecastScorer:
    """Scorer of WQL and MASE on a suite, and of token overlap or quantile distance on synthetic series."""

    def __init__(self, checkpoint: Checkpoint, options: TradeoffOptions) -> None:
        if options.text is not None:
            raise OptionError(f"{checkpoint.source} is a time-series model; leave out the text.")
        self.checkpoint = checkpoint
        self.options = replace(options, calibration=options.calibration or default_set(checkpoint))
        suite = read_suite(options.suite or DEFAULT_SUITE, options.data, max_series=options.max_series)
        self.scorer = Scorer(suite, options.how)
        self.context, self.horizon = lengths(checkpoint)
        calibrated = self.calibration(0)
        self._calibrated = digest(calibrated.context, calibrated.future)

    def settings(self) -> dict[str, Any]:
        """Return suite, series, seeds and device."""
        options = self.options
        suite = self.scorer.suite.suite
        tasks = hashlib.sha256(repr(suite.tasks).encode()).hexdigest()[:16]
        return {
            "suite": suite.name,
            "max_series": options.max_series,
            "tasks": tasks,
            "data": self.scorer.suite.contents(),
            "num_samples": options.how.num_samples,
            "batch_size": options.how.batch_size,
            "sampling_seeds": options.sampling_seeds,
            "runtime": options.how.runtime,
            **_settings(options),
            "calibrated": self._calibrated,
        }

    def calibration(self, seed: int) -> CalibrationSet:
        """Return synthetic series, or windows of the user's."""
        options = self.options
        return named_set(self.checkpoint, options.calibration, seed=seed, columns=options.columns, freq=options.freq)

    def probe(self, seed: int) -> CalibrationSet | None:
        """Return None: generated series are drawn by `rankscope.compress`."""
        return None

    def original(self, progress: Progress) -> KeptOriginal:
        """Score the original on the suite."""
        scores, sums = self._scores(self._pipeline, progress)
        return KeptOriginal(Original(**_sizes(self.checkpoint), scores=scores), sums)

    def compare(
        self, folder: Path, original: Original, progress: Progress
    ) -> tuple[Measures, tuple[DatasetScore, ...], dict[str, Sums]]:
        """Score a model on the suite, compare its outputs and time its forecasts."""
        smaller = open_checkpoint(folder)
        pipeline = self._open(smaller)
        scores, sums = self._scores(pipeline, progress)
        if self.checkpoint.family.strategy == "continuous":
            near = Measures(quantile_distance=self._distance(pipeline))
        else:
            near = Measures(overlap=mean_overlap(self._tokens, self._top(pipeline, progress)))
        progress(0, 0, "time")
        times = _times(self._forecast(self._pipeline), self._forecast(pipeline))
        measures = replace(
            near,
            relative_WQL=_relative(scores, original.scores, "WQL"),
            relative_MASE=_relative(scores, original.scores, "MASE"),
            **_sizes(smaller),
            **times,
        )
        return measures, scores, sums

    def _open(self, checkpoint: Checkpoint) -> Any:
        how = self.options.how
        return load_pipeline(checkpoint, device=how.device, dtype=how.dtype, runtime=how.runtime)

    @cached_property
    def _pipeline(self) -> Any:
        return self._open(self.checkpoint)

    @cached_property
    def _series(self) -> CalibrationSet:
        return calibration_set(
            f"mixture:{self.options.overlap_series}", context=self.context, horizon=self.horizon, seed=OVERLAP_SEED
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
        return quantile_forecasts(pipeline, self._series.context, self.horizon, QUANTILES, self.options.how.batch_size)

    def _distance(self, pipeline: Any) -> float:
        return quantile_distance(self._quantiles, self._quantiles_of(pipeline), self._series.context)

    def _scores(self, pipeline: Any, progress: Progress) -> tuple[tuple[DatasetScore, ...], dict[str, Sums]]:
        """Return scores by data set and the sums of every series, averaged over the sampling seeds."""
        how, sampled = self.options.how, pipeline.forecast_type.name == "SAMPLES"
        seeds = range(how.seed, how.seed + (self.options.sampling_seeds if sampled else 1))
        runs = [
            self.scorer.rows(pipeline_forecaster("model", pipeline, replace(how, seed=seed)), progress)
            for seed in seeds
        ]
        scores, sums = [], {}
        for rows in zip(*runs, strict=True):  # one data set by every seed
            wql, mase = (_finite(fmean(getattr(row, name) for row in rows)) for name in ("WQL", "MASE"))
            scores.append(DatasetScore(rows[0].benchmark, rows[0].dataset, wql, mase, rows[0].source))
            sums[rows[0].key] = np.mean([row.sums for row in rows], axis=0)
        return tuple(scores), sums

    def _forecast(self, pipeline: Any) -> Callable[[], Any]:
        series = self._series.context[:TIMED]
        if pipeline.forecast_type.name == "SAMPLES":
            count = self.options.how.num_samples
            return lambda: pipeline.predict(series, prediction_length=self.horizon, num_samples=count)
        return lambda: quantile_forecasts(pipeline, series, self.horizon, QUANTILES)


class TextScorer:
    """Scorer of log-perplexity and token overlap on a text; calibration uses a different part of it."""

    def __init__(self, checkpoint: Checkpoint, options: TradeoffOptions) -> None:
        if options.text is None:
            raise OptionError(
                f"{checkpoint.source} is a {checkpoint.family.title} model, which rankscope cannot forecast with: "
                "give it a text (--text FILE)."
            )
        for name in ("suite", "data", "max_series"):
            if getattr(options, name) is not None:
                raise OptionError(f"{name} applies to forecasts, but {checkpoint.source} is a text model.")
        if not any(site.stack == "decoder" for site in checkpoint.sites(["all"])):
            raise FamilyError(f"{checkpoint.source} has no decoder: only encoder-decoder models predict text.")
        self.checkpoint = checkpoint
        self.options = replace(options, calibration=options.calibration or DEFAULT_TEXT)
        self._count = _text_count(options.calibration or DEFAULT_TEXT)
        self.tokens = read_tokens(options.text, checkpoint)
        self.windows = text_windows(self.tokens, options.overlap_series)
        self.calibration(0)

    def settings(self) -> dict[str, Any]:
        """Return the text (by its tokens), seeds and device."""
        digest = hashlib.sha256(self.tokens.numpy().tobytes()).hexdigest()[:16]
        return {"text": digest, "windows": len(self.windows), **_settings(self.options)}

    def calibration(self, seed: int) -> CalibrationSet:
        """Return windows of the first half of the text."""
        return calibration_windows(self.tokens, self._count, seed)

    def probe(self, seed: int) -> CalibrationSet | None:
        """Return other windows of the first half of the text."""
        return calibration_windows(self.tokens, PROBED_WINDOWS, seed + PROBE_SEED)

    def original(self, progress: Progress) -> KeptOriginal:
        """Measure the original's log-perplexity."""
        lppl = log_perplexity(self._module, self.checkpoint, self.windows, progress)
        return KeptOriginal(Original(**_sizes(self.checkpoint), LPPL=lppl), {})

    def compare(
        self, folder: Path, original: Original, progress: Progress
    ) -> tuple[Measures, tuple[DatasetScore, ...], dict[str, Sums]]:
        """Measure log-perplexity, overlap and the time of a forward pass."""
        smaller = open_checkpoint(folder)
        module = self._module_of(smaller)
        lppl = log_perplexity(module, smaller, self.windows, progress)
        tokens = top_tokens(module, smaller.family, self.windows, progress=progress)
        progress(0, 0, "time")
        times = _times(self._forward(self._module), self._forward(module))
        measures = Measures(
            relative_LPPL=lppl / original.LPPL if original.LPPL else None,
            overlap=mean_overlap(self._tokens, tokens),
            **_sizes(smaller),
            **times,
        )
        return measures, (), {}

    def _module_of(self, checkpoint: Checkpoint) -> Any:
        return checkpoint.module(resolve_dtype(self.options.how.dtype) or torch.float32).to(self.options.how.device)

    @cached_property
    def _module(self) -> Any:
        return self._module_of(self.checkpoint)

    @cached_property
    def _tokens(self) -> Tensor:
        return top_tokens(self._module, self.checkpoint.family, self.windows)

    def _forward(self, module: Any) -> Callable[[], Any]:
        batch = next(teacher_passes(module, self.checkpoint.family, self.windows, TIMED))

        @torch.no_grad()
        def run() -> Any:
            return module(**batch.inputs).logits.sum().cpu()

        return run


def _text_count(name: str) -> int:
    kind, _, number = name.partition(":")
    if kind != "text" or not number.isdecimal() or int(number) < 1:
        raise OptionError(
            f"calibration {name!r} is not supported for text models; use windows of its text, such as {DEFAULT_TEXT}."
        )
    return int(number)


def _relative(scores: tuple[DatasetScore, ...], original: tuple[DatasetScore, ...], metric: str) -> float:
    """Compute the geometric mean over data sets of score / original score.

    Raises:
        DataError: no data set has a usable ratio.
    """
    ours, theirs = ({f"{r.benchmark}/{r.dataset}": getattr(r, metric) for r in of} for of in (scores, original))
    found = relative_scores(ours, theirs)
    if not found.datasets:
        raise DataError(f"no data set has a usable ratio of {metric}.")
    return found.value


def _finite(score: float) -> float | None:
    return score if math.isfinite(score) else None


def _settings(options: TradeoffOptions) -> dict[str, Any]:
    """Return the settings that all measurements depend on."""
    return {
        "seed": options.how.seed,
        "overlap_series": options.overlap_series,
        "calibration": options.calibration,
        "columns": None if options.columns is None else asdict(options.columns),
        "freq": options.freq,
        "device": options.how.device,
        "dtype": options.how.dtype,
        "overlap_seed": OVERLAP_SEED,
    }


def _sizes(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the stored and cached sizes of a checkpoint, under the field names of `Original` and `Measures`."""
    return {
        "parameters": checkpoint.parameters,
        "bytes": checkpoint.bytes,
        "cache_bytes": cache_bytes(checkpoint),
    }


def _times(original: Callable[[], Any], model: Callable[[], Any]) -> dict[str, float]:
    """Time a model against the original in interleaved rounds, under the field names of `Measures`."""
    seconds = alternate({"original": timed(original), "model": timed(model)}, ROUNDS)
    ratio = ratios(seconds["model"], seconds["original"]).median
    return {"forecast_seconds": median(seconds["model"]), "time_ratio": ratio}
