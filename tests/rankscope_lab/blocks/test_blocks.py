"""Whole blocks against ``torch.nn``'s layers, and the laws of add & norm, feed-forward and projection."""

import pytest
import torch
from torch import Tensor, nn

from rankscope.errors import OptionError
from rankscope_lab.blocks import (
    AddNorm,
    AttentionBlock,
    DecoderBlock,
    FeedForward,
    ProjectionBlock,
    TokenEmbedding,
)

BATCH, TOKENS, SOURCE, D, HEADS, D_FF = 3, 6, 5, 16, 4, 40
CLOSE = {"rtol": 0.0, "atol": 1e-6}
TORCH_NAMES = {
    "self_attn": "attention",
    "multihead_attn": "cross_attention",
    "linear1": "feed_forward.inner",
    "linear2": "feed_forward.outer",
}


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def renamed(layer: nn.Module, norm: str) -> dict[str, Tensor]:
    """Weights of a layer of torch under our names, all of them moved off their initial values."""
    found = {}
    for name, tensor in layer.state_dict().items():
        head, rest = name.split(".", 1)
        ours = f"{head}{norm}" if head.startswith("norm") else TORCH_NAMES[head]
        found[f"{ours}.{rest}"] = tensor + 0.3 * draw(*tensor.shape, seed=len(found) + 9)
    with torch.no_grad():
        for (_, tensor), new in zip(layer.state_dict().items(), found.values(), strict=True):
            tensor.copy_(new)
    return found


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_the_attention_block_is_torchs_encoder_layer(norm: str, activation: str) -> None:
    theirs = nn.TransformerEncoderLayer(
        D, HEADS, D_FF, 0.0, activation, batch_first=True, norm_first=norm == "pre"
    ).double()
    ours = AttentionBlock(D, HEADS, D_FF, norm=norm, activation=activation).double()
    ours.load_state_dict(renamed(theirs, ""))
    x = draw(BATCH, TOKENS, D)
    torch.testing.assert_close(ours(x), theirs(x), **CLOSE)


def test_the_decoder_block_is_torchs_decoder_layer() -> None:
    theirs = nn.TransformerDecoderLayer(D, HEADS, D_FF, 0.0, batch_first=True).double()
    ours = DecoderBlock(D, HEADS, D_FF).double()
    ours.load_state_dict(renamed(theirs, ".norm"))
    x, memory = draw(BATCH, TOKENS, D), draw(BATCH, SOURCE, D, seed=1)
    later = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
    torch.testing.assert_close(ours(x, memory), theirs(x, memory, tgt_mask=later), **CLOSE)


def test_a_block_is_its_sublayers_within_add_and_norm() -> None:
    torch.manual_seed(0)
    block = AttentionBlock(D, HEADS, D_FF, norm="post", causal=True).double()
    around = [AddNorm(D).double(), AddNorm(D).double()]
    for one, of_block in zip(around, (block.norm1, block.norm2), strict=True):
        nn.init.normal_(of_block.weight)
        one.norm.load_state_dict(of_block.state_dict())
    x = draw(BATCH, TOKENS, D)
    want = around[1](around[0](x, lambda u: block.attention(u, causal=True)), block.feed_forward)
    torch.testing.assert_close(block(x), want)


def test_post_norm_tokens_have_mean_0_and_variance_1() -> None:
    x = 5 * draw(BATCH, TOKENS, D) + 3
    out = AddNorm(D).double()(x, torch.sin)
    torch.testing.assert_close(out.mean(-1), torch.zeros(BATCH, TOKENS, dtype=torch.float64))
    torch.testing.assert_close(out.var(-1, correction=0), torch.ones(BATCH, TOKENS, dtype=torch.float64), **CLOSE)


def test_normalisation_forgets_scale_and_shift() -> None:
    module = AddNorm(D).double()
    nn.init.normal_(module.norm.weight)
    nn.init.normal_(module.norm.bias)
    module.norm.eps = 0.0
    x = draw(BATCH, TOKENS, D)
    torch.testing.assert_close(module(3.7 * x - 11, torch.zeros_like), module(x, torch.zeros_like))


def test_a_sublayer_of_nothing_leaves_the_norm() -> None:
    x = draw(BATCH, TOKENS, D)
    torch.testing.assert_close(AddNorm(D).double()(x, torch.zeros_like), nn.functional.layer_norm(x, (D,)))


def test_there_are_two_places_for_the_norm() -> None:
    with pytest.raises(OptionError, match="did you mean 'post'"):
        AttentionBlock(D, HEADS, D_FF, norm="posts")


@pytest.mark.parametrize(
    "block", [ProjectionBlock(D, D_FF), FeedForward(D, D_FF, activation="relu")], ids=["projection", "feed-forward"]
)
def test_tokens_do_not_see_one_another(block: nn.Module) -> None:
    block = block.double()
    x = draw(BATCH, TOKENS, D)
    moved = x.clone()
    moved[1, 2] += 1
    changed = (block(x) != block(moved)).any(-1).nonzero().tolist()
    assert changed == [[1, 2]]
    alone = torch.stack([torch.stack([block(x[b, t][None, None])[0, 0] for t in range(TOKENS)]) for b in range(BATCH)])
    torch.testing.assert_close(block(x), alone)


def test_the_projection_block_is_its_formula() -> None:
    torch.manual_seed(0)
    block = ProjectionBlock(D, D_FF).double()
    names = {name for name, _ in block.named_parameters()}
    assert "projection.bias" not in names
    x = draw(BATCH, TOKENS, D)
    u = nn.functional.layer_norm(x + nn.functional.gelu(x @ block.projection.weight.T), (D,))
    inner, outer = block.feed_forward.inner, block.feed_forward.outer
    inside = nn.functional.gelu(u @ inner.weight.T + inner.bias) @ outer.weight.T + outer.bias
    torch.testing.assert_close(block(x), nn.functional.layer_norm(u + inside, (D,)))


def test_the_feed_forward_layer_is_its_formula() -> None:
    layer = FeedForward(D, D_FF, activation="relu").double()
    x = draw(BATCH, TOKENS, D)
    want = (x @ layer.inner.weight.T + layer.inner.bias).clamp_min(0) @ layer.outer.weight.T + layer.outer.bias
    torch.testing.assert_close(layer(x), want)


def test_embedded_tokens_are_scaled_rows_of_variance_one() -> None:
    torch.manual_seed(0)
    module = TokenEmbedding(500, 64)
    ids = torch.arange(500)[None]
    out = module(ids)
    torch.testing.assert_close(out, 8.0 * module.table.weight[None])
    assert float(out.detach().var()) == pytest.approx(1.0, abs=0.05)
    module(torch.tensor([[3, 3, 7]])).sum().backward()
    assert module.table.weight.grad is not None
    assert module.table.weight.grad.any(-1).nonzero().flatten().tolist() == [3, 7]
