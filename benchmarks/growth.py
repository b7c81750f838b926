"""Scaling of inference time with series, samples, horizon, context and layers, stock and fast.

Random weights in the shape of Chronos-T5 tiny, float32. One size varies while the others stay at a small base; all
points, stock and fast, are interleaved in this process. Exponents are slopes of log time over log size, as median and
range over rounds, over the larger half of the values and over all of them. Only the encoder's attention may grow faster
than linearly, with the context.

    python benchmarks/growth.py --out benchmarks/results/growth.json
    python benchmarks/growth.py --quick --threads 1         # three small values each, three rounds
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import linear_regression
from typing import Any

from provenance import conditions, origin, parser, save, spread
from shapes import write_shape

USED = ("src/rankscope/forecast", "src/rankscope/lowrank", "benchmarks/shapes.py")
RUNTIMES = ("stock", "fast")
TURN = 0.1
"""Minimum seconds per turn; short forecasts are repeated and averaged."""
MAY_EXCEED = "context"
"""Size in which time may grow faster than linearly."""


@dataclass(frozen=True)
class Point:
    """Sizes of a forecast.

    Attributes:
        series: forecast at once.
        samples: sample paths per series.
        horizon: steps.
        context: values per series.
        layers: of the encoder, and as many of the decoder.
    """

    series: int = 8
    samples: int = 4
    horizon: int = 16
    context: int = 128
    layers: int = 4


VALUES = {
    "series": (4, 8, 16, 32, 64),
    "samples": (2, 4, 8, 16, 32),
    "horizon": (8, 16, 32, 64, 128),
    "context": (64, 128, 256, 512, 1024),
    "layers": (1, 2, 4, 8, 16),
}
"""Values of each size while the others stay at the base, `Point()`."""


def forecaster(pipeline: Any, point: Point) -> Callable[[], float]:
    """Warm up a forecast and return a timed turn: the mean over as many calls as fill `TURN`."""
    import torch

    series = torch.randn(point.series, point.context, generator=torch.Generator().manual_seed(0)).cumsum(1)

    def once() -> float:
        begun = time.perf_counter()
        pipeline.predict(series, prediction_length=point.horizon, num_samples=point.samples)
        return time.perf_counter() - begun

    once()
    repeats = math.ceil(TURN / once())
    return lambda: sum(once() for _ in range(repeats)) / repeats


def measure(
    values: dict[str, tuple[int, ...]], rounds: int, folder: Path
) -> dict[tuple[Point, str], tuple[float, ...]]:
    """Seconds of every point in both runtimes, one number per round."""
    from rankscope import load_pipeline
    from rankscope_eval.bench.turns import alternate

    points = {replace(Point(), **{name: value}): None for name, several in values.items() for value in several}
    context, horizon = max(one.context for one in points), max(one.horizon for one in points)
    turns: dict[tuple[Point, str], Callable[[], float]] = {}
    for layers in sorted({one.layers for one in points}):
        model = write_shape(folder / f"{layers}", "chronos-t5", "tiny", layers=layers, context=context, horizon=horizon)
        for runtime in RUNTIMES:
            pipeline = load_pipeline(model, runtime=runtime)
            turns |= {(one, runtime): forecaster(pipeline, one) for one in points if one.layers == layers}
    names = {f"{runtime} {point}": (point, runtime) for point, runtime in turns}
    seconds = alternate({name: turns[key] for name, key in names.items()}, rounds)
    return {names[name]: found for name, found in seconds.items()}


def exponents(sizes: Sequence[int], turns: Sequence[Sequence[float]]) -> dict[str, float]:
    """Slopes of log time over log size by least squares, one per round."""
    logs = [math.log(size) for size in sizes]
    return spread([linear_regression(logs, list(map(math.log, one))).slope for one in zip(*turns, strict=True)])


def verdict(exponent: Mapping[str, float]) -> str:
    """Whether time grows faster than size."""
    if exponent["median"] <= 1:
        return "at most linear"
    return "above linear" if exponent["min"] > 1 else "linear within the spread"


def factors(
    values: dict[str, tuple[int, ...]], seconds: dict[tuple[Point, str], tuple[float, ...]]
) -> list[dict[str, Any]]:
    """Saved of every size: its values and, by runtime, seconds, exponents and verdict."""
    found = []
    for name, several in values.items():
        runtimes = {}
        for runtime in RUNTIMES:
            turns = [seconds[replace(Point(), **{name: value}), runtime] for value in several]
            larger = min(len(several) // 2, len(several) - 2)
            exponent = exponents(several[larger:], turns[larger:])
            runtimes[runtime] = {
                "seconds": [spread(one) for one in turns],
                "turns": turns,
                "exponent": exponent,
                "whole": exponents(several, turns),
                "verdict": verdict(exponent),
            }
        found.append({"name": name, "values": list(several), "runtimes": runtimes})
    return found


def show(found: list[dict[str, Any]]) -> None:
    """Print a line per size and runtime."""
    for factor in found:
        name, values = factor["name"], factor["values"]
        for runtime, one in factor["runtimes"].items():
            larger, verdict = one["exponent"], one["verdict"]
            if verdict == "above linear" and name == MAY_EXCEED:
                verdict += ", as the encoder's attention may"
            print(
                f"{name:8} {values[0]:3}–{values[-1]:<5} {runtime:6}"
                f"{1000 * one['seconds'][0]['median']:8.1f} → {1000 * one['seconds'][-1]['median']:7.1f} ms  "
                f"exponent {larger['median']:5.2f} ({larger['min']:.2f}–{larger['max']:.2f}), "
                f"over all {one['whole']['median']:5.2f}: {verdict}"
            )


def main() -> None:
    """Measure, print and save."""
    words = parser(__doc__, "three small values of each size, three rounds", rounds=None, threads=None)
    options = words.parse_args()

    import torch
    from transformers.utils import logging

    logging.disable_progress_bar()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    values = {name: several[: 3 if options.quick else None] for name, several in VALUES.items()}
    rounds, before = options.rounds or (3 if options.quick else 7), conditions()
    with tempfile.TemporaryDirectory() as temporary, torch.inference_mode():
        seconds = measure(values, rounds, Path(temporary))
    result = {
        **origin("growth", *USED),
        "conditions": {"before": before, "after": conditions()},
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "rounds": rounds,
        "base": asdict(Point()),
        "factors": factors(values, seconds),
    }
    show(result["factors"])
    save(result, options.out)


if __name__ == "__main__":
    main()
