"""What spectra during training cost: their share of the time of the steps between two of them.

Trains a fresh Chronos-T5 and a fresh Chronos-Bolt of a small real shape (d_model 128 and 256, 4 + 4 layers) for a few
steps on generated series, and after every step, outside its time, measures the spectra that ``spectra: {every: …}``
logs: all attention matrices (the default roles) are decomposed and written, as in a run. The share is

    seconds of one logging / (every · median seconds of a step)

for ``every`` = 100, the densest logging that the target of 2 % is about; it falls with 1/every. On a GPU the
decomposition runs beside the training in a thread: what the training loop waits for is the copy of the weights, which
is what is measured there as ``waits``.

    python benchmarks/snapshots.py --out benchmarks/results/snapshots-DATE.json
    python benchmarks/snapshots.py --steps 3 --shapes 128     # a rehearsal
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from provenance import conditions, origin, save, spread

EVERY = 100
TARGET = 0.02
SHAPES = {
    "128": {"d_model": 128, "d_kv": 32, "d_ff": 512, "num_layers": 4, "num_decoder_layers": 4, "num_heads": 4},
    "256": {"d_model": 256, "d_kv": 64, "d_ff": 1024, "num_layers": 4, "num_decoder_layers": 4, "num_heads": 4},
}
BATCHES = {"chronos-t5": (128, 32), "chronos-bolt": (512, 64)}
"""Context and series per step, as the shipped configs have them."""


def case(family: str, shape: str, steps: int, device: str) -> dict[str, Any]:
    """Train for some steps and log after each; the first step warms up."""
    from rankscope.train import ModelShape, PretrainConfig, pretrain
    from rankscope.train.callbacks.spectra import Spectra
    from rankscope.train.config import Snapshots
    from rankscope.train.loop import Loop

    begun: list[float] = []
    stepped: list[float] = []
    logged: list[float] = []
    whole: list[float] = []
    train, take = Loop.training_step, Spectra._take

    def training_step(self: Any, *args: Any, **kwargs: Any) -> Any:
        begun.append(time.perf_counter())
        return train(self, *args, **kwargs)

    def timed(self: Any, step: int, model: Any) -> None:
        synchronise(device)
        now = time.perf_counter()
        if begun:
            stepped.append(now - begun[-1])
        take(self, step, model)
        logged.append(time.perf_counter() - now)
        self.log.finish()
        whole.append(time.perf_counter() - now)

    context, batch = BATCHES[family]
    config = PretrainConfig(
        family=family,
        model=ModelShape(**SHAPES[shape]),
        context=context,
        batch_size=batch,
        bank_kernels=4,
        bank_draws=8,
        warmup_steps=1,
        max_steps=steps + 1,
        save_steps=10**6,
        spectra=Snapshots(every=1),
    )
    Loop.training_step, Spectra._take = training_step, timed  # type: ignore[method-assign]
    try:
        with tempfile.TemporaryDirectory() as folder:
            pretrain(config, Path(folder) / "out", device=device)
    finally:
        Loop.training_step, Spectra._take = train, take  # type: ignore[method-assign]
    step, waits = statistics.median(stepped[1:]), statistics.median(logged[1:])
    return {
        "family": family,
        "shape": dataclasses.asdict(config.model),
        "context": context,
        "batch_size": batch,
        "matrices": matrices(config),
        "step_seconds": spread(stepped[1:]),
        "waits": spread(logged[1:]),
        "until_written": spread(whole[1:]),
        "share_at_every_100": waits / (EVERY * step),
    }


def matrices(config: Any) -> int:
    """How many matrices a logging decomposes."""
    from rankscope.train.models import new_model
    from rankscope.train.spectra import live_sites

    return len(live_sites(config, new_model(config)))


def synchronise(device: str) -> None:
    """Wait for the GPU, so that a step's time is the step's."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    """Measure every family and shape, print the shares, and save them."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10, help="steps that are timed")
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES), help="d_model")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args()
    before = conditions()
    cases = []
    for family in BATCHES:
        for shape in options.shapes:
            found = case(family, shape, options.steps, options.device)
            cases.append(found)
            step, waits = found["step_seconds"]["median"], found["waits"]["median"]
            share = found["share_at_every_100"]
            print(
                f"{family:13} d_model {shape}: step {step:.3f} s, spectra {waits:.3f} s: "
                f"{100 * share:.3f} % of the time at every {EVERY} ({'within' if share < TARGET else 'ABOVE'} 2 %)",
                flush=True,
            )
    result = {
        **origin("snapshots", "src/rankscope/train", "src/rankscope/numerics"),
        "torch": {
            "version": torch.__version__,
            "threads": torch.get_num_threads(),
            "gpu": torch.cuda.get_device_name() if options.device == "cuda" else None,
        },
        "conditions": {"before": before, "after": conditions()},
        "target": {"share": TARGET, "every": EVERY},
        "cases": cases,
    }
    save(result, options.out)


if __name__ == "__main__":
    main()
