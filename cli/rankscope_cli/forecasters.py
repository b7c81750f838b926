"""Models that forecast, as the options of a verb name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankscope_cli.options import RUNTIMES, check_choice


def forecaster_settings(
    num_samples: int, batch_size: int, seed: int, device: str, dtype: str | None, runtime: str
) -> dict[str, Any]:
    """What the options say of how models forecast, by the names that `rankscope_eval` knows.

    Raises:
        OptionError: the device, the number format or the runtime cannot be used.
    """
    from rankscope.engine.device import resolve_device, resolve_dtype

    check_choice("runtime", runtime, RUNTIMES)
    where = {"device": resolve_device(device), "dtype": resolve_dtype(dtype), "runtime": runtime}
    return {"num_samples": num_samples, "batch_size": batch_size, "seed": seed, **where}


def at_revision(models: Sequence[str], revision: str | None, settings: dict[str, Any]) -> list[Any]:
    """Give the models by name, or open those that are no baseline at a revision of theirs."""
    if revision is None:
        return list(models)
    from rankscope_eval.baselines import BASELINES
    from rankscope_eval.forecasters import open_forecaster

    known = ("num_samples", "batch_size", "seed", "device", "dtype", "runtime")
    options = {name: settings[name] for name in known if name in settings}
    return [model if model in BASELINES else open_forecaster(model, revision=revision, **options) for model in models]
