"""Chebyshev embedding: numpy's polynomials, the rank that was asked for, the seed; angles against a slow loop."""

import math

import numpy as np
import pytest
import torch
from jaxtyping import TypeCheckError
from numpy.polynomial import chebyshev

from rankscope.errors import OptionError
from rankscope.numerics import angle_matrix
from rankscope.numerics.embedding import chebyshev_embedding, chebyshev_polynomials, random_frame

BINS = torch.linspace(-15, 15, 4093)


def test_polynomials_are_numpys():
    x = np.linspace(-1, 1, 101)
    expected = np.stack([chebyshev.Chebyshev.basis(j)(x) for j in range(1, 33)], axis=1)
    np.testing.assert_allclose(chebyshev_polynomials(torch.from_numpy(x), 32).numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("rank", [1, 2, 7, 32])
def test_the_embedding_is_the_sum_of_the_paper(rank):
    got = chebyshev_embedding(BINS, 48, rank, seed=3)
    frame = random_frame(48, rank, 3)
    expected = np.zeros((48, len(BINS)))
    for j in range(1, rank + 1):
        weights = [0.0] * j + [1.0]
        expected += np.outer(frame[j - 1], chebyshev.chebval(BINS.numpy().astype(float) / 15, weights))
    np.testing.assert_allclose(got.numpy(), expected.T, atol=1e-12)
    assert got.dtype == torch.float64


@pytest.mark.parametrize("rank", [1, 2, 8, 32])
def test_algebraic_rank_is_exactly_the_one_asked_for(rank):
    sigma = np.linalg.svd(chebyshev_embedding(BINS, 64, rank).numpy(), compute_uv=False)
    assert sigma[rank - 1] > 0.1 * sigma[0]
    assert (sigma[rank:] < 1e-13 * sigma[0]).all()


def test_the_frame_is_orthonormal_and_seeded():
    frame = random_frame(40, 9, 5)
    torch.testing.assert_close(frame @ frame.T, torch.eye(9, dtype=torch.float64))
    assert torch.equal(frame, random_frame(40, 9, 5))
    assert not torch.allclose(frame, random_frame(40, 9, 6))
    several = torch.stack([random_frame(5, 2, seed) for seed in range(2000)])
    assert several.mean(0).abs().max() < 0.05  # uniform directions: no sign is preferred


def test_another_limit_moves_the_points():
    narrow = chebyshev_embedding(torch.tensor([-2.0, 1.0, 2.0]), 4, 1, limit=2.0)
    frame = random_frame(4, 1, 0)
    torch.testing.assert_close(narrow, torch.tensor([[-1.0], [0.5], [1.0]], dtype=torch.float64) @ frame)


@pytest.mark.parametrize(
    ("points", "d_model", "rank", "message"),
    [
        (BINS, 8, 9, "rank 1 to 8"),
        (BINS, 8, 0, "rank is 0"),
        (torch.tensor([0.0, 1.0, 1.0]), 8, 2, "more than 2 distinct points, got 2"),
        (torch.tensor([0.0, 1.0, 16.0]), 8, 1, "reach 16, beyond the limit 15"),
    ],
)
def test_what_cannot_be_embedded_is_refused(points, d_model, rank, message):
    with pytest.raises(OptionError, match=message):
        chebyshev_embedding(points, d_model, rank)


def test_angles_equal_a_slow_loop_and_ignore_sign_and_length() -> None:
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = angle_matrix(x)
    for i in range(6):
        for j in range(6):
            cosine = abs(float(x[i] @ x[j])) / float(x[i].norm() * x[j].norm())
            assert float(found[i, j]) == pytest.approx(math.acos(min(1.0, cosine)), abs=1e-7)
    scaled = x * torch.tensor([[1e-200], [-3.0], [1e150], [1.0], [-1.0], [7.0]], dtype=torch.float64)
    torch.testing.assert_close(angle_matrix(scaled), found)
    assert bool(((found >= 0) & (found <= math.pi / 2)).all())


def test_zero_vectors_have_no_angle_and_the_diagonal_is_exact() -> None:
    found = angle_matrix(torch.tensor([[1.0, 1.0], [0.0, 0.0], [1.0, 0.0]]))
    assert bool(found[1].isnan().all() and found[:, 1].isnan().all())
    assert float(found[0, 0]) == 0.0
    assert float(found[0, 2]) == pytest.approx(math.pi / 4)


def test_angles_are_between_the_rows_of_a_matrix() -> None:
    with pytest.raises((OptionError, TypeCheckError)):
        angle_matrix(torch.zeros(3))
