"""From the name of a model to something that forecasts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.errors import OptionError
from rankscope_eval.baselines import BASELINES
from rankscope_eval.metrics import QUANTILES
from rankscope_eval.series import Entry

BATCH_SIZE = 32
NUM_SAMPLES = 20


@dataclass(frozen=True)
class Forecaster:
    """A named model; ``run(entries, horizon, season_length, levels)`` gives forecasts and counts fallbacks."""

    name: str
    run: Callable[[Sequence[Entry], int, int, Sequence[float]], tuple[list[Any], int]]
    seed: int = 0
    context: int | None = None
    """How many values of a series it sees, the last ones; None for all."""
    files: tuple[Path, ...] | None = None
    """What its forecasts are a function of, beside its options; None where that is not known."""

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


def open_forecaster(
    model: str,
    *,
    num_samples: int = NUM_SAMPLES,
    batch_size: int = BATCH_SIZE,
    seed: int = 0,
    device: str = "cpu",
    dtype: Any = None,
    runtime: str = "auto",
    revision: str | None = None,
) -> Forecaster:
    """Forecaster of a baseline name or of a checkpoint (hub id, folder or bundled name).

    Checkpoints run as `rankscope.load_pipeline` says: by the fast runtime where it knows them, by default.

    Raises:
        CheckpointError: the checkpoint cannot be read or cannot forecast.
        FamilyError: the runtime does not know the checkpoint.
        OptionError: the number of samples or the batch size is not positive, or the runtime is unknown.
    """
    check_counts(num_samples=num_samples, batch_size=batch_size)
    if model in BASELINES:
        return Forecaster(model, BASELINES[model], seed, files=())
    from rankscope import load_pipeline
    from rankscope.checkpoints import open_checkpoint

    pipeline = load_pipeline(model, device=device, dtype=dtype, runtime=runtime, revision=revision)
    made = pipeline_forecaster(str(model), pipeline, num_samples=num_samples, batch_size=batch_size, seed=seed)
    folder = open_checkpoint(model, revision=revision).folder
    return replace(made, files=tuple(sorted(path for path in folder.iterdir() if path.is_file())))


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


def pipeline_forecaster(
    name: str, pipeline: Any, *, num_samples: int = NUM_SAMPLES, batch_size: int = BATCH_SIZE, seed: int = 0
) -> Forecaster:
    """Forecaster of a loaded chronos pipeline.

    One that draws samples gives GluonTS ``SampleForecast``, one that emits quantiles ``QuantileForecast``; contexts
    are passed in single precision. The samples themselves are scored, as chronos-forecasting's script did first;
    its later form (release 2) takes nine quantiles of them for nine samples, which narrows the forecast.
    """

    def run(
        entries: Sequence[Entry], horizon: int, season_length: int, levels: Sequence[float]
    ) -> tuple[list[Any], int]:
        samples = pipeline.forecast_type.name == "SAMPLES"
        forecasts: list[Any] = []
        for batch in _batches(entries, batch_size):
            if samples:
                forecasts += _sample_batch(pipeline, batch, horizon, num_samples)
            else:
                forecasts += _quantile_batch(pipeline, batch, horizon, levels)
        return forecasts, 0

    return Forecaster(name, run, seed, pipeline.model_context_length)


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
