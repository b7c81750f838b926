import copy
import math

import pytest
import torch
from torch import Tensor, nn

from rankscope.compress import Plan
from rankscope.compress.calibration.moments import centred
from rankscope.compress.joint import PairCut
from rankscope.compress.methods import MatrixCut
from rankscope.compress.plan import SitePlan
from rankscope.errors import DataError
from rankscope_lab.blocks import AttentionBlock, DecoderBlock, ProjectionBlock
from rankscope_lab.measure import matrix_of, sites_of
from rankscope_lab.ranks.compress import KINDS, compression_curve, cut_to, cuts_of, model_moments, write_cut

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
    """A copy of the model with one kind of layer cut."""
    made = copy.deepcopy(model)
    plan = cut_to(made, cuts_of(made, kind, method, model_moments(model, [batch])), ratio)
    assert plan is not None
    return made, plan


def cut_all(model: nn.Module, cuts: list[MatrixCut | PairCut], rank: int | None = None) -> list[float]:
    """Cut everything to one rank, by default to its whole one; return the squares that are cut off."""
    lost = []
    for one in cuts:
        spectra = one.spectra({site: matrix_of(model, site) for site in one.sites})
        ranks = [len(spectrum.sigma) if rank is None else rank for spectrum in spectra]
        lost.append(sum(float(one.values[r:].square().sum()) for one, r in zip(spectra, ranks, strict=True)))
        write_cut(model, one, [SitePlan(spectrum, r, r, True) for spectrum, r in zip(spectra, ranks, strict=True)])
    return lost


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
    cuts = cuts_of(made, kind, method, model_moments(model, [batch]))
    # both feed-forward halves have two matrices; attention has four, or two pairs
    assert len(cuts) == {"projection": 1, "feed_forward": 4, "attention": 2 if method == "joint" else 4}[kind]
    cut_all(made, cuts)
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
    seen = {site.role: moments[site] for site in sites_of(block)}
    torch.testing.assert_close(seen["cross.k"].second, rows.T @ rows / len(rows))
    cuts = cuts_of(made, "attention", "joint", moments)
    assert len(cuts) == 2 * 2
    cut_all(made, cuts)
    assert mean_square(block, made, batch, memory) < 1e-9


@pytest.mark.parametrize("rank", [1, 3, 7])
def test_error_of_whitened_with_bias_is_the_variance_that_is_cut(rank: int, batch: Tensor) -> None:
    # best affine map of a rank: the variance of the outputs outside their first principal components
    torch.manual_seed(3)
    layer = nn.Linear(D, 9)
    model = nn.Sequential(layer)
    (site,) = sites_of(model)
    whole = MatrixCut(site, "whitened", model_moments(model, [batch])[site], bias=layer.bias.detach())
    with torch.no_grad():
        outputs = layer(batch).double().reshape(-1, 9)
        cut_all(model, [whole], rank)
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
    pair = cuts_of(attention, "attention", "joint", model_moments(attention, [x]))[0]
    before = [centred_scores(attention, x, head) for head in range(HEADS)]
    (lost,) = cut_all(attention, [pair], rank)
    gaps = [whole - centred_scores(attention, x, head) for head, whole in enumerate(before)]
    assert sum(float(gap.square().mean()) for gap in gaps) == pytest.approx(lost, rel=1e-3)


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
    pair = cuts_of(attention, "attention", "joint", model_moments(attention, [x]))[1]
    for head in range(HEADS):  # one after the other: errors of several would be correlated
        other = copy.deepcopy(attention)
        spectra = pair.spectra({site: matrix_of(other, site) for site in pair.sites})
        ranks = [rank if one.head == head else len(one.sigma) for one in spectra]
        write_cut(other, pair, [SitePlan(one, r, r, one.head == head) for one, r in zip(spectra, ranks, strict=True)])
        with torch.no_grad():
            gap = attention(x) - other(x)
        assert float(gap.square().sum(-1).mean()) == pytest.approx(
            float(spectra[head].values[rank:].square().sum()), rel=1e-3
        )
        assert float(gap.mean((0, 1)).abs().max()) < 1e-9


def test_moments_are_those_of_a_loop(batch: Tensor) -> None:
    model = Mixed()
    two = model_moments(model, [batch[:4], batch[4:]])
    with torch.no_grad():
        u = model.eval().blocks[0](batch).double().reshape(-1, D)
    (queries,) = (moments for site, moments in two.items() if site.role == "self.q")
    torch.testing.assert_close(queries.second, u.T @ u / len(u), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(centred(queries).second, torch.cov(u.T, correction=0), rtol=1e-4, atol=1e-5)
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
    with pytest.raises(DataError, match="loss is nan"):
        compression_curve(model, [batch], lambda one: math.nan)
    with pytest.raises(DataError, match="no batch"):
        model_moments(model, [])


class Whole(nn.Module):
    """Projection and attention in an encoder, self- and cross-attention in a decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            [ProjectionBlock(D, 20), AttentionBlock(D, HEADS, 20, 0.2, norm="post", causal=True)]
        )
        self.decoder = nn.ModuleList([DecoderBlock(D, HEADS, 20)])
        with_biases(self)

    def forward(self, x: Tensor) -> Tensor:
        memory = x
        for block in self.blocks:
            memory = block(memory)
        return self.decoder[0](x[:, :6], memory)


RECORDED = {
    ("attention", "svd"): [(864, 3.090075254), (288, 3.122431755)],
    ("projection", "svd"): [(72, 3.111973047), (24, 3.115689754)],
    ("feed_forward", "svd"): [(576, 2.990415335), (192, 3.017607927)],
    ("attention", "whitened"): [(864, 3.113434315), (288, 3.136837244)],
    ("projection", "whitened"): [(72, 3.111392736), (24, 3.115881443)],
    ("feed_forward", "whitened"): [(576, 3.112462997), (192, 3.11207509)],
    ("attention", "joint"): [(864, 3.101677179), (432, 3.106331825)],
}
"""Numbers stored and loss at a half and a quarter, as the lab's own compressor left them before the library's did."""


def test_curves_are_those_of_the_lab_s_own_compressor() -> None:
    torch.manual_seed(7)
    model = Whole()
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(SERIES, TOKENS, D, generator=draw) @ torch.randn(D, D, generator=draw)
    x = x + torch.randn(D, generator=draw)
    target = torch.randn(SERIES, 6, D, generator=draw)

    def score(one: nn.Module) -> float:
        with torch.no_grad():
            return float((one.eval()(x) - target).square().mean())

    points = compression_curve(model, [x[:5], x[5:]], score, ratios=(0.5, 0.25))
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for one in points:
        assert one.stored is not None
        assert one.loss is not None
        found.setdefault((one.kind, one.method), []).append((one.stored, one.loss))
    assert found.keys() == RECORDED.keys()
    for key, pairs in found.items():
        assert [stored for stored, _ in pairs] == [stored for stored, _ in RECORDED[key]]
        assert [loss for _, loss in pairs] == pytest.approx([loss for _, loss in RECORDED[key]], rel=2e-6)
