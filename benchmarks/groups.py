"""Does a Chronos-2 make use of the series beside the one that it forecasts, known covariates among them?

Groups of the generator, drawn with a seed that no training has: the loss of the targets forecast with their group over
that of the same targets forecast alone, by kind of group, with 95 % intervals over groups.

    python benchmarks/groups.py bundled-2 --out benchmarks/results/groups-bundled-2.json    # a minute
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from digests import bundled
from provenance import origin, parser, save

CONTEXT, HORIZON, MEMBERS, GROUPS = 448, 64, 3, 200
LEVELS = [0.1, 0.5, 0.9]
PLAIN = "driven linearly, little of its own"
RESAMPLES = 2000


def drawn(draw: Callable[..., Any], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A group of standardised components, tied together: series (members, time), and which are known covariates."""
    from rankscope.train.data.groups import SPARE
    from rankscope.train.data.structured import structured_series

    rng, length = np.random.default_rng([99, seed]), CONTEXT + HORIZON + SPARE
    parts = structured_series(rng, MEMBERS, length, alike=np.zeros(MEMBERS, int)).astype(float)
    parts -= parts.mean(axis=1, keepdims=True)
    series, known = draw(rng, parts / parts.std(axis=1, keepdims=True).clip(1e-6))
    return series.astype(np.float32), known


def losses(pipeline: Any, tasks: list[dict[str, Any]], truth: list[np.ndarray]) -> np.ndarray:
    """Quantile loss of every task's targets, over the standard deviation of their histories."""
    forecasts, _ = pipeline.predict_quantiles(tasks, prediction_length=HORIZON, quantile_levels=LEVELS)
    found = []
    for forecast, task, future in zip(forecasts, tasks, truth, strict=True):
        error = future[..., None] - forecast.numpy()
        loss = 2 * np.maximum(np.multiply(LEVELS, error), np.subtract(LEVELS, 1) * error).mean(axis=(1, 2))
        found.append((loss / task["target"].std(axis=1).clip(1e-6)).mean())
    return np.array(found)


def measured(pipeline: Any, draw: Callable[..., Any]) -> dict[str, Any]:
    """Loss with the group over that alone, and its interval."""
    alike = defaultdict(list)  # the pipeline takes groups of one shape at a time
    for seed in range(GROUPS):
        series, known = drawn(draw, seed)
        alike[int(known.sum())].append((series[~known], series[known]))
    together, alone = [], []
    for groups in alike.values():
        truth = [targets[:, CONTEXT:] for targets, _ in groups]
        past = [{"target": targets[:, :CONTEXT]} for targets, _ in groups]
        told = [
            {
                **task,
                "past_covariates": {str(at): row[:CONTEXT] for at, row in enumerate(drivers)},
                "future_covariates": {str(at): row[CONTEXT:] for at, row in enumerate(drivers)},
            }
            for task, (_, drivers) in zip(past, groups, strict=True)
        ]
        together.append(losses(pipeline, told, truth))
        single = [{"target": row[None]} for task in past for row in task["target"]]
        apart = losses(pipeline, single, [row[None] for one in truth for row in one])
        alone.append(apart.reshape(len(past), -1).mean(axis=1))
    both = np.stack([np.concatenate(together), np.concatenate(alone)])
    picks = np.random.default_rng(0).integers(0, both.shape[1], (RESAMPLES, both.shape[1]))
    over = both[0][picks].sum(axis=1) / both[1][picks].sum(axis=1)
    low, high = np.quantile(over, (0.025, 0.975))
    return {"ratio": both[0].sum() / both[1].sum(), "interval": [low, high], "groups": both.shape[1]}


def main() -> None:
    """Measure every kind of group, save."""
    words = parser(__doc__)
    words.add_argument("model")
    options = words.parse_args()

    from rankscope import load_pipeline
    from rankscope.train.data.groups import GROUP_KINDS, driven

    pipeline = load_pipeline(options.model)
    draws = {name: kind.draw for name, kind in GROUP_KINDS.items()}
    draws[PLAIN] = partial(driven, effects=["linear"], own=0.05)
    kinds = {}
    for name, draw in draws.items():
        kinds[name] = measured(pipeline, draw)
        print(f"{name:40} {kinds[name]['ratio']:.3f}", flush=True)
    used = [f"src/rankscope/train/data/{name}.py" for name in ("components", "groups", "structured")]
    save({**origin("groups", *used, *bundled(options.model)), "kinds": kinds}, options.out)


if __name__ == "__main__":
    main()
