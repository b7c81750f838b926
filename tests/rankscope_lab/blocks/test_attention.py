"""Attention against ``torch.nn``, against a slow loop, and against its laws."""

import math

import pytest
import torch
from torch import nn

from rankscope.errors import OptionError
from rankscope_lab.blocks import (
    MultiHeadAttention,
    attention_weights,
    fused_dot_product,
    scaled_dot_product,
)

BATCH, TOKENS, SOURCE, D, HEADS = 3, 7, 5, 24, 4
CLOSE = {"rtol": 0.0, "atol": 1e-6}


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(params=[scaled_dot_product, fused_dot_product], ids=["plain", "fused"])
def pair(request: pytest.FixtureRequest) -> tuple[MultiHeadAttention, nn.MultiheadAttention]:
    """Ours and torch's with the same weights, biases that are not zero among them."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(D, HEADS, batch_first=True).double()
    nn.init.normal_(theirs.in_proj_bias)
    nn.init.normal_(theirs.out_proj.bias)
    ours = MultiHeadAttention(D, HEADS).double()
    ours.load_state_dict(theirs.state_dict())
    ours.attend = request.param
    return ours.eval(), theirs.eval()


def test_self_attention_is_torchs(pair: tuple[MultiHeadAttention, nn.MultiheadAttention]) -> None:
    ours, theirs = pair
    x = draw(BATCH, TOKENS, D)
    torch.testing.assert_close(ours(x), theirs(x, x, x)[0], **CLOSE)


def test_causal_attention_is_torchs(pair: tuple[MultiHeadAttention, nn.MultiheadAttention]) -> None:
    ours, theirs = pair
    x = draw(BATCH, TOKENS, D)
    later = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
    torch.testing.assert_close(ours(x, causal=True), theirs(x, x, x, attn_mask=later)[0], **CLOSE)


def test_cross_attention_is_torchs(pair: tuple[MultiHeadAttention, nn.MultiheadAttention]) -> None:
    ours, theirs = pair
    x, source = draw(BATCH, TOKENS, D), draw(BATCH, SOURCE, D, seed=1)
    torch.testing.assert_close(ours(x, source), theirs(x, source, source)[0], **CLOSE)


def test_it_draws_what_torch_draws() -> None:
    torch.manual_seed(3)
    theirs = nn.MultiheadAttention(D, HEADS).state_dict()
    torch.manual_seed(3)
    ours = MultiHeadAttention(D, HEADS).state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("attend", [scaled_dot_product, fused_dot_product])
@pytest.mark.parametrize("causal", [False, True])
def test_a_slow_loop_gives_the_same(attend: object, causal: bool) -> None:
    q, k, v = draw(4, 6), draw(4, 6, seed=1), draw(4, 3, seed=2)
    want = torch.zeros(4, 3, dtype=torch.float64)
    for i in range(4):
        keys = range(i + 1) if causal else range(4)
        exps = [math.exp(sum(float(q[i, c] * k[j, c]) for c in range(6)) / math.sqrt(6)) for j in keys]
        for j, e in zip(keys, exps, strict=True):
            want[i] += e / sum(exps) * v[j]
    assert callable(attend)
    torch.testing.assert_close(attend(q[None], k[None], v[None], causal=causal)[0], want)


def test_laws_of_the_softmax() -> None:
    q, k, v = draw(2, TOKENS, 6), draw(2, TOKENS, 6, seed=1), draw(2, TOKENS, 3, seed=2)
    weights = attention_weights(q, k, causal=True)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, TOKENS, dtype=torch.float64))
    assert not weights.triu(1).any()
    same_keys = k[:, :1].expand_as(k)
    want = v.mean(1, keepdim=True).expand_as(v)
    torch.testing.assert_close(scaled_dot_product(q, same_keys, v), want)
    sharp = scaled_dot_product(1e4 * q, k, v)
    best = (q @ k.mT).argmax(-1)
    torch.testing.assert_close(sharp, v.gather(1, best[..., None].expand(-1, -1, 3)))
    assert torch.isfinite(scaled_dot_product(1e6 * q, k, v)).all()


def test_the_scale_keeps_the_variance_of_scores_at_one() -> None:
    q, k = draw(1, 300, 256), draw(1, 300, 256, seed=1)
    logits = attention_weights(q, k).log()
    assert float(logits.var(-1).mean()) == pytest.approx(1.0, abs=0.1)


def test_permuting_tokens_permutes_outputs() -> None:
    torch.manual_seed(0)
    ours = MultiHeadAttention(D, HEADS).double()
    x, order = draw(BATCH, TOKENS, D), torch.randperm(TOKENS)
    torch.testing.assert_close(ours(x[:, order]), ours(x)[:, order])
    assert not torch.allclose(ours(x[:, order], causal=True), ours(x, causal=True)[:, order])


def test_causal_outputs_do_not_see_what_follows() -> None:
    torch.manual_seed(0)
    ours = MultiHeadAttention(D, HEADS).double()
    x = draw(BATCH, TOKENS, D)
    moved = x.clone()
    moved[:, 4:] += 1
    before, after = ours(x, causal=True), ours(moved, causal=True)
    torch.testing.assert_close(before[:, :4], after[:, :4])
    assert not torch.allclose(before[:, 4:], after[:, 4:])


def test_one_head_with_identity_weights_is_the_plain_formula() -> None:
    ours = MultiHeadAttention(D, 1).double()
    eye = torch.eye(D, dtype=torch.float64)
    with torch.no_grad():
        ours.in_proj_weight.copy_(torch.cat([eye, eye, eye]))
        ours.out_proj.weight.copy_(eye)
    x = draw(BATCH, TOKENS, D)
    torch.testing.assert_close(ours(x), ((x @ x.mT) / math.sqrt(D)).softmax(-1) @ x)


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(OptionError, match="5 heads do not divide d_model 24"):
        MultiHeadAttention(D, 5)


def test_dropout_acts_on_weights_in_training_only() -> None:
    torch.manual_seed(0)
    ours = MultiHeadAttention(D, HEADS, dropout=0.5)
    x = torch.randn(BATCH, TOKENS, D)
    assert not torch.equal(ours(x), ours(x))
    ours.eval()
    assert torch.equal(ours(x), ours(x))
