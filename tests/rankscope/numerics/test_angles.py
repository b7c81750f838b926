"""Angles against a slow loop and known pairs."""

from __future__ import annotations

import math

import pytest
import torch
from jaxtyping import TypeCheckError

from rankscope.errors import OptionError
from rankscope.numerics import angle_matrix, row_angles


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


def test_rows_of_heads_are_the_diagonal_blocks() -> None:
    w = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    whole = row_angles(w)
    for head, block in enumerate(row_angles(w, heads=3)):
        torch.testing.assert_close(block, whole[2 * head : 2 * head + 2, 2 * head : 2 * head + 2])
    with pytest.raises(OptionError, match="heads"):
        row_angles(w, heads=4)
    with pytest.raises((OptionError, TypeCheckError)):
        angle_matrix(torch.zeros(3))
