"""Time of a training step of three families at their bundled shape on one thread: stock and fast, float32 and bfloat16.

Cases alternate, and every round times each of them, so that what else the machine does falls on all alike; seconds are
those that the one thread computed, not those that it waited for a core. A step is
what the trainer does with a batch that is there: loss, gradients, clipping, AdamW. Chronos-Bolt used to be trained in
``stock float32``, Chronos-T5 in ``stock bfloat16``; half of the series of Chronos-2 are in groups of four, one of them
a known covariate; ``fast`` runs through `rankscope.train.passes` with the fused
optimiser. Steps of a healing of `joint` models at 0.15 of all parameters (0.4 of Chronos-T5) stand beside.

    python benchmarks/training.py --out benchmarks/results/training.json
    python benchmarks/training.py --quick     # two rounds of small batches: a rehearsal
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from provenance import conditions, origin, parser, save, spread

USED = (
    *(f"src/rankscope/train/{part}" for part in ("passes.py", "sublayers.py", "loop.py", "data", "configs")),
    "src/rankscope/compress/heal/distillation.py",
    "src/rankscope/lowrank/heads.py",
)
CONTEXT = {"bundled": 128}
"""Of the models that do not read 512 values."""
HEALED = {"bundled-bolt": 0.15, "bundled": 0.4}
"""Models that are healed, and the share of their parameters that is left."""
RECIPES = {"bolt": "bundled-bolt", "t5": "bundled", "chronos-2": "bundled-2"}
CASES = {
    "stock float32": {"bf16": False, "fast": False, "batch": 32},
    "stock bfloat16": {"bf16": True, "fast": False, "batch": 32},
    "fast float32": {"bf16": False, "fast": True, "batch": 32},
    "fast bfloat16": {"bf16": True, "fast": True, "batch": 32},
}


def stepper(recipe: str, context: int, bf16: bool, fast: bool, batch: int) -> Callable[[], float]:
    """Return a function that takes one step and says how many seconds it took."""
    import torch

    import rankscope.train as train
    from rankscope.train.models import new_model
    from rankscope.train.passes import fast_loss

    config = train.read_config(Path(train.__file__).parent / "configs" / f"{recipe}.yaml")
    torch.manual_seed(0)
    model: Any = new_model(config).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batches: dict[str, torch.Tensor]
    if config.family == "chronos-bolt":
        batches = {"context": torch.randn(batch, context), "target": torch.randn(batch, config.horizon)}
    elif config.family == "chronos-2":
        row = torch.arange(batch)
        grouped = row >= batch // 2
        known = torch.randn(batch, config.horizon).masked_fill(~(grouped & (row % 4 == 0))[:, None], torch.nan)
        batches = {
            "context": torch.randn(batch, context),
            "group_ids": torch.where(grouped, row - row % 4, row),
            "future_target": torch.randn(batch, config.horizon),
            "future_covariates": known,
        }
    else:
        tokens = config.model.n_tokens
        batches = {
            "input_ids": torch.randint(2, tokens, (batch, context + 1)),
            "attention_mask": torch.ones(batch, context + 1, dtype=torch.long),
            "labels": torch.randint(2, tokens, (batch, config.horizon + 1)),
        }

    patches = {"num_output_patches": config.horizon // config.model.patch_size} if config.family == "chronos-2" else {}

    def loss() -> Any:
        given: dict[str, Any] = {**{name: value.clone() for name, value in batches.items()}, **patches}
        with torch.autocast("cpu", torch.bfloat16) if bf16 else contextlib.nullcontext():
            return fast_loss(model, given) if fast else model(**given).loss

    return functools.partial(timed_step, model, optimiser, loss)


def timed_step(model: Any, optimiser: Any, loss: Callable[[], Any]) -> float:
    """Take a step; return the seconds that it computed."""
    import torch

    begun = time.process_time()
    loss().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    optimiser.zero_grad()
    return time.process_time() - begun


def healer(folder: Path, teacher: str, context: int, bf16: bool, fast: bool, batch: int) -> Callable[[], float]:
    """The same of a step of healing."""
    import torch

    from rankscope import open_checkpoint
    from rankscope.compress.heal.distillation import loss_of, same_kernels
    from rankscope.compress.heal.student import build_student, build_teacher
    from rankscope.train.stream import ScaledCollator

    small, original = open_checkpoint(folder), open_checkpoint(teacher)
    torch.manual_seed(0)
    pupil, guide = build_student(small, "all").train(), build_teacher(original)
    optimiser = torch.optim.AdamW(pupil.parameters(), lr=1e-5, fused=True)
    _, distance = loss_of(small.family)
    given: dict[str, Any]
    if small.family.answers == "samples":
        tokens = int(small.config["chronos_config"]["n_tokens"])
        given = {
            "input_ids": torch.randint(2, tokens, (batch, context + 1)),
            "attention_mask": torch.ones(batch, context + 1, dtype=torch.long),
            "labels": torch.randint(2, tokens, (batch, 65)),
        }
    else:
        rows = [{"context": torch.randn(context), "target": torch.randn(64)} for _ in range(batch)]
        given = ScaledCollator()(rows)

    def loss() -> Any:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16), same_kernels(pupil, guide, fast):
            return distance(pupil, guide, given, truth=0.5, fast=fast)

    return functools.partial(timed_step, pupil, optimiser, loss)


def compared(make: Callable[..., Callable[[], float]], rounds: int, repeats: int, quick: bool) -> dict[str, Any]:
    """Alternate the cases of one kind of step."""
    from rankscope_eval.bench.turns import alternate

    cases = {name: {**case, "batch": 4 if quick else case["batch"]} for name, case in CASES.items()}
    steps = {name: make(**case) for name, case in cases.items()}
    for step in steps.values():
        step()
    turns = {name: (lambda step=step: min(step() for _ in range(repeats))) for name, step in steps.items()}
    seconds = alternate(turns, rounds)
    rates = {name: [cases[name]["batch"] / value for value in values] for name, values in seconds.items()}
    base = spread(rates["stock float32"])["median"]
    return {
        "series_per_second": {name: spread(values) for name, values in rates.items()},
        "times_stock_float32": {name: spread(values)["median"] / base for name, values in rates.items()},
    }


def measure(rounds: int, repeats: int, quick: bool) -> dict[str, Any]:
    """Compare the cases of pretraining by layout, and of healing."""
    import torch

    from rankscope.compress import CompressOptions, compress

    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    for family, recipe in RECIPES.items():
        context = CONTEXT.get(recipe, 512)
        make = functools.partial(stepper, recipe, context)
        found[family] = {"context": context, **compared(make, rounds, repeats, quick)}
    with tempfile.TemporaryDirectory() as place:
        for model, ratio in HEALED.items():
            context, folder = CONTEXT.get(model, 512), Path(place) / model
            compress(model, CompressOptions(ratio=ratio, calibration="mixture:64"), out=folder)
            make = functools.partial(healer, folder, model, context)
            found[f"healing {model}"] = {"context": context, **compared(make, rounds, repeats, quick)}
    return found


def main() -> None:
    """Measure and write."""
    options = parser(__doc__, "two rounds of small batches").parse_args()
    rounds, repeats = (2, 1) if options.quick else (6, 2)
    before = conditions()
    found = measure(rounds, repeats, options.quick)
    result = {**origin("training", *USED), "conditions": [before, conditions()], "rounds": rounds, "threads": 1}
    result["steps"] = found
    for family, values in found.items():
        for name, rate in values["series_per_second"].items():
            print(f"{family:20} {name:15} {rate['median']:7.1f} series/s  {values['times_stock_float32'][name]:5.2f}x")
    save(result, options.out)


if __name__ == "__main__":
    main()
