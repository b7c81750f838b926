"""Small tables to learn from."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rankscope_lab.tokenizers.parts import ScaledParts


def waves(rows: int, variables: int, seed: int) -> np.ndarray:
    """Daily and weekly cycles with some noise."""
    rng = np.random.default_rng(seed)
    t = np.arange(rows)[:, None]
    phase = rng.uniform(0, 2 * np.pi, (2, variables))
    day, week = np.sin(2 * np.pi * t / 24 + phase[0]), np.sin(2 * np.pi * t / 168 + phase[1])
    return day + 0.5 * week + 0.1 * rng.standard_normal((rows, variables))


@pytest.fixture(scope="session")
def small_parts() -> ScaledParts:
    """Two variables, 960 + 192 + 192 rows."""
    values = torch.from_numpy(waves(1344, 2, 0)).float()
    return ScaledParts(*values.split((960, 192, 192)))
