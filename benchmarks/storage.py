"""Time of int8 linear layers and forecasts beside floating point, torchao and quanto (extra ``bench``).

Layers: (d_out, d_in) of Chronos-T5 base, 1 to 512 tokens, float32, one thread, rounds that alternate between

- ``float``: ``nn.Linear``;
- ``int8``: `rankscope.lowrank.Int8Linear`;
- ``torchao``: ``quantize_`` with ``Int8WeightOnlyConfig``;
- ``quanto``: ``quantize`` and ``freeze`` of optimum-quanto with ``qint8``.

Forecasts: 8 series of 512 values by the bundled models, as they are and in int8, in float32.

    python benchmarks/storage.py --out benchmarks/results/storage.json    # some minutes
"""

from __future__ import annotations

import copy
import importlib
import json
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from provenance import conditions, origin, parser, save, spread
from torch import nn

from rankscope import load_pipeline
from rankscope.compress import CompressOptions, compress
from rankscope.lowrank import Int8Linear
from rankscope_eval.bench.turns import alternate, timed

USED = ("src/rankscope/lowrank", "src/rankscope/numerics/quantise.py", "src/rankscope/compress")
SHAPES = ((768, 768), (3072, 768))
TOKENS = (1, 20, 512)
MODELS = ("bundled", "bundled-bolt")
SERIES, CONTEXT, HORIZON = 8, 512, 8


def layers(linear: nn.Linear) -> dict[str, nn.Module]:
    """Return the layer in every implementation; those of the peers need the extra ``bench``."""
    found: dict[str, nn.Module] = {"float": linear, "int8": Int8Linear(linear)}
    ao, quanto = importlib.import_module("torchao.quantization"), importlib.import_module("optimum.quanto")
    found["torchao"] = nn.Sequential(copy.deepcopy(linear))
    ao.quantize_(found["torchao"], ao.Int8WeightOnlyConfig())
    found["quanto"] = nn.Sequential(copy.deepcopy(linear))
    quanto.quantize(found["quanto"], weights=quanto.qint8)
    quanto.freeze(found["quanto"])
    return found


def alternated(cases: Mapping[str, Callable[[], object]], rounds: int, repeats: int) -> dict[str, dict[str, Any]]:
    """Return seconds per call of every case over rounds of several calls, and their ratios to ``float`` by round."""

    def several(work: Callable[[], object]) -> None:
        for _ in range(repeats):
            work()

    taken = alternate({name: timed(partial(several, work)) for name, work in cases.items()}, rounds)
    return {
        name: {
            **spread([seconds / repeats for seconds in values]),
            "over_float": spread([mine / base for mine, base in zip(values, taken["float"], strict=True)]),
        }
        for name, values in taken.items()
    }


def time_layers(rounds: int) -> list[dict[str, Any]]:
    """One row per shape and number of tokens."""
    rows = []
    for d_out, d_in in SHAPES:
        ways = layers(nn.Linear(d_in, d_out, bias=False))
        for tokens in TOKENS:
            x = torch.randn(tokens, d_in)
            cases = {name: partial(layer, x) for name, layer in ways.items()}
            seconds = alternated(cases, rounds, repeats=max(2, 100 // tokens))
            rows.append({"shape": [d_out, d_in], "tokens": tokens, "seconds": seconds})
            shown = {name: round(1e6 * row["median"]) for name, row in seconds.items()}
            print(f"{d_out}×{d_in}, {tokens} tokens, µs: {shown}", flush=True)
    return rows


def time_forecasts(rounds: int) -> list[dict[str, Any]]:
    """One row per bundled model."""
    rows = []
    series = [torch.sin(torch.arange(float(CONTEXT)) / (3 + i)) for i in range(SERIES)]
    for model in MODELS:
        with tempfile.TemporaryDirectory() as temporary:
            compress(model, CompressOptions(storage="int8"), out=Path(temporary) / "int8")
            loaded = {"float": model, "int8": str(Path(temporary) / "int8")}
            pipelines = {name: load_pipeline(source, dtype="float32") for name, source in loaded.items()}
        cases = {name: partial(one.predict, series, prediction_length=HORIZON) for name, one in pipelines.items()}
        seconds = alternated(cases, rounds, repeats=1)
        rows.append({"model": model, "series": SERIES, "context": CONTEXT, "horizon": HORIZON, "seconds": seconds})
        print(f"{model}, s: { {name: round(row['median'], 3) for name, row in seconds.items()} }", flush=True)
    return rows


def main() -> None:
    """Measure, print and save."""
    options = parser(__doc__, rounds=9).parse_args()
    torch.set_num_threads(1)
    before = conditions()
    with torch.inference_mode():
        result = {**origin("storage", *USED), "threads": 1, "layers": time_layers(options.rounds)}
    result["forecasts"] = time_forecasts(options.rounds)
    result["conditions"] = {"before": before, "after": conditions()}
    save(result, options.out)
    print(json.dumps(result["conditions"]))


if __name__ == "__main__":
    main()
