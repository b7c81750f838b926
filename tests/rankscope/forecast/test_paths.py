"""Sample paths of the fast runtime follow the stock distribution at every step; those of a wrong sampler do not.

Two-sample Kolmogorov–Smirnov tests of 8,000 paths each, one per step, by Bonferroni's rule for the family of steps.
On discrete values, which forecasts are, the test rejects less often than its level says, so what it rejects is wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp

from rankscope.forecast.pipeline import load_pipeline

pytestmark = pytest.mark.slow

PATHS, STEPS, LEVEL = 8_000, 4, 0.01
AT_A_TIME = 2_000


@pytest.fixture(scope="module")
def series() -> torch.Tensor:
    """A season with noise, a level and a missing value; short, so that many paths are cheap."""
    time = torch.arange(48.0)
    made = torch.sin(time / 3) * 4 + torch.randn(48, generator=torch.Generator().manual_seed(5)) + 10
    made[20] = torch.nan
    return made


def paths(pipeline: Any, series: torch.Tensor, seed: int, **how: Any) -> np.ndarray:
    """Sample paths, (paths, steps)."""
    torch.manual_seed(seed)
    parts = [
        pipeline.predict(series, prediction_length=STEPS, num_samples=AT_A_TIME, **how)[0]
        for _ in range(PATHS // AT_A_TIME)
    ]
    return torch.cat(parts).numpy()


@pytest.fixture(scope="module")
def stock(series: torch.Tensor) -> np.ndarray:
    """Paths of the stock pipeline on the trained bundled model."""
    return paths(load_pipeline("bundled", dtype="float32"), series, 1)


@pytest.fixture(scope="module")
def pipeline() -> Any:
    """The fast pipeline of the same model."""
    return load_pipeline("bundled", dtype="float32", runtime="fast")


@pytest.fixture(scope="module")
def fast(pipeline: Any, series: torch.Tensor) -> np.ndarray:
    """Its paths."""
    return paths(pipeline, series, 2)


def smallest(first: np.ndarray, second: np.ndarray) -> float:
    """The smallest p-value over steps."""
    return min(float(ks_2samp(first[:, step], second[:, step]).pvalue) for step in range(STEPS))


def steps(values: np.ndarray) -> np.ndarray:
    """Differences from step to step."""
    return np.diff(values, axis=1, prepend=0.0)


def test_every_step_follows_the_stock_distribution(fast: np.ndarray, stock: np.ndarray) -> None:
    assert len(np.unique(stock[:, -1])) > 20
    assert smallest(fast, stock) > LEVEL / STEPS
    assert smallest(steps(fast), steps(stock)) > LEVEL / STEPS


@pytest.mark.parametrize("wrong", [{"temperature": 1.3}, {"top_k": 10}], ids=str)
def test_a_wrong_sampler_is_rejected(
    pipeline: Any, stock: np.ndarray, series: torch.Tensor, wrong: dict[str, Any]
) -> None:
    assert smallest(paths(pipeline, series, 2, **wrong), stock) < LEVEL / STEPS


def test_paths_that_forget_their_own_past_are_rejected(fast: np.ndarray, stock: np.ndarray) -> None:
    """Each step right by itself, but drawn from another path: only differences between steps show it."""
    random = np.random.default_rng(0)
    mixed = np.stack([random.permutation(fast[:, step]) for step in range(STEPS)], axis=1)
    assert smallest(mixed, stock) > LEVEL / STEPS
    assert smallest(steps(mixed), steps(stock)) < LEVEL / STEPS
