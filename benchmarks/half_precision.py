"""Time of forecasts in bfloat16 over that in float32 on this processor: why `load_pipeline` looks for its instructions.

Both formats of a bundled model forecast the same series in turns, in the runtime that ``auto`` takes.

    python benchmarks/half_precision.py --out benchmarks/results/half-precision.json    # two minutes
"""

from __future__ import annotations

from functools import partial

from provenance import conditions, origin, parser, save, spread

MODELS = {"bundled": 2, "bundled-bolt": 32, "bundled-2": 32}
"""Series at a time: of a Chronos-T5, whose 20 sample paths per series are rows too, a few."""
CONTEXT, HORIZON = 256, 24


def main() -> None:
    """Time all models, save."""
    options = parser(__doc__, rounds=5).parse_args()

    import torch

    from rankscope import load_pipeline
    from rankscope.engine.device import computing_dtype
    from rankscope_eval.bench.turns import alternate, timed

    before, models = conditions(), {}
    for model, count in MODELS.items():
        series = list(torch.randn(count, CONTEXT, generator=torch.Generator().manual_seed(0)).cumsum(1))
        pipelines = {name: load_pipeline(model, dtype=name, runtime="auto") for name in ("bfloat16", "float32")}
        forecasts = {
            name: timed(partial(one.predict_quantiles, series, prediction_length=HORIZON))
            for name, one in pipelines.items()
        }
        taken = alternate(forecasts, options.rounds)
        ratio = spread([slow / fast for slow, fast in zip(taken["bfloat16"], taken["float32"], strict=True)])
        models[model] = {**{f"{name}_seconds": spread(times) for name, times in taken.items()}, "ratio": ratio}
        print(f"{model:14} bfloat16 takes {ratio['median']:.2f} times as long as float32", flush=True)
    facts = origin("half_precision", "src/rankscope/forecast", "src/rankscope/engine/device.py")
    chosen = str(computing_dtype("cpu", torch.bfloat16)).removeprefix("torch.")
    save(
        {**facts, "conditions": {"before": before, "after": conditions()}, "chosen": chosen, "models": models},
        options.out,
    )


if __name__ == "__main__":
    main()
