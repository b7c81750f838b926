"""The process of one case: it loads a model, says what that took, and forecasts once for every line on its stdin.

A line is ``load``, ``forecast`` or ``rates DTYPE DEVICE``; every answer is one line of JSON on stdout. Whatever else
prints goes to stderr. The process ends with its stdin.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankscope.errors import RankscopeError
from rankscope_eval.bench.case import LOCAL, Case

if TYPE_CHECKING:
    from rankscope.checkpoints import Checkpoint

LONG = 5.0
"""Seconds from which on one forecast warms up enough; shorter ones are made twice."""
TURN = 0.2
"""Seconds that a turn lasts at least: short forecasts are repeated, and the mean is said."""
MOST_REPEATS = 200
SEASON = 24
"""Season of the models that are fitted series by series: the series are hourly."""
IMPORTS = (
    ("rankscope.forecast.pipeline", "rankscope.forecast.fast", "rankscope_eval.bench.counts"),
    (
        *("pandas", "statsforecast.models", "rankscope_eval.forecasters"),
        *("gluonts.dataset.split", "gluonts.model.evaluation", "gluonts.model.seasonal_naive"),
    ),
)
"""Imports of a forecast: of a checkpoint, and of a model that is fitted series by series."""


@dataclass
class Worker:
    """Loads and times one case.

    Attributes:
        case: what is timed.
        forecast: makes one forecast; set by `load`.
        repeats: forecasts per turn.
        before: resident bytes before the model was loaded.
        beside: peak memory of the processes that help with forecasts, above their imports.
    """

    case: Case
    forecast: Callable[[], Any] = field(default=lambda: None)
    repeats: int = 1
    before: int = 0
    beside: Callable[[], int] = field(default=lambda: 0)

    def load(self) -> dict[str, Any]:
        """Load the model and warm it up; say its sizes and peak memory."""
        import torch

        if self.case.threads is not None:
            torch.set_num_threads(self.case.threads)
        self.before = settled(self.case)
        if self.case.runtime == LOCAL:
            self.forecast, self.beside = local(self.case, torch.get_num_threads())
            weight_bytes, facts = 0, {"dtype": "float64", "paths": 1, "context": self.case.context}
        else:
            self.forecast, weight_bytes, facts = opened(self.case)
        loaded = resident_bytes()
        torch.manual_seed(self.case.seed)
        seconds = self._once()
        if seconds < LONG:
            seconds = self._once()
        self.repeats = min(MOST_REPEATS, max(1, math.ceil(TURN / max(seconds, 1e-9))))
        return {
            "weight_bytes": weight_bytes,
            **facts,
            "threads": torch.get_num_threads(),
            "loaded_bytes": max(0, loaded - self.before),
            "repeats": self.repeats,
        }

    def turn(self) -> dict[str, Any]:
        """Forecast, and say the seconds of one forecast and the peak memory so far."""
        seconds = sum(self._once() for _ in range(self.repeats)) / self.repeats
        return {
            "seconds": seconds,
            "peak_bytes": max(0, peak_bytes(self.case.device) - self.before * (not self._on_gpu)) + self.beside(),
        }

    @property
    def _on_gpu(self) -> bool:
        return self.case.device.startswith("cuda")

    def _once(self) -> float:
        import torch

        settle = torch.cuda.synchronize if self._on_gpu else (lambda: None)
        settle()
        begun = time.perf_counter()
        self.forecast()
        settle()
        return time.perf_counter() - begun


def opened(case: Case) -> tuple[Callable[[], Any], int, dict[str, Any]]:
    """Load the model of a case: what forecasts, the bytes of its weights, and its number format, paths and work."""
    import torch

    from rankscope import load_pipeline
    from rankscope.checkpoints import open_checkpoint

    checkpoint = open_checkpoint(case.model, revision=case.revision)
    case = replace(case, context=min(case.context, checkpoint.family.context(checkpoint.config) or case.context))
    series = walks(case)
    runtime = "stock" if case.runtime == "compile" else case.runtime
    pipeline: Any = load_pipeline(checkpoint, device=case.device, dtype=case.dtype, runtime=runtime)
    module = pipeline.inner_model
    weights = stored_bytes(module)
    if case.runtime == "compile":
        if getattr(module, "generation_config", None) is not None:
            module.generation_config.cache_implementation = "static"  # a cache that grows compiles at every step
        for part in (module, getattr(module, "encoder", None)):
            if part is not None:
                part.forward = torch.compile(part.forward)
    options: dict[str, Any] = {"prediction_length": case.horizon}
    samples = pipeline.forecast_type.name == "SAMPLES"
    if samples:
        options["num_samples"] = case.num_samples
    paths = case.num_samples if samples else 1
    inputs = series if type(pipeline).__name__ != "Chronos2Pipeline" else list(series)
    work = counted(replace(case, num_samples=paths), checkpoint, module.dtype.itemsize)
    facts = {"dtype": str(module.dtype).removeprefix("torch."), "paths": paths, "context": case.context, **work}
    return lambda: pipeline.predict(inputs, **options), weights, facts


def counted(case: Case, checkpoint: Checkpoint, itemsize: int) -> dict[str, Any]:
    """Phases and bytes of caches, where the work of the model is counted."""
    from rankscope_eval.bench.counts import cache_bytes, phases, read_network

    network = read_network(checkpoint, itemsize)
    if network is None:
        return {}
    return {"phases": [asdict(one) for one in phases(network, case)], "cache_bytes": cache_bytes(network, case)}


def walks(case: Case) -> Any:
    """Random walks to forecast, axes (series, time)."""
    import torch

    return torch.randn(case.batch, case.context, generator=torch.Generator().manual_seed(case.seed)).cumsum(1)


def settled(case: Case) -> int:
    """Import what forecasts of the case need and reset the peak; resident bytes then."""
    for name in IMPORTS[case.runtime == LOCAL]:  # so that code does not count as memory of the model
        import_module(name)
    gc.collect()
    reset_peak(case.device)
    return resident_bytes()


def local(case: Case, cores: int) -> tuple[Callable[[], Any], Callable[[], int]]:
    """Open a model that is fitted series by series; one that takes long is fitted in a process per core.

    Returns:
        What forecasts, and the peak memory of the processes above their imports.
    """
    from rankscope_eval.baselines import AUTOMATIC

    count = min(cores, case.batch)
    if case.model not in AUTOMATIC or count < 2:
        return _fit(case, slice(None)), lambda: 0
    pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"))
    parts = [slice(first, None, count) for first in range(count)]
    peaks: dict[int, int] = {}

    def forecast() -> None:
        peaks.update(pool.map(_fit_in_process, [case] * count, parts))

    return forecast, lambda: sum(peaks.values())


def _fit(case: Case, part: slice) -> Callable[[], Any]:
    import pandas as pd

    from rankscope_eval.forecasters import open_forecaster, quiet_imports

    quiet_imports()
    forecaster = open_forecaster(case.model)
    start = pd.Period("2020-01-01", freq="h")
    targets = walks(case).double().numpy()[part]
    entries = [{"item_id": str(i), "start": start, "target": one} for i, one in enumerate(targets)]
    return lambda: forecaster.forecast(entries, case.horizon, SEASON)


@cache
def _prepared(case: Case) -> int:
    """Resident bytes of a process that helps, before its first forecast."""
    return settled(case)


def _fit_in_process(case: Case, part: slice) -> tuple[int, int]:
    """Forecast a part of the series; the process and its peak memory above the imports."""
    before = _prepared(case)
    _fit(case, part)()
    return os.getpid(), max(0, peak_bytes(case.device) - before)


def stored_bytes(module: Any) -> int:
    """Bytes of all parameters and buffers; those that share storage count once."""
    tensors = [*module.parameters(), *module.buffers()]
    storages = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors}
    return sum(storages.values())


def resident_bytes() -> int:
    """Resident memory of this process."""
    return _status("VmRSS")


def peak_bytes(device: str) -> int:
    """Peak memory since `reset_peak`: of torch's allocator on a GPU, resident on a CPU."""
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.max_memory_allocated(device))
    return _status("VmHWM")


def reset_peak(device: str) -> None:
    """Let `peak_bytes` begin anew, where the system can."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.reset_peak_memory_stats(device)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _status(key: str) -> int:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(key):
                return int(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)


def answer(worker: Worker, line: str) -> dict[str, Any]:
    """Do what a line asks for."""
    word, *rest = line.split()
    if word == "rates":
        from rankscope_eval.bench.roofline import measure_rates

        dtype, device = rest
        return asdict(measure_rates(dtype, device))
    return worker.load() if word == "load" else worker.turn()


def main() -> None:
    """Serve until stdin ends."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import torch

    worker = Worker(Case(**json.loads(sys.argv[1])))
    if worker.case.threads is not None:
        torch.set_num_threads(worker.case.threads)
    with torch.inference_mode():
        for line in sys.stdin:
            try:
                found = answer(worker, line)
            except Exception as error:
                found = {"error": _line(error), "bad_input": isinstance(error, RankscopeError)}
            out.write(json.dumps(found) + "\n")
            out.flush()


def _line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    what = " ".join(text[0].split()) if text else ""
    return (
        what if isinstance(error, RankscopeError) else ": ".join(part for part in (type(error).__name__, what) if part)
    )


if __name__ == "__main__":
    main()
