"""Directions of channels and positions against loops, laws, and the specification's chance levels."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rankscope.errors import DataError
from rankscope_lab.blocks.embeddings import sinusoid
from rankscope_lab.encoders.geometry import (
    chance_cosines,
    gram_cosines,
    position_geometry,
    untrained_positions,
    variance_shares,
)


def test_cosines_equal_a_loop_over_ordered_pairs() -> None:
    rows = torch.randn(5, 16, generator=torch.Generator().manual_seed(3))
    found = []
    for i in range(5):
        for j in range(5):
            if i != j:
                a, b = rows[i].double().numpy(), rows[j].double().numpy()
                found.append(abs(float(np.dot(a, b))) / (np.linalg.norm(a) * np.linalg.norm(b)))
    gram = gram_cosines(rows)
    assert gram.mean == pytest.approx(sum(found) / len(found), rel=1e-9)
    assert gram.max == pytest.approx(max(found), rel=1e-9)
    assert gram_cosines(rows * torch.tensor([1.0, -2.0, 3.0, 0.1, 7.0])[:, None]).mean == pytest.approx(gram.mean)


def test_one_channel_has_no_pair() -> None:
    with pytest.raises(DataError, match="at least two channels, got 1"):
        gram_cosines(torch.ones(1, 4))


@pytest.mark.parametrize(("channels", "largest"), [(4, 0.206), (8, 0.284), (16, 0.343)])
def test_chance_level_of_cosines(channels: int, largest: float) -> None:
    chance = chance_cosines(channels, 64)
    assert chance.mean == pytest.approx(0.100, abs=5e-4)
    assert chance.max == pytest.approx(largest, abs=4e-3)
    first, second = np.random.default_rng(0).standard_normal((2, 200_000, 64))
    cosines = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    assert chance.mean == pytest.approx(float(np.abs(cosines).mean()), abs=6e-4)


def test_variance_shares_equal_the_variance_of_each_contribution() -> None:
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(3, 6, generator=generator)
    bias = torch.randn(3, 6, generator=generator)
    inputs = torch.randn(5, 7, 3, generator=generator) * torch.tensor([1.0, 0.2, 3.0])
    variance = []
    for k in range(3):
        contribution = (inputs[..., k, None].double() * rows[k].double() + bias[k].double()).flatten(0, 1)
        variance.append(sum(float(contribution[:, d].var()) for d in range(6)))
    expected = [one / sum(variance) for one in variance]
    assert variance_shares(rows, inputs).tolist() == pytest.approx(expected, rel=1e-9)


def test_the_sinusoid_has_the_known_geometry() -> None:
    found = position_geometry(sinusoid(160, 64), torch.eye(64)[:4])
    assert found.energy == pytest.approx(5120, rel=1e-6)
    assert found.sigma[:4] == pytest.approx([52.32, 20.84, 15.87, 13.00], abs=0.006)
    assert found.effective_rank == pytest.approx(7.586, abs=6e-4)


def test_overlap_equals_a_projection_by_least_squares() -> None:
    generator = torch.Generator().manual_seed(5)
    p, w = torch.randn(20, 8, generator=generator), torch.randn(3, 8, generator=generator)
    basis = w.double().T.numpy()
    inside = 0.0
    for row in p.double().numpy():
        weights, *_ = np.linalg.lstsq(basis, row, rcond=None)
        inside += float(np.sum((basis @ weights) ** 2))
    expected = inside / float(p.double().square().sum())
    assert position_geometry(p, w).overlap == pytest.approx(expected, rel=1e-9)
    repeated = torch.cat((w, w[:1] * 2))  # a dependent row adds nothing to the span
    assert position_geometry(p, repeated).overlap == pytest.approx(expected, rel=1e-6)


def test_overlap_of_a_random_space_is_its_share_of_dimensions() -> None:
    generator = torch.Generator().manual_seed(2)
    table = sinusoid(160, 64)
    found = [position_geometry(table, torch.randn(4, 64, generator=generator)).overlap for _ in range(300)]
    assert sum(found) / len(found) == pytest.approx(4 / 64, abs=0.006)


def test_a_default_projection_shrinks_the_positions_before_any_training() -> None:
    found = untrained_positions(4, 64, 160)
    torch.manual_seed(0)
    with torch.no_grad():
        drawn = [float(torch.nn.Linear(64, 64)(sinusoid(160, 64)).square().sum()) for _ in range(3000)]
    assert found.energy == pytest.approx(sum(drawn) / len(drawn), rel=0.01)
    assert found.effective_rank == pytest.approx(6.7, abs=0.25)
    assert found.overlap == pytest.approx(0.061, abs=0.006)
    assert found.energy == pytest.approx(1760)
