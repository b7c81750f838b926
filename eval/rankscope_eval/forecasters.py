"""Forecasters by model name."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankscope.errors import OptionError, check_count
from rankscope.series.record import Entry
from rankscope_eval.baselines import BASELINES
from rankscope_eval.metrics import QUANTILES

if TYPE_CHECKING:
    from rankscope.checkpoints import Checkpoint


@dataclass(frozen=True)
class Forecasting:
    """Forecasting settings; local models use only the seed.

    Attributes:
        num_samples: sample paths per series (sampling models).
        batch_size: series per batch.
        seed: seed of sampling.
        device: ``cpu``, ``cuda`` or ``auto``.
        dtype: compute dtype (default: see `rankscope.load_pipeline`).
        runtime: ``auto``, ``fast`` or ``stock``; see `rankscope.load_pipeline`.
        revision: branch, tag or commit of a hub model.
    """

    num_samples: int = 20
    batch_size: int = 32
    seed: int = 0
    device: str = "cpu"
    dtype: Any = None
    runtime: str = "auto"
    revision: str | None = None

    def __post_init__(self) -> None:
        check_count("num_samples", self.num_samples)
        check_count("batch_size", self.batch_size)
        check_count("seed", self.seed, 0)


@dataclass(frozen=True)
class Forecaster:
    """Named model; ``run(entries, horizon, season_length, levels)`` gives GluonTS forecasts, in order.

    The ``info`` of a forecast that is a fallback is `rankscope_eval.baselines.FALLBACK`.
    """

    name: str
    run: Callable[[Sequence[Entry], int, int, Sequence[float]], Iterable[Any]]
    seed: int = 0
    context: int | None = None
    """Context length; None for unlimited."""
    files: tuple[Path, ...] | None = None
    """Files that determine the forecasts, besides the options; None if unknown."""
    samples: bool = True
    """True if it draws torch's random numbers."""
    opening: tuple[str | Path, Forecasting] | None = None
    """Arguments of `open_forecaster` that open the model in another process; None if it lives in this one alone."""

    def forecast(
        self,
        entries: Sequence[Entry],
        horizon: int,
        seasons: int | Sequence[int],
        levels: Sequence[float] = QUANTILES,
    ) -> Iterator[Any]:
        """Yield GluonTS forecasts of the entries, in order, batch by batch, sampled ones by several batches at once.

        What is sampled begins at the seed: results do not depend on earlier calls, and leave torch's state alone.

        Args:
            entries: series.
            horizon: steps.
            seasons: season length, of all entries or of each. Where they differ, entries of one length are forecast
                together, and all are held until the last.
            levels: quantile levels.
        """
        if not isinstance(seasons, Sequence):
            from rankscope.engine.randomness import seeded_items

            run = partial(self.run, entries, horizon, seasons, levels)
            yield from seeded_items(run, self.seed) if self.samples else run()
            return
        if len({*seasons}) == 1:
            yield from self.forecast(entries, horizon, seasons[0], levels)
            return
        found: list[Any] = [None] * len(entries)
        for length in sorted({*seasons}):
            places = [place for place, season in enumerate(seasons) if season == length]
            some = [entries[place] for place in places]
            for place, one in zip(places, self.forecast(some, horizon, length, levels), strict=True):
                found[place] = one
        yield from found

    def __reduce__(self) -> tuple[Any, ...]:
        if self.opening is None:
            raise OptionError(f"model {self.name} is not known by a name: evaluate it in this process (jobs=1).")
        model, how = self.opening
        changed = str([path.stat().st_mtime_ns for path in self.files or ()])
        return open_once, (model, replace(how, seed=self.seed), changed)


def open_forecaster(model: str | Path | Checkpoint, how: Forecasting | None = None) -> Forecaster:
    """Open a baseline by name, or a checkpoint: an open one, a hub id, a folder or a bundled name.

    Checkpoints are loaded with `rankscope.load_pipeline`, by default with runtime ``auto``.

    Raises:
        CheckpointError: the checkpoint is unreadable or cannot forecast.
        FamilyError: the runtime does not support the checkpoint.
        OptionError: unknown runtime, device or dtype.
    """
    how = how or Forecasting()
    if isinstance(model, str) and model in BASELINES:
        return Forecaster(model, BASELINES[model], how.seed, files=(), samples=False, opening=(model, how))
    from rankscope import load_pipeline
    from rankscope.checkpoints import Checkpoint, open_checkpoint

    checkpoint = open_checkpoint(model, revision=how.revision)
    pipeline = load_pipeline(checkpoint, device=how.device, dtype=how.dtype, runtime=how.runtime)
    files = tuple(sorted(path for path in checkpoint.folder.iterdir() if path.is_file()))
    opening = None if isinstance(model, Checkpoint) else (model, how)
    return replace(pipeline_forecaster(model_name(model), pipeline, how), files=files, opening=opening)


def model_name(model: str | Path | Checkpoint | Forecaster) -> str:
    """Name of a model in reports."""
    return model.name if isinstance(model, Forecaster) else str(getattr(model, "source", model))


@cache
def open_once(model: str | Path, how: Forecasting, state: str) -> Forecaster:
    """Open a model by name, once per process and state of its files: a fingerprint, or their times of change."""
    quiet_imports()
    return open_forecaster(model, how)


def live_pipeline(network: Any) -> Any:
    """Wrap a module in the pipeline that chronos-forecasting would load its saved folder into."""
    from chronos import Chronos2Pipeline, ChronosBoltPipeline, ChronosConfig, ChronosPipeline
    from chronos.chronos import ChronosModel

    settings = network.config.chronos_config
    if "output_patch_size" in settings:
        return Chronos2Pipeline(network)
    if "input_patch_size" in settings:
        return ChronosBoltPipeline(network)
    config: Any = ChronosConfig(**settings)
    return ChronosPipeline(config.create_tokenizer(), ChronosModel(config, network))


def quiet_imports() -> None:
    """Import torch and GluonTS, suppressing GluonTS' JSON-package warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("torch", "gluonts.dataset.split", "gluonts.model.evaluation", "gluonts.model.seasonal_naive"):
            import_module(name)


def pipeline_forecaster(name: str, pipeline: Any, how: Forecasting | None = None) -> Forecaster:
    """Wrap a loaded chronos pipeline into a forecaster.

    Sampling models return GluonTS ``SampleForecast``, quantile models ``QuantileForecast``; contexts are passed in
    single precision. The samples themselves are scored, as in chronos-forecasting's original script; its release 2
    treats nine quantiles as nine samples, which narrows the forecast.
    """
    how = how or Forecasting()
    samples = pipeline.forecast_type.name == "SAMPLES"

    def run(entries: Sequence[Entry], horizon: int, season_length: int, levels: Sequence[float]) -> Iterator[Any]:
        for batch in _batches(entries, how.batch_size):
            if samples:
                yield from _sample_batch(pipeline, batch, horizon, how.num_samples)
            else:
                yield from _quantile_batch(pipeline, batch, horizon, levels)

    return Forecaster(name, run, how.seed, pipeline.model_context_length, samples=samples)


def _batches(entries: Sequence[Entry], size: int) -> Iterator[list[Entry]]:
    for first in range(0, len(entries), size):
        yield list(entries[first : first + size])


def _contexts(batch: list[Entry]) -> list[Any]:
    import torch

    return [torch.from_numpy(np.array(entry["target"], dtype=np.float32)) for entry in batch]


def _sample_batch(pipeline: Any, batch: list[Entry], horizon: int, num_samples: int) -> list[Any]:
    from gluonts.model.forecast import SampleForecast

    drawn = pipeline.predict(_contexts(batch), prediction_length=horizon, num_samples=num_samples)
    arrays = drawn.float().cpu().numpy()  # [series, samples, horizon]
    return [
        SampleForecast(samples=array, start_date=entry["start"] + len(entry["target"]))
        for array, entry in zip(arrays, batch, strict=True)
    ]


@contextlib.contextmanager
def _silenced(*modules: str) -> Iterator[None]:
    """Disable the loggers of modules for the block."""
    loggers = [import_module(name).logger for name in modules]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


def _quantile_batch(pipeline: Any, batch: list[Entry], horizon: int, levels: Sequence[float]) -> list[Any]:
    from gluonts.model.forecast import QuantileForecast

    low, high = min(pipeline.quantiles), max(pipeline.quantiles)
    if not low <= min(levels) <= max(levels) <= high:
        warnings.warn(
            f"the model has learned the quantiles {low:g} to {high:g}: a level beyond them gets the value of the "
            "outermost.",
            stacklevel=2,
        )
    with _silenced("chronos.chronos_bolt", "chronos.chronos2.pipeline"):  # which log it once a batch
        quantiles, mean = pipeline.predict_quantiles(
            _contexts(batch), prediction_length=horizon, quantile_levels=list(levels)
        )
    forecasts = []
    for row, entry in enumerate(batch):
        # Chronos-2 returns a list of [variates, horizon, levels], Bolt one tensor [series, horizon, levels].
        array = quantiles[row].float().cpu().numpy().reshape(horizon, len(levels)).T
        point = mean[row].float().cpu().numpy().reshape(1, horizon)
        forecasts.append(
            QuantileForecast(
                forecast_arrays=np.concatenate([array, point]),
                forecast_keys=[*(str(q) for q in levels), "mean"],
                start_date=entry["start"] + len(entry["target"]),
            )
        )
    return forecasts
