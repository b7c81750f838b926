import copy
import math

import pytest
import torch
from torch import Tensor, nn

from rankscope.compress import Budget, Plan, plan_by_budget
from rankscope.errors import DataError, OptionError
from rankscope_lab.blocks import AttentionBlock, DecoderBlock, ProjectionBlock
from rankscope_lab.ranks.calibrate import centred, model_moments
from rankscope_lab.ranks.compress import UNIFORM, compression_curve
from rankscope_lab.ranks.pieces import KINDS, MatrixPiece, OutputsPiece, ScoresPiece, pieces_of

D, HEADS, SERIES, TOKENS = 12, 3, 9, 14


class Mixed(nn.Module):
    """A projection block, then attention, as in a sparse-layered transformer; all biases are drawn."""

    def __init__(self, norm: str = "post") -> None:
        super().__init__()
        self.blocks = nn.ModuleList([ProjectionBlock(D, 20), AttentionBlock(D, HEADS, 20, 0.2, norm=norm, causal=True)])
        with_biases(self)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def with_biases(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if "bias" in name:
            nn.init.normal_(parameter)


@pytest.fixture
def batch() -> Tensor:
    draw = torch.Generator().manual_seed(0)
    mixing = torch.randn(D, D, generator=draw)
    return torch.randn(SERIES, TOKENS, D, generator=draw) @ mixing + torch.randn(D, generator=draw)


def cut(model: nn.Module, batch: Tensor, kind: str, method: str, ratio: float) -> tuple[nn.Module, Plan]:
    """A copy of the model with one kind of layer cut, by hand."""
    made = copy.deepcopy(model)
    pieces = pieces_of(made, kind, method, model_moments(model, [batch]))
    plan = plan_by_budget([piece.spectrum for piece in pieces], Budget("ratio", ratio), UNIFORM)
    for piece, site in zip(pieces, plan.sites, strict=True):
        if site.changed:
            piece.cut(site.rank)
    return made, plan


def mean_square(model: nn.Module, other: nn.Module, *inputs: Tensor) -> float:
    with torch.no_grad():
        return float((model.eval()(*inputs) - other.eval()(*inputs)).square().mean())


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(
    ("kind", "method"), [(k, m) for k in KINDS for m in ("svd", "whitened")] + [("attention", "joint")]
)
def test_whole_rank_reproduces_the_model(kind: str, method: str, norm: str, batch: Tensor) -> None:
    torch.manual_seed(1)
    model = Mixed(norm)
    made = copy.deepcopy(model)
    pieces = pieces_of(made, kind, method, model_moments(model, [batch]))
    ranks = [len(piece.spectrum.sigma) for piece in pieces]
    for piece, rank in zip(pieces, ranks, strict=True):
        piece.cut(rank)
    # both feed-forward halves have two matrices; attention has four, or two pairs in each head
    assert len(pieces) == {"projection": 1, "feed_forward": 4, "attention": 2 * HEADS if method == "joint" else 4}[kind]
    with torch.no_grad():
        torch.testing.assert_close(made.eval()(batch), model.eval()(batch), atol=1e-5, rtol=1e-5)


def test_whole_rank_reproduces_cross_attention(batch: Tensor) -> None:
    torch.manual_seed(2)
    block = DecoderBlock(D, HEADS, 20)
    with_biases(block)
    memory = torch.randn(SERIES, 5, D)
    made = copy.deepcopy(block)
    moments = model_moments(block, [(batch, memory)])
    rows = memory.double().flatten(0, 1)
    torch.testing.assert_close(moments["cross_attention.source"].second, rows.T @ rows / len(rows))
    pieces = pieces_of(made, "attention", "joint", moments)
    assert len(pieces) == 2 * 2 * HEADS
    for piece in pieces:
        piece.cut(D // HEADS)
    assert mean_square(block, made, batch, memory) < 1e-9


@pytest.mark.parametrize("rank", [1, 3, 7])
def test_error_of_whitened_with_bias_is_the_variance_that_is_cut(rank: int, batch: Tensor) -> None:
    # best affine map of a rank: the variance of the outputs outside their first principal components
    torch.manual_seed(3)
    layer = nn.Linear(D, 9)
    model = nn.Sequential(layer)
    moments = model_moments(model, [batch])["0"]
    with torch.no_grad():
        outputs = layer(batch).double().reshape(-1, 9)
        MatrixPiece("0.weight", layer.weight.detach(), layer.bias.detach(), "whitened", moments).cut(rank)
        gaps = outputs - layer(batch).double().reshape(-1, 9)
    variances = torch.linalg.eigvalsh(torch.cov(outputs.T, correction=0)).flip(0)
    assert float(gaps.square().sum(1).mean()) == pytest.approx(float(variances[rank:].sum()), rel=1e-4)
    assert float(gaps.mean(0).abs().max()) < 1e-5
    assert int(torch.linalg.matrix_rank(layer.weight.detach())) == rank


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_error_of_scores_is_what_is_cut(rank: int, batch: Tensor) -> None:
    # loop over heads' own queries and keys: scores less their mean over a sequence's keys, over all pairs
    torch.manual_seed(4)
    block = AttentionBlock(D, HEADS, 20)
    with_biases(block)
    attention = block.attention.double()
    x = batch.double()
    moments = model_moments(attention, [x])
    for piece in pieces_of(attention, "attention", "joint", moments):
        if not isinstance(piece, ScoresPiece):
            continue
        before = centred_scores(attention, x, piece.head)
        cut_off = float(piece.spectrum.values[rank:].square().sum())
        piece.cut(rank)
        gap = before - centred_scores(attention, x, piece.head)
        assert float(gap.square().mean()) == pytest.approx(cut_off, rel=1e-3)


def centred_scores(attention: nn.Module, x: Tensor, head: int) -> Tensor:
    """Every query of every series with every key of every series; keys less the mean of their series."""
    with torch.no_grad():
        q, k, _ = (x @ attention.in_proj_weight.T + attention.in_proj_bias).chunk(3, -1)
    part = slice(head * D // HEADS, (head + 1) * D // HEADS)
    keys = torch.cat([one - one.mean(0) for one in k[..., part]])
    return q[..., part].flatten(0, 1) @ keys.T


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_error_of_outputs_is_what_is_cut_and_has_no_mean(rank: int, batch: Tensor) -> None:
    torch.manual_seed(5)
    block = AttentionBlock(D, HEADS, 20)
    with_biases(block)
    attention = block.attention.double()
    x = batch.double()
    pieces = pieces_of(attention, "attention", "joint", model_moments(attention, [x]))
    for piece in pieces:
        if not isinstance(piece, OutputsPiece):
            continue
        with torch.no_grad():
            before = attention(x, causal=False)
            cut_off = float(piece.spectrum.values[rank:].square().sum())
            piece.cut(rank)
            gap = before - attention(x)
        assert float(gap.square().sum(-1).mean()) == pytest.approx(cut_off, rel=1e-3)
        assert float(gap.mean((0, 1)).abs().max()) < 1e-9


def test_moments_are_those_of_a_loop(batch: Tensor) -> None:
    model = Mixed()
    two = model_moments(model, [batch[:4], batch[4:]])
    with torch.no_grad():
        u = model.eval().blocks[0](batch).double().reshape(-1, D)
    torch.testing.assert_close(two["blocks.1.attention"].second, u.T @ u / len(u), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        centred(two["blocks.1.attention"]).second, torch.cov(u.T, correction=0), rtol=1e-4, atol=1e-5
    )
    assert not any(part._forward_pre_hooks for part in model.modules())


def test_planted_ranks_are_cut_for_free(batch: Tensor) -> None:
    torch.manual_seed(6)
    model = Mixed()
    with torch.no_grad():
        layer = model.blocks[0].projection
        layer.weight.copy_(torch.randn(D, 3) @ torch.randn(3, D))
    made, plan = cut(model, batch, "projection", "whitened", 0.5)
    assert (plan.sites[0].rank, plan.after, plan.before) == (3, 3 * 2 * D, D * D)
    assert mean_square(model, made, batch) < 1e-9
    made, _ = cut(model, batch, "projection", "whitened", 0.34)
    assert mean_square(model, made, batch) > 1e-4


def test_curves_fall_back_to_the_whole_model(batch: Tensor) -> None:
    torch.manual_seed(7)
    model = Mixed()
    target = torch.randn(SERIES, TOKENS, D)
    before = {name: value.clone() for name, value in model.state_dict().items()}

    def score(one: nn.Module) -> float:
        with torch.no_grad():
            return float((one.eval()(batch) - target).square().mean())

    points = compression_curve(model, [batch], score, ratios=(1.0, 0.5, 0.1))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    found = {(one.kind, one.method, one.asked): one for one in points}
    assert len(found) == len(points) == 3 * (3 + 3 + 1)
    for (kind, method, asked), one in found.items():
        if asked == 1.0:
            assert one.relative == 1.0
            continue
        if one.ratio is None:
            continue
        assert one.ratio <= asked
        made, plan = cut(model, batch, kind, method, asked)
        assert one.stored == plan.after
        assert one.loss == pytest.approx(score(made))
    # a head of width 4 cannot be cut to a tenth
    assert found["attention", "joint", 0.1].loss is None
    # numbers of a layer's own kind: 20·12 twice, in two blocks
    assert found["feed_forward", "svd", 0.5].stored == 4 * math.floor(0.5 * 240 / 32) * 32


def test_bad_choices(batch: Tensor) -> None:
    model = Mixed()
    with pytest.raises(OptionError, match="did you mean 'joint'"):
        compression_curve(model, [batch], lambda one: 1.0, methods=("jont",))
    with pytest.raises(DataError, match="loss is nan"):
        compression_curve(model, [batch], lambda one: math.nan)
    with pytest.raises(DataError, match="no batch"):
        model_moments(model, [])
