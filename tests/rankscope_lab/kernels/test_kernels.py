"""Compiled attention, feed-forward and dropout against torch's, and the laws of dropout."""

import copy
import ctypes

import numpy as np
import pytest
import scipy.stats
import torch
from torch import nn

from rankscope_lab.blocks import AttentionBlock, MultiHeadAttention
from rankscope_lab.blocks.layers import FeedForward
from rankscope_lab.kernels import accelerate, functions, library
from rankscope_lab.kernels import compiled as compiled_module
from rankscope_lab.kernels.functions import dropped, feed_forward, packed_attention

pytestmark = pytest.mark.skipif(library() is None, reason="no C++ compiler")


@pytest.fixture
def kernels() -> ctypes.CDLL:
    found = library()
    assert found is not None
    return found


def by_torch(packed, grad, heads, causal, dtype):
    """Attention and the gradient of its packed input, by torch in a number format."""
    packed = packed.to(dtype).detach().requires_grad_()
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in packed.chunk(3, -1))
    sees = torch.tensor(
        [[not causal or key // causal <= i // causal for key in range(len(q[0, 0]))] for i in range(len(q[0, 0]))]
    )
    out = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=sees).transpose(1, 2).flatten(2)
    out.backward(grad.to(dtype))
    return out.detach().double(), packed.grad.double()


@pytest.mark.parametrize("causal", [0, 1, 3, 20])
@pytest.mark.parametrize(("d_head", "tokens"), [(8, 160), (16, 63), (32, 17), (64, 1), (16, 33), (8, 2)])
def test_attention_and_its_gradients_are_as_exact_as_torch_s(kernels, d_head, tokens, causal):
    """The truth is float64; torch's float32 says what rounding costs."""
    heads, batch = 3, 2
    torch.manual_seed(0)
    packed = torch.randn(batch, tokens, 3 * heads * d_head) * 2
    grad = torch.randn(batch, tokens, heads * d_head)
    exact, rounded = (by_torch(packed, grad, heads, causal, dtype) for dtype in (torch.float64, torch.float32))
    ours = packed.clone().requires_grad_()
    out = packed_attention(ours, heads, causal=causal, dropout=0.0, compiled=kernels)
    out.backward(grad)
    for mine, theirs, truth in zip((out.detach(), ours.grad), rounded, exact, strict=True):
        allowed = 4 * float((theirs - truth).abs().max()) + 1e-6 * float(truth.abs().max())
        assert float((mine.double() - truth).abs().max()) <= allowed


def test_dropout_of_weights_has_the_gradient_of_its_own_mask(kernels):
    """With the seed held fixed attention is a smooth function: its gradient equals finite differences."""
    heads, d_head, tokens = 2, 8, 20
    packed = torch.randn(1, tokens, 3 * heads * d_head)
    direction, grad = torch.randn_like(packed), torch.randn(1, tokens, heads * d_head)

    def value(x):
        torch.manual_seed(7)
        return (packed_attention(x, heads, causal=True, dropout=0.4, compiled=kernels) * grad).double().sum()

    x = packed.clone().requires_grad_()
    value(x).backward()
    step = 1e-2
    numeric = (value(packed + step * direction) - value(packed - step * direction)) / (2 * step)
    assert float((x.grad * direction).double().sum()) == pytest.approx(float(numeric), rel=2e-3)


def test_attention_dropout_drops_the_share_and_keeps_the_mean(kernels):
    """With equal keys the weights are 1/n and values the unit vectors: outputs show which weights were dropped."""
    tokens, heads, d_head, share = 64, 1, 64, 0.25
    packed = torch.zeros(400, tokens, 3 * d_head)
    packed[..., 2 * d_head :] = torch.eye(tokens)
    out = packed_attention(packed, heads, causal=False, dropout=share, compiled=kernels) * tokens
    stays = out > 0
    torch.testing.assert_close(out[stays], torch.full_like(out[stays], 1 / (1 - share)))
    dropped_count = int((~stays).sum())
    assert scipy.stats.binomtest(dropped_count, stays.numel(), share).pvalue > 1e-4
    by_key = (~stays).float().mean((0, 1))
    assert float((by_key - share).abs().max()) < 5 * (share * (1 - share) / (400 * tokens)) ** 0.5


def layer_by_torch(layer, x, grad, dtype):
    """Output of a feed-forward layer and all gradients, by torch in a number format."""
    same = copy.deepcopy(layer).to(dtype)
    x = x.to(dtype).detach().requires_grad_()
    out = same(x)
    out.backward(grad.to(dtype))
    return [tensor.detach().double() for tensor in (out, x.grad, *(p.grad for p in same.parameters()))]


@pytest.mark.parametrize(("d_model", "d_ff", "shape"), [(64, 256, (3, 200)), (10, 7, (5,)), (56, 224, (2, 3, 100))])
def test_the_feed_forward_layer_and_its_gradients_are_as_exact_as_torch_s(kernels, d_model, d_ff, shape, monkeypatch):
    """Sizes that fill no vector, in pieces that do not divide the tokens."""
    monkeypatch.setattr(functions, "CACHED", 130 * d_ff)
    torch.manual_seed(0)
    layer = FeedForward(d_model, d_ff)
    x, grad = torch.randn(*shape, d_model) * 3, torch.randn(*shape, d_model)
    exact, rounded = (layer_by_torch(layer, x, grad, dtype) for dtype in (torch.float64, torch.float32))
    ours = x.clone().requires_grad_()
    out = feed_forward(ours, layer.inner, layer.outer, 0.0, kernels)
    out.backward(grad)
    mine = [out.detach(), ours.grad, *(p.grad for p in layer.parameters())]
    for one, theirs, truth in zip(mine, rounded, exact, strict=True):
        assert one.shape == truth.shape
        allowed = 4 * float((theirs - truth).abs().max()) + 1e-6 * float(truth.abs().max())
        assert float((one.double() - truth).abs().max()) <= allowed


def test_gelu_is_exact_from_end_to_end(kernels):
    """Identity maps show the activation itself, over all the numbers that it may meet."""
    x = torch.cat([torch.linspace(-12, 12, 4801), torch.tensor([-1e30, -50.0, 50.0, 1e30, torch.nan])])[:, None]
    same = nn.Linear(1, 1)
    with torch.no_grad():
        same.weight.fill_(1), same.bias.fill_(0)
    out = feed_forward(x, same, same, 0.0, kernels)
    truth = nn.functional.gelu(x.double())
    torch.testing.assert_close(out[:-5].double(), truth[:-5], atol=3e-7, rtol=2e-7)
    assert out[-5:-1, 0].tolist() == [0, 0, 50, pytest.approx(1e30)]
    assert out[-1].isnan()


def test_dropout_in_the_feed_forward_layer_has_the_gradient_of_its_own_masks(kernels, monkeypatch):
    """With the seed held fixed the layer is a smooth function: its gradient equals finite differences."""
    monkeypatch.setattr(functions, "CACHED", 70 * 64)
    torch.manual_seed(0)
    layer = FeedForward(16, 64, 0.4)
    x, grad = torch.randn(300, 16), torch.randn(300, 16)
    directions = [torch.randn_like(one) for one in (x, *layer.parameters())]

    def value(step):
        moved = copy.deepcopy(layer)
        variables = [x.clone().requires_grad_(), *moved.parameters()]
        with torch.no_grad():
            for one, way in zip(variables, directions, strict=True):
                one += step * way
        torch.manual_seed(7)
        found = (feed_forward(variables[0], moved.inner, moved.outer, 0.4, kernels) * grad).double().sum()
        found.backward()
        slope = sum(float((one.grad * way).double().sum()) for one, way in zip(variables, directions, strict=True))
        return float(found.detach()), slope

    step = 1e-2
    assert value(0.0)[1] == pytest.approx((value(step)[0] - value(-step)[0]) / (2 * step), rel=5e-3)


def test_the_feed_forward_layer_drops_the_share_in_every_piece(kernels, monkeypatch):
    """Inner masks: units that pass 1 on, one by one; outer masks: the same after them."""
    monkeypatch.setattr(functions, "CACHED", 100 * 64)
    share, tokens = 0.25, 2000
    inner, outer = nn.Linear(64, 64), nn.Linear(64, 64)
    with torch.no_grad():
        inner.weight.fill_(0), inner.bias.fill_(100), outer.bias.fill_(0)
        outer.weight.copy_(torch.eye(64) / 100)
    out = feed_forward(torch.zeros(tokens, 64), inner, outer, share, kernels).detach()
    stays = out > 0
    torch.testing.assert_close(out[stays], torch.full_like(out[stays], 1 / (1 - share) ** 2))
    expected = (1 - share) ** 2
    assert scipy.stats.binomtest(int(stays.sum()), stays.numel(), expected).pvalue > 1e-4
    centred = stays.float() - expected
    pieces = centred.unflatten(0, (20, 100)).flatten(1)
    correlations = (pieces @ pieces.T / pieces.shape[1] / (expected * (1 - expected))).triu(1)
    assert float(correlations.abs().max()) < 5 / pieces.shape[1] ** 0.5


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_dropout_is_a_scaled_mask_its_own_gradient_and_independent(kernels, share):
    x = torch.ones(1_000_003, requires_grad=True)
    torch.manual_seed(1)
    out = dropped(x, share, kernels)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())
    stays = (out > 0).numpy()
    np.testing.assert_allclose(out.detach().numpy()[stays], 1 / (1 - share), rtol=1e-6)
    assert scipy.stats.binomtest(int((~stays).sum()), len(stays), share).pvalue > 1e-4
    centred = stays - stays.mean()
    for lag in (1, 2, 16, 64, 256, 1024):
        correlation = (centred[lag:] * centred[:-lag]).mean() / centred.var()
        assert abs(correlation) < 5 / len(stays) ** 0.5
    again = dropped(x, share, kernels)
    overlap = ((again > 0).numpy() - stays.mean()) @ centred / len(stays) / centred.var()
    assert abs(overlap) < 5 / len(stays) ** 0.5
    torch.manual_seed(1)
    assert torch.equal(dropped(x, share, kernels), out)


def test_an_accelerated_block_answers_as_before_and_keeps_its_parameters():
    torch.manual_seed(0)
    block = AttentionBlock(64, 4, 256, 0.1, causal=3).eval()
    names = list(block.state_dict())
    x = torch.randn(3, 40, 64)
    before = block(x)
    assert accelerate(block)
    state = torch.get_rng_state()
    torch.testing.assert_close(block(x), before, atol=2e-6, rtol=1e-5)
    assert torch.equal(torch.get_rng_state(), state), "a validation changes the masks of the training after it"
    assert list(block.state_dict()) == names
    kept = x.clone().requires_grad_()
    block.train()
    assert not torch.equal(block(kept), block(kept))
    with torch.autocast("cpu", torch.bfloat16):
        block(kept).float().sum().backward()
    assert kept.grad is not None
    assert kept.grad.isfinite().all()


def test_what_is_not_a_number_stays_so(kernels):
    """A run that diverges has to be seen to."""
    packed = torch.randn(1, 20, 3 * 16)
    packed[0, 7, 3] = torch.nan
    out = packed_attention(packed, 1, causal=True, dropout=0.1, compiled=kernels)
    assert out[0, 7].isnan().all()
    assert not out[0, :7].isnan().any()


def test_loading_leaves_the_numbers_of_the_process_alone(kernels):
    """Fast-math libraries switch subnormal numbers off, for everyone."""
    assert float(torch.tensor(1e-40) * 0.5) > 0
    assert np.float64(5e-324) * 1.0 > 0


def test_cross_attention_stays_with_torch():
    attention = MultiHeadAttention(32, 2).eval()
    x, source = torch.randn(2, 5, 32), torch.randn(2, 7, 32)
    before = attention(x, source)
    accelerate(attention)
    assert torch.equal(attention(x, source), before)


def test_without_a_compiler_nothing_changes(monkeypatch):
    monkeypatch.setattr(compiled_module, "COMPILERS", ("no-such-compiler",))
    library.cache_clear()
    try:
        block = AttentionBlock(32, 2, 64, 0.1)
        assert not accelerate(block)
        assert type(block.drop) is nn.Dropout
    finally:
        library.cache_clear()
