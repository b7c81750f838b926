"""Ridge probes against augmented least squares, loops, and what must and cannot be read."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import random_split

from rankscope_lab.data.channels import channel_benchmark
from rankscope_lab.encoders.diagnostics import probe_data, probe_streams, r_squared, ridge_weights


def test_ridge_equals_least_squares_on_rows_that_pull_to_zero() -> None:
    generator = torch.Generator().manual_seed(0)
    h, x = torch.randn(50, 6, generator=generator), torch.randn(50, 2, generator=generator) + 3
    augmented = np.vstack((h.double().numpy(), np.sqrt(0.7) * np.eye(6)))
    target = np.vstack((x.double().numpy(), np.zeros((6, 2))))
    expected, *_ = np.linalg.lstsq(augmented, target, rcond=None)
    np.testing.assert_allclose(ridge_weights(h, x, 0.7).numpy(), expected, rtol=1e-9)


def test_r_squared_equals_a_loop() -> None:
    generator = torch.Generator().manual_seed(4)
    predicted = torch.randn(9, 3, generator=generator, dtype=torch.float64)
    actual = torch.randn(9, 3, generator=generator, dtype=torch.float64) + 2
    for k in range(3):
        mean = sum(float(row[k]) for row in actual) / 9
        residual = sum((float(a[k]) - float(p[k])) ** 2 for a, p in zip(actual, predicted, strict=True))
        total = sum((float(a[k]) - mean) ** 2 for a in actual)
        assert float(r_squared(predicted, actual)[k]) == pytest.approx(1 - residual / total, rel=1e-12)


def test_the_probe_set_is_split_as_torch_splits() -> None:
    fit, held_out = probe_data(4)
    series = torch.from_numpy(channel_benchmark(4, 256, 99).inputs)
    first, second = random_split(range(256), [205, 51], generator=torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    assert torch.equal(fit, series[list(first.indices)])
    assert torch.equal(held_out, series[list(second.indices)])


def test_separate_directions_are_read_and_a_sum_is_not() -> None:
    fit, held_out = probe_data(4)
    directions = torch.randn(4, 16, generator=torch.Generator().manual_seed(0))
    shared = torch.ones(4, 1) * directions[:1]

    def streams(x: Tensor) -> list[Tensor]:
        return [x @ directions, x @ shared]

    apart, summed = probe_streams(streams, fit, held_out)
    assert apart == pytest.approx([1.0] * 4, abs=1e-6)
    # of independent channels of variance 1 their sum explains 1/C
    assert summed == pytest.approx([0.25] * 4, abs=0.06)
