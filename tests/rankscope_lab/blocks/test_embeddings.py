"""Laws of positions, and of patches."""

import math

import numpy as np
import pytest
import torch

from rankscope.errors import DataError, OptionError
from rankscope_lab.blocks import (
    LearnedPositions,
    MultiHeadAttention,
    MultiplicativePositions,
    ProjectionBlock,
    SinusoidalPositions,
    patch_count,
    patches,
    sinusoid,
)

LENGTH, D = 40, 16


def test_the_table_is_the_published_formula() -> None:
    table = sinusoid(LENGTH, D)
    for t in range(LENGTH):
        for i in range(D // 2):
            angle = t / 10000 ** (2 * i / D)
            assert float(table[t, 2 * i]) == pytest.approx(math.sin(angle), abs=1e-7)
            assert float(table[t, 2 * i + 1]) == pytest.approx(math.cos(angle), abs=1e-7)


def test_laws_of_sinusoidal_positions() -> None:
    p = sinusoid(LENGTH, D).double()
    assert p[0].tolist() == [0.0, 1.0] * (D // 2)
    torch.testing.assert_close(p.square().sum(1), torch.full((LENGTH,), D / 2, dtype=torch.float64), rtol=0, atol=1e-5)
    products = p @ p.T
    for shift in range(LENGTH):
        diagonal = products.diagonal(shift)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=0, atol=1e-5)


def test_a_shift_is_one_rotation_for_all_positions() -> None:
    p = sinusoid(LENGTH, D).double()
    for k in (1, 7):
        turn = torch.zeros(D, D, dtype=torch.float64)
        for i in range(D // 2):
            w = 10000 ** (-2 * i / D)
            c, s = math.cos(k * w), math.sin(k * w)
            turn[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.tensor([[c, s], [-s, c]], dtype=torch.float64)
        torch.testing.assert_close(p[k:], p[:-k] @ turn.T, rtol=0, atol=1e-5)
    # with the odd exponents of the tutorial's equation 7 products no longer depend on the distance alone
    t = torch.arange(LENGTH, dtype=torch.float64)[:, None]
    i = torch.arange(D // 2, dtype=torch.float64)
    printed = torch.cat([(t / 10000 ** (2 * i / D)).sin(), (t / 10000 ** ((2 * i + 1) / D)).cos()], 1)
    diagonal = (printed @ printed.T).diagonal(3)
    assert float(diagonal.max() - diagonal.min()) > 0.1


def test_sinusoidal_positions_are_added_and_not_learned() -> None:
    module = SinusoidalPositions(LENGTH, D)
    assert not list(module.parameters())
    assert not module.state_dict()
    x = torch.randn(2, 5, D)
    torch.testing.assert_close(module(x), x + sinusoid(LENGTH, D)[:5])
    with pytest.raises(OptionError, match="even d_model, got 7"):
        sinusoid(LENGTH, 7)


def test_only_used_rows_of_learned_positions_get_a_gradient() -> None:
    torch.manual_seed(0)
    for module in (LearnedPositions(LENGTH, D), MultiplicativePositions(LENGTH, D)):
        module(torch.randn(2, 9, D)).square().sum().backward()
        assert module.weight.grad is not None
        assert module.weight.grad.any(-1).nonzero().flatten().tolist() == list(range(9))


@pytest.mark.parametrize("kind", [SinusoidalPositions, LearnedPositions, MultiplicativePositions])
def test_there_is_no_position_beyond_the_table(kind: type) -> None:
    module = kind(4, D)
    module(torch.zeros(1, 4, D))
    with pytest.raises(OptionError, match="5 positions, but there are only 4"):
        module(torch.zeros(1, 5, D))


def test_how_learned_positions_begin() -> None:
    torch.manual_seed(0)
    assert float(LearnedPositions(400, 64).weight.detach().std()) == pytest.approx(1.0, abs=0.02)
    assert float(LearnedPositions(400, 64).weight.detach().std()) == pytest.approx(1.0, rel=0.02)
    assert float(MultiplicativePositions(400, 64).weight.detach().std()) == pytest.approx(1.0, abs=0.02)


def test_a_multiplier_of_one_leaves_tokens_in_no_order() -> None:
    torch.manual_seed(0)
    x, order = torch.randn(2, 9, D, dtype=torch.float64), torch.randperm(9)
    for layer in (MultiHeadAttention(D, 4).double(), ProjectionBlock(D, 32).double()):
        one, drawn = MultiplicativePositions(9, D).double(), MultiplicativePositions(9, D).double()
        torch.nn.init.ones_(one.weight)
        torch.testing.assert_close(layer(one(x[:, order])), layer(one(x))[:, order])
        assert not torch.allclose(layer(drawn(x[:, order])), layer(drawn(x))[:, order])
    offset = MultiplicativePositions(9, D, offset=1.0).double()
    torch.nn.init.zeros_(offset.weight)
    assert torch.equal(offset(x), x)


@pytest.mark.parametrize(("length", "patch", "stride"), [(512, 16, 8), (50, 7, 3), (7, 7, 3)])
def test_patches_are_a_strided_window(length: int, patch: int, stride: int) -> None:
    x = np.arange(2 * length * 3, dtype=np.float64).reshape(2, length, 3)
    got = patches(torch.from_numpy(x), patch, stride)
    want = [
        [x[b, start : start + patch, v] for start in range(0, length - patch + 1, stride)]
        for b in range(2)
        for v in range(3)
    ]
    np.testing.assert_array_equal(got.numpy(), np.array(want))
    assert got.shape[1] == patch_count(length, patch, stride)


def test_the_last_patch_of_512_values_ends_with_them() -> None:
    got = patches(torch.arange(512.0).reshape(1, 512, 1), 16, 8)
    assert got.shape == (1, 63, 16)
    assert float(got[0, 62, -1]) == 511.0


def test_a_series_shorter_than_a_patch() -> None:
    with pytest.raises(DataError, match="a series of 15 values is shorter than a patch of 16"):
        patches(torch.zeros(1, 15, 2), 16, 8)
