"""From the name of a model to something that forecasts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankscope.errors import OptionError
from rankscope.series.record import Entry
from rankscope_eval.baselines import BASELINES
from rankscope_eval.metrics import QUANTILES

if TYPE_CHECKING:
    from rankscope.checkpoints import Checkpoint


@dataclass(frozen=True)
class Forecasting:
    """Settings of forecasts; models that are fitted series by series heed none of them but the seed.

    Attributes:
        num_samples: sample paths per series, of models that draw them.
        batch_size: series per forward pass.
        seed: of the sample paths.
        device: where checkpoints run: ``cpu``, ``cuda`` or ``auto``.
        dtype: number format to compute in; that of the checkpoint by default.
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
        check_counts(num_samples=self.num_samples, batch_size=self.batch_size)


@dataclass(frozen=True)
class Forecaster:
    """A named model; ``run(entries, horizon, season_length, levels)`` gives forecasts and counts fallbacks."""

    name: str
    run: Callable[[Sequence[Entry], int, int, Sequence[float]], tuple[list[Any], int]]
    seed: int = 0
    context: int | None = None
    """Number of values of a series that it sees, the last ones; None for all."""
    files: tuple[Path, ...] | None = None
    """Files that its forecasts depend on, beside its options; None where they are not known."""

    def forecast(
        self, entries: Sequence[Entry], horizon: int, season_length: int, levels: Sequence[float] = QUANTILES
    ) -> tuple[list[Any], int]:
        """GluonTS forecasts of the entries, in their order.

        The random state is set to the seed before the first entry, so a result does not depend on what ran
        before.
        """
        import torch

        torch.manual_seed(self.seed)
        return self.run(entries, horizon, season_length, levels)


def open_forecaster(model: str | Checkpoint, how: Forecasting | None = None) -> Forecaster:
    """Forecaster of a baseline name or of a checkpoint: an open one, or a hub id, folder or bundled name.

    Checkpoints run as `rankscope.load_pipeline` says: by the fast runtime where it knows them, by default.

    Raises:
        CheckpointError: the checkpoint cannot be read or cannot forecast.
        FamilyError: the runtime does not know the checkpoint.
        OptionError: the runtime, the device or the number format is unknown.
    """
    how = how or Forecasting()
    if isinstance(model, str) and model in BASELINES:
        return Forecaster(model, BASELINES[model], how.seed, files=())
    from rankscope import load_pipeline
    from rankscope.checkpoints import open_checkpoint

    checkpoint = open_checkpoint(model, revision=how.revision) if isinstance(model, str) else model
    pipeline = load_pipeline(checkpoint, device=how.device, dtype=how.dtype, runtime=how.runtime)
    made = pipeline_forecaster(model if isinstance(model, str) else checkpoint.source, pipeline, how)
    return replace(made, files=tuple(sorted(path for path in checkpoint.folder.iterdir() if path.is_file())))


def live_pipeline(network: Any) -> Any:
    """Wrap a module in the pipeline that chronos-forecasting would load its saved folder into."""
    from chronos import ChronosBoltPipeline, ChronosConfig, ChronosPipeline
    from chronos.chronos import ChronosModel

    settings = network.config.chronos_config
    if "input_patch_size" in settings:
        return ChronosBoltPipeline(network)
    config: Any = ChronosConfig(**settings)
    return ChronosPipeline(config.create_tokenizer(), ChronosModel(config, network))


def check_counts(**counts: int) -> None:
    """Refuse counts below 1.

    Raises:
        OptionError: one is.
    """
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise OptionError(f"{name} {value!r} is not usable: give a whole number, at least 1.")


def quiet_imports() -> None:
    """Import torch and GluonTS, without the latter's advice to install a faster JSON package."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("torch", "gluonts.dataset.split", "gluonts.model.evaluation", "gluonts.model.seasonal_naive"):
            import_module(name)


def pipeline_forecaster(name: str, pipeline: Any, how: Forecasting | None = None) -> Forecaster:
    """Forecaster of a loaded chronos pipeline.

    One that draws samples gives GluonTS ``SampleForecast``, one that emits quantiles ``QuantileForecast``; contexts
    are passed in single precision. The samples themselves are scored, as chronos-forecasting's script did first;
    its later form (release 2) takes nine quantiles of them for nine samples, which narrows the forecast.
    """
    how = how or Forecasting()

    def run(
        entries: Sequence[Entry], horizon: int, season_length: int, levels: Sequence[float]
    ) -> tuple[list[Any], int]:
        samples = pipeline.forecast_type.name == "SAMPLES"
        forecasts: list[Any] = []
        for batch in _batches(entries, how.batch_size):
            if samples:
                forecasts += _sample_batch(pipeline, batch, horizon, how.num_samples)
            else:
                forecasts += _quantile_batch(pipeline, batch, horizon, levels)
        return forecasts, 0

    return Forecaster(name, run, how.seed, pipeline.model_context_length)


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


def _quantile_batch(pipeline: Any, batch: list[Entry], horizon: int, levels: Sequence[float]) -> list[Any]:
    from gluonts.model.forecast import QuantileForecast

    quantiles, mean = pipeline.predict_quantiles(
        _contexts(batch), prediction_length=horizon, quantile_levels=list(levels)
    )
    forecasts = []
    for row, entry in enumerate(batch):
        # Chronos-2 answers with a list of [variates, horizon, levels], Bolt with one [series, horizon,
        # levels].
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
