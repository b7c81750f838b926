import json

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rankscope.errors import DataError, OptionError
from rankscope.io import codec
from rankscope_lab.blocks import AttentionBlock, LearnedPositions, ProjectionBlock
from rankscope_lab.measure import ModelRanks, measure, rank_record

C, D, LAYERS = 4, 16, 2


class Linear(nn.Module):
    """A linear encoder of C channels before blocks, with or without positions."""

    def __init__(self, bias: bool = True, positions: bool = False, norm: str = "pre", kind: str = "attention") -> None:
        super().__init__()
        self.encoder = nn.Linear(C, D, bias=bias)
        self.positions = LearnedPositions(30, D) if positions else nn.Identity()
        blocks = [
            AttentionBlock(D, 2, 24, 0.3, norm=norm, causal=True)
            if kind == "attention"
            else ProjectionBlock(D, 24, 0.3)
            for _ in range(LAYERS)
        ]
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        return self.states(x)[-1]

    def states(self, x: Tensor) -> list[Tensor]:
        states = [self.positions(self.encoder(x))]
        for block in self.blocks:
            states.append(block(states[-1]))
        return states


@pytest.fixture
def batch() -> Tensor:
    return torch.randn(6, 30, C, generator=torch.Generator().manual_seed(0))


def numpy_ranks(rows: np.ndarray, eps: float) -> int:
    sigma = np.linalg.svd(rows, compute_uv=False)
    return int((sigma > eps * sigma[0]).sum())


@pytest.mark.parametrize(("bias", "rank"), [(False, C), (True, C + 1)])
def test_a_linear_encoder_gives_rank_of_at_most_its_channels(bias: bool, rank: int, batch: Tensor) -> None:
    torch.manual_seed(1)
    model = Linear(bias)
    if bias:
        nn.init.normal_(model.encoder.bias)
    first = measure(model, batch, eps=(1e-5,)).stream("input")[0]
    assert first.ranks.eps_ranks == {"1e-05": rank}
    # a bias is the same for all tokens: less the mean it is gone
    assert first.centred.eps_ranks == {"1e-05": C}
    assert first.d_model == first.ranks.size == D
    assert first.tokens == 180


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("kind", ["attention", "projection"])
def test_streams_are_those_of_a_plain_loop(kind: str, norm: str, batch: Tensor) -> None:
    torch.manual_seed(2)
    model = Linear(positions=True, norm=norm, kind=kind).train()
    found = measure(model, batch)
    assert model.training  # as it was, and dropout was off while it was measured
    with torch.no_grad():
        states = model.eval().states(batch)
    places = [*found.stream("input"), *found.stream("output")]
    assert [(one.layer, one.kind) for one in places] == [(0, kind), (1, kind), (1, kind)]
    for one, state in zip(places, states, strict=True):
        rows = state.double().reshape(-1, D).numpy()
        for shown, matrix in ((one.ranks, rows), (one.centred, rows - rows.mean(0))):
            sigma = np.linalg.svd(matrix, compute_uv=False)
            np.testing.assert_allclose(shown.sigma, sigma, rtol=1e-9, atol=1e-9 * sigma[0])
            assert shown.eps_ranks == {str(eps): numpy_ranks(matrix, eps) for eps in (0.1, 0.05, 0.01)}
            share = sigma**2 / (sigma**2).sum()
            assert shown.effective_rank == pytest.approx(np.exp(-(share * np.log(share)).sum()))


def test_between_is_what_the_feed_forward_half_reads(batch: Tensor) -> None:
    torch.manual_seed(3)
    model = Linear(norm="post").eval()
    first = measure(model, batch).stream("between")[0]
    block = model.blocks[0]
    with torch.no_grad():
        x = model.encoder(batch)
        u = block.norm1(x + block.attention(x, causal=True))
    np.testing.assert_allclose(first.ranks.sigma, np.linalg.svd(u.reshape(-1, D).double(), compute_uv=False), rtol=1e-6)


def test_planted_ranks_of_weights_and_of_single_heads() -> None:
    model = Linear()
    draw = torch.Generator().manual_seed(4)
    with torch.no_grad():
        packed = model.blocks[0].attention.in_proj_weight
        packed[:D] = torch.randn(D, 3, generator=draw) @ torch.randn(3, D, generator=draw)
        # head 1 of v: a single row repeated; head 0 is left alone
        packed[2 * D + D // 2 :] = torch.randn(1, D, generator=draw).expand(D // 2, -1)
        output = model.blocks[0].attention.out_proj.weight
        output[:, : D // 2] = torch.randn(D, 2, generator=draw) @ torch.randn(2, D // 2, generator=draw)
    first = {one.role: one for one in measure(model, None, eps=(1e-5,)).weights if one.layer == 0}
    assert first["q"].ranks.eps_ranks == {"1e-05": 3}
    assert first["v"].head_eps_ranks == {"1e-05": (8, 1)}
    assert first["o"].head_eps_ranks == {"1e-05": (2, 8)}
    assert first["inner"].head_eps_ranks == {}
    assert first["q"].name == "blocks.0.attention.in_proj_weight.q"
    assert first["o"].name == "blocks.0.attention.out_proj.weight"


def test_hooks_are_gone_even_after_an_error(batch: Tensor) -> None:
    model = Linear()
    measure(model, batch)
    with pytest.raises(RuntimeError):
        measure(model, batch[..., :2])
    assert all(not part._forward_hooks and not part._forward_pre_hooks for part in model.modules())
    assert model.training


def test_the_compact_record_is_small_and_reads_back(batch: Tensor) -> None:
    model = Linear(positions=True)
    record = rank_record(model, batch)
    text = json.dumps(record, allow_nan=False)
    assert len(text) < 12_000
    back = codec.parse(ModelRanks, json.loads(text))
    assert codec.plain(back) == record
    whole = measure(model, batch)
    assert [one.ranks.eps_ranks for one in back.streams] == [one.ranks.eps_ranks for one in whole.streams]
    assert [len(one.ranks.sigma) for one in back.stream("input")] == [D, D]
    assert not any(one.ranks.sigma for one in back.weights)


def test_what_is_not_finite_is_named(batch: Tensor) -> None:
    model = Linear()
    with pytest.raises(DataError, match=r"blocks\.0 holds NaN"):
        measure(model, batch * torch.inf)
    with torch.no_grad():
        model.blocks[1].feed_forward.outer.weight[0, 0] = torch.nan
    with pytest.raises(DataError, match=r"blocks\.1\.feed_forward\.outer\.weight holds NaN"):
        measure(model, batch)
    with pytest.raises(OptionError, match="eps"):
        measure(model, batch, eps=(1.5,))
