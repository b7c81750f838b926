"""Attention against PyTorch's, bounds against brute force, constructions against what they promise."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import OptionError
from rankscope_paper import bounds

SPECTRA = st.lists(st.floats(1e-3, 1.0), min_size=8, max_size=8).map(
    lambda s: torch.tensor(sorted(s, reverse=True), dtype=torch.float64)
)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_attention_is_the_transpose_of_pytorchs() -> None:
    u, (q, k, v) = normal(6, 5), (normal(6, 6, seed=s) for s in (1, 2, 3))
    # the paper's softmax runs down the columns of (W_QU)ᵀ(W_KU): its keys are PyTorch's queries
    rows = [(w @ u).mT.reshape(5, 2, 3).transpose(0, 1) for w in (k, q, v)]
    expected = torch.nn.functional.scaled_dot_product_attention(*rows).transpose(0, 1).reshape(5, 6).mT
    torch.testing.assert_close(bounds.multi_head_attention(u, q, k, v, 2), expected)


def test_counts_of_theorem_2() -> None:
    assert bounds.theorem2_count(1.0, 3) == 6
    assert bounds.theorem2_count(0.1, 3) == pytest.approx(303)
    with pytest.raises(OptionError, match="ε > 0"):
        bounds.theorem2_count(0.0, 3)


@settings(max_examples=25, deadline=None)
@given(SPECTRA, st.sampled_from([1, 2, 4]), st.floats(1, 1e4))
def test_theorem_4_by_brute_force(sigma: torch.Tensor, heads: int, depth: float) -> None:
    got = bounds.theorem4_upper(sigma, heads, depth)
    weight = bounds.flow.E2 * heads / depth**0.5
    for k in range(1, 9):
        terms = [float(sigma[k - j] + weight * sigma[(j - 1) // heads]) for j in range(1, k + 1)]
        assert float(got[k - 1]) == pytest.approx(2 * min(terms))
        # Corollary 1 is one choice of j with D = 1, so never the smaller of the two
        factor = bounds.head_factor(heads)
        one = [float(sigma[k - j] + factor * sigma[(j - 1) // heads]) for j in range(1, k + 1)]
        assert float(bounds.corollary1_upper(sigma, heads)[k - 1]) >= min(one) * (1 - 1e-12)


@settings(max_examples=25, deadline=None)
@given(SPECTRA, st.sampled_from([1, 2, 4]), st.floats(1, 1e3))
def test_the_sharper_theorem_4_is_never_above_the_printed_one(sigma: torch.Tensor, heads: int, factor: float) -> None:
    sigma, depth = sigma / sigma[0], (2 * bounds.flow.E2 * heads * factor) ** 2
    sharp, printed = bounds.theorem4_sharp(sigma, heads, depth), bounds.theorem4_upper(sigma, heads, depth)
    assert bool((sharp <= printed).all())


def test_scores_in_the_unit_interval_leave_softmax_a_norm_of_cosh_1() -> None:
    # a share s of the scores at 1 and the rest at −1: Kantorovich's bound is met at s = 1/(1 + e²)
    norms = []
    for high in range(1, 1000):
        p = torch.softmax(torch.tensor([1.0] * high + [-1.0] * (1000 - high), dtype=torch.float64), dim=0)
        norms.append(float(p.norm()) * 1000**0.5)
    assert max(norms) == pytest.approx(torch.cosh(torch.tensor(1.0)).item(), rel=1e-4)
    assert max(norms) <= bounds.head_factor(1)
    draws = torch.rand(1000, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2 - 1
    assert float(torch.softmax(draws, dim=1).norm(dim=1).max()) * 50**0.5 <= bounds.head_factor(1)


@pytest.mark.parametrize("heads", [1, 2])
def test_no_matrices_of_rank_r_meet_the_printed_theorem_5(heads: int) -> None:
    """W̃ trained on the very inputs: the printed bound fails for all of them once L is large."""
    d, rank, size = 4, 3, 0.5
    xi, eye = size * torch.eye(d, dtype=torch.float64), torch.eye(d, dtype=torch.float64)
    w_v = (d / heads) ** 0.5 * eye
    assert bounds.one_token_lower(w_v, xi, rank, 10_000) >= 100 * size * (1 - 1e-12) / heads**0.5
    # eye·√d_h meets the hypotheses with C = 1
    assert bounds.one_token_lower(w_v, xi, rank, 10_000) > 5 * bounds.theorem3_printed(size, d_model=d, bound=1.0)
    generator = torch.Generator().manual_seed(0)
    factors = [
        torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in ((d, rank), (rank, d), (d, d), (d, d))
    ]
    optimiser = torch.optim.Adam(factors, lr=0.03)
    inputs = xi.mT[:, :, None].expand(-1, -1, 25)
    whole = bounds.multi_head_attention(inputs, eye, eye, w_v, heads)
    for _ in range(300):
        optimiser.zero_grad()
        cut = bounds.multi_head_attention(inputs, factors[2], factors[3], factors[0] @ factors[1], heads)
        worst = (whole - cut).flatten(1).norm(dim=1)
        worst.norm(p=8).backward()
        optimiser.step()
    limit = bounds.one_token_lower(w_v, xi, rank, 25)
    assert limit * (1 - 1e-12) <= float(worst.detach().max()) <= 1.1 * limit


@settings(max_examples=25, deadline=None)
@given(SPECTRA, st.sampled_from([1, 2, 4]), st.sampled_from([8, 11, 40]), st.floats(1, 1e4))
def test_the_construction_of_theorem_4(sigma: torch.Tensor, heads: int, tokens: int, depth: float) -> None:
    layer = bounds.theorem4_construction(sigma, tokens, heads)
    torch.testing.assert_close(torch.linalg.svdvals(layer.u), sigma)
    y = bounds.multi_head_attention(layer.u, layer.w_q, layer.w_k, layer.w_v, heads)
    # the leading block is the diagonal of eq. 30
    width = 8 // heads
    added = torch.stack([sigma[j] * (j != width - 1) for j in range(width)]).repeat(heads)
    torch.testing.assert_close((layer.u + y / depth**0.5)[:, :8], torch.diag(sigma + added / depth**0.5))
    assert all(float(torch.linalg.matrix_norm(v, 2)) <= 1 + 1e-12 for v in layer.w_v.chunk(heads))


def test_the_lower_bound_of_theorem_4_by_brute_force() -> None:
    sigma = torch.linspace(1, 0.1, 12, dtype=torch.float64)
    for heads, depth in itertools.product((1, 2, 3), (1.0, 9.0)):
        width, got = 12 // heads, bounds.theorem4_lower(sigma, heads, depth)
        for k in range(1, 13):
            terms = [
                0.25 * float(sigma[(i - 1) * width + -(-k // i) - 1] + sigma[-(-k // i) - 1] / depth**0.5)
                for i in range(1, heads + 1)
                if -(-k // i) < width
            ]
            assert float(got[k - 1]) == pytest.approx(max(terms, default=0.0))


@pytest.mark.parametrize(("heads", "tokens", "rank"), [(1, 12, 3), (2, 30, 1), (3, 12, 2), (6, 40, 1)])
def test_the_construction_of_theorem_6(heads: int, tokens: int, rank: int) -> None:
    sigma = torch.logspace(0, -3, 12, dtype=torch.float64)
    whole = bounds.theorem6_construction(sigma, tokens, heads)
    small = bounds.theorem6_sketches(sigma, tokens, heads, rank)
    torch.testing.assert_close(torch.linalg.svdvals(whole.u), sigma)
    for name, limit in (("w_q", rank + 1), ("w_k", rank + 1), ("w_v", rank)):
        full, cut = getattr(whole, name), getattr(small, name)
        assert float(cut.norm()) <= float(full.norm()) * (1 + 1e-12)
        for part in cut.chunk(heads):
            assert int(torch.linalg.matrix_rank(part)) <= limit


def test_the_construction_of_theorem_3_attends_to_itself() -> None:
    sigma = torch.linspace(1, 0.5, 5, dtype=torch.float64)
    for tokens in (5, 20, 500):
        one = bounds.theorem3_construction(sigma, tokens)
        scores = (one.w_q @ one.u).mT @ (one.w_k @ one.u) / 5**0.5
        soft = torch.softmax(scores, dim=0)
        assert float(soft.diagonal()[:5].min()) >= 0.5
        assert float((soft[:5, :5] - torch.diag(soft.diagonal()[:5])).max()) <= 1 / 20
    printed = bounds.theorem3_construction(sigma, 500, as_printed=True)
    scores = (printed.w_q @ printed.u).mT @ (printed.w_k @ printed.u) / 5**0.5
    assert float(torch.softmax(scores, dim=0).diagonal()[:5].min()) < 0.05


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 5), st.sampled_from([1, 2, 3]), st.floats(0.1, 30))
def test_truncated_attention_stays_within_theorem_5(seed: int, rank: int, heads: int, size: float) -> None:
    xi, (q, k, v) = size * normal(6, 9, seed=seed), (normal(6, 6, seed=seed + s) for s in (1, 2, 3))
    left, sigma, _ = torch.linalg.svd(xi)
    basis = left[:, :rank]
    cut = [bounds.projected(w, basis) for w in (q, k, v)]
    error = torch.linalg.matrix_norm(
        bounds.multi_head_attention(xi, q, k, v, heads) - bounds.multi_head_attention(xi, *cut, heads)
    )
    away = float((xi - basis @ basis.mT @ xi).norm(dim=0).max())
    facts = {
        "scores": bounds.score_norm(q, k, heads),
        "values": bounds.value_norm(v, heads),
        "radius": float(xi.norm(dim=0).max()),
    }
    assert away <= float(sigma[rank]) * (1 + 1e-12)
    assert float(error) <= bounds.theorem5_upper(away, tokens=9, **facts)
    assert float(error) <= bounds.theorem5_distinct(sigma, rank, tokens=9, **facts)


def test_the_printed_theorem_5_misses_the_length() -> None:
    # one token L times, beyond the leading subspace: every column of the output has the same error
    xi = torch.diag(torch.tensor([1.0, 0.5], dtype=torch.float64))
    basis, eye = torch.eye(2, 1, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    for tokens in (4, 400):
        u = xi[:, 1:].repeat(1, tokens)
        w_v = 2**0.5 * eye
        cut = [bounds.projected(w, basis) for w in (eye, eye, w_v)]
        error = float(torch.linalg.matrix_norm(bounds.attention(u, eye, eye, w_v) - bounds.attention(u, *cut)))
        assert error == pytest.approx((2 * tokens) ** 0.5 * 0.5)
        assert (error > bounds.theorem3_printed(0.5, d_model=2, bound=1.0)) == (tokens > 9)
        facts = {"scores": bounds.score_norm(eye, eye, 1), "values": bounds.value_norm(w_v, 1), "radius": 1.0}
        assert error <= bounds.theorem5_upper(0.5, tokens=tokens, **facts)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda s: bounds.theorem3_construction(s.flip(0), 8), "sort the singular values"),
        (lambda s: bounds.theorem3_construction(s, 3), "L ≥ d"),
        (lambda s: bounds.theorem6_construction(s, 8, 4), "at least 2"),
        (lambda s: bounds.theorem6_sketches(s, 8, 2, 2), "0 < r < d_h"),
        (lambda s: bounds.theorem4_construction(s, 8, 3), "d_h = d/h"),
    ],
)
def test_bad_input(make: object, words: str) -> None:
    assert callable(make)
    with pytest.raises(OptionError, match=words):
        make(torch.tensor([1.0, 0.5, 0.25, 0.125], dtype=torch.float64))


def test_hypotheses_that_are_not_met_are_named_with_numbers() -> None:
    assert bounds.theorem4_unmet(1.0, scores=1.0, values=1.0, heads=1, depth=300.0) == ()
    wrong = bounds.theorem4_unmet(2.0, scores=1.0, values=3.1, heads=4, depth=4.0)
    assert len(wrong) == 3
    assert "√D = 2 < 2e²h = 59.1" in wrong[0]
    assert "= 4 > 1" in wrong[1]
    assert "max_i ‖W_V^(i)‖ = 3.1 > 1" in wrong[2]
