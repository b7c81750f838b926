"""Time of a training step of three families at their bundled shape on one thread: stock and fast, float32 and bfloat16.

Cases alternate, and every round times each of them, so that what else the machine does falls on all alike; seconds are
those that the one thread computed, not those that it waited for a core. A step is
what the trainer does with a batch that is there: loss, gradients, clipping, AdamW. Chronos-Bolt used to be trained in
``stock float32``, Chronos-T5 in ``stock bfloat16``; half of the series of Chronos-2 are in groups of four, one of them
a known covariate; ``fast`` runs through `rankscope.train.passes` with the fused
optimiser.

    python benchmarks/training.py --out benchmarks/results/training.json
    python benchmarks/training.py --quick     # two rounds of small batches: a rehearsal
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from provenance import conditions, origin, parser, save, spread

USED = tuple(f"src/rankscope/train/{part}" for part in ("passes.py", "sublayers.py", "loop.py", "data", "configs"))
RECIPES = {"bolt": "bundled-bolt", "t5": "bundled", "chronos-2": "bundled-2"}
CASES = {
    "stock float32": {"bf16": False, "fast": False, "batch": 32},
    "stock bfloat16": {"bf16": True, "fast": False, "batch": 32},
    "fast float32": {"bf16": False, "fast": True, "batch": 64},
    "fast bfloat16": {"bf16": True, "fast": True, "batch": 64},
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
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=fast)
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

    def step() -> float:
        given = {**{name: value.clone() for name, value in batches.items()}, **patches}
        begun = time.process_time()
        with torch.autocast("cpu", torch.bfloat16) if bf16 else contextlib.nullcontext():
            loss = fast_loss(model, given) if fast else model(**given).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        return time.process_time() - begun

    return step


def measure(rounds: int, repeats: int, quick: bool) -> dict[str, Any]:
    """Alternate the cases of each layout."""
    import torch

    from rankscope_eval.bench.turns import alternate

    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    for family, recipe in RECIPES.items():
        context = 128 if family == "t5" else 512
        steps = {}
        for name, case in CASES.items():
            steps[name] = stepper(recipe, context, **{**case, "batch": 4 if quick else case["batch"]})
            steps[name]()
        turns = {name: (lambda step=step: min(step() for _ in range(repeats))) for name, step in steps.items()}
        seconds = alternate(turns, rounds)
        rates = {name: [CASES[name]["batch"] / value for value in values] for name, values in seconds.items()}
        base = spread(rates["stock float32"])["median"]
        found[family] = {
            "context": context,
            "series_per_second": {name: spread(values) for name, values in rates.items()},
            "times_stock_float32": {name: spread(values)["median"] / base for name, values in rates.items()},
        }
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
            print(f"{family:5} {name:15} {rate['median']:7.1f} series/s  {values['times_stock_float32'][name]:5.2f}x")
    save(result, options.out)


if __name__ == "__main__":
    main()
