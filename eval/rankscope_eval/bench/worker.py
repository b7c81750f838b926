"""Benchmark worker process: loads a model and runs one forecast per line on stdin.

Commands are ``load``, ``forecast`` and ``rates DTYPE DEVICE``; each response is one line of JSON on stdout. Other
output is redirected to stderr. The process exits at the end of stdin.
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
"""Forecasts shorter than this many seconds are warmed up twice."""
TURN = 0.2
"""Minimum seconds per turn; short forecasts are repeated and averaged."""
MOST_REPEATS = 200
SEASON = 24
"""Season length of local models; the series are hourly."""
IMPORTS = (
    ("rankscope.forecast.pipeline", "rankscope.forecast.fast", "rankscope_eval.bench.counts"),
    (
        *("pandas", "statsforecast.models", "rankscope_eval.forecasters"),
        *("gluonts.dataset.split", "gluonts.model.evaluation", "gluonts.model.seasonal_naive"),
    ),
)
"""Modules imported before measuring: for checkpoints, and for local models."""


@dataclass
class Worker:
    """Worker of one case.

    Attributes:
        case: benchmark case.
        forecast: runs one forecast; set by `load`.
        repeats: forecasts per turn.
        before: resident bytes before loading.
        beside: returns the peak memory of helper processes above their imports.
    """

    case: Case
    forecast: Callable[[], Any] = field(default=lambda: None)
    repeats: int = 1
    before: int = 0
    beside: Callable[[], int] = field(default=lambda: 0)

    def load(self) -> dict[str, Any]:
        """Load and warm up the model; return sizes and peak memory."""
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
        """Run one turn; return the seconds per forecast and the peak memory so far."""
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
    """Load the model of a case; return the forecast function, weight bytes, and dtype, paths and work."""
    import torch
    from chronos import Chronos2Pipeline

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
            module.generation_config.cache_implementation = "static"  # a growing cache would recompile at every step
        for part in (module, getattr(module, "encoder", None)):
            if part is not None:
                part.forward = torch.compile(part.forward)
    options: dict[str, Any] = {"prediction_length": case.horizon}
    samples = pipeline.forecast_type.name == "SAMPLES"
    if samples:
        options["num_samples"] = case.num_samples
    paths = case.num_samples if samples else 1
    inputs = list(series) if isinstance(pipeline, Chronos2Pipeline) else series
    work = counted(replace(case, num_samples=paths), checkpoint, module.dtype.itemsize)
    facts = {"dtype": str(module.dtype).removeprefix("torch."), "paths": paths, "context": case.context, **work}
    return lambda: pipeline.predict(inputs, **options), weights, facts


def counted(case: Case, checkpoint: Checkpoint, itemsize: int) -> dict[str, Any]:
    """Return phases and cache sizes, for families with known work."""
    from rankscope_eval.bench.counts import cache_bytes, phases, read_network

    network = read_network(checkpoint, itemsize)
    if network is None:
        return {}
    return {"phases": [asdict(one) for one in phases(network, case)], "cache_bytes": cache_bytes(network, case)}


def walks(case: Case) -> Any:
    """Generate random walks (series, time) as input."""
    import torch

    return torch.randn(case.batch, case.context, generator=torch.Generator().manual_seed(case.seed)).cumsum(1)


def settled(case: Case) -> int:
    """Import the modules of the case, reset the peak, and return the resident bytes."""
    for name in IMPORTS[case.runtime == LOCAL]:  # so that code does not count as model memory
        import_module(name)
    if case.runtime == "compile":
        import torch

        torch.compile(torch.neg)(torch.ones(1))  # imports the compiler
    gc.collect()
    reset_peak(case.device)
    return resident_bytes()


def local(case: Case, cores: int) -> tuple[Callable[[], Any], Callable[[], int]]:
    """Open a local model; slow ones are fitted in one process per core.

    Returns:
        The forecast function, and a function returning the helper processes' peak memory above their imports.
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
    return lambda: list(forecaster.forecast(entries, case.horizon, SEASON))


@cache
def _prepared(case: Case) -> int:
    """Return the resident bytes of a helper process before its first forecast."""
    return settled(case)


def _fit_in_process(case: Case, part: slice) -> tuple[int, int]:
    """Forecast part of the series; return the process id and its peak memory above the imports."""
    before = _prepared(case)
    _fit(case, part)()
    return os.getpid(), max(0, peak_bytes(case.device) - before)


def stored_bytes(module: Any) -> int:
    """Return the bytes of all parameters and buffers, counting shared storage once."""
    tensors = [*module.parameters(), *module.buffers()]
    storages = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors}
    return sum(storages.values())


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return _status("VmRSS")


def peak_bytes(device: str) -> int:
    """Return the peak memory since `reset_peak`: torch's allocator on a GPU, resident memory on a CPU."""
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.max_memory_allocated(device))
    return _status("VmHWM")


def reset_peak(device: str) -> None:
    """Reset `peak_bytes`, if the system supports it."""
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
    """Execute a command line."""
    word, *rest = line.split()
    if word == "rates":
        from rankscope_eval.bench.roofline import measure_rates

        dtype, device = rest
        return asdict(measure_rates(dtype, device))
    return worker.load() if word == "load" else worker.turn()


def main() -> None:
    """Process commands until the end of stdin."""
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
