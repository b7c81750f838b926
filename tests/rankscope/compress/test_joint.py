"""Whole heads: each truncation against the best that any narrower head can do in the stated norm."""

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.compress.calibration import moments_of
from rankscope.compress.joint import RIDGE, inner_qk, inner_vo
from rankscope.compress.methods import Decomposition
from rankscope.errors import DataError
from rankscope.numerics import symmetric_root

D_HEAD, D_MODEL, D_MEMORY = 4, 7, 6


def matrix(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def coloured(seed: int, d: int, rank: int | None = None) -> Tensor:
    rows = matrix(seed, rank or d, d) * 2.0 ** torch.arange(d, dtype=torch.float64)
    return rows.T @ rows


def joint_qk(w_q: Tensor, w_k: Tensor, queries: Tensor, keys: Tensor, ridge: float = RIDGE) -> Decomposition:
    """Scores A = W_qᵀ W_k of one head; ``up`` becomes its W_qᵀ, ``down`` its W_k."""
    return inner_qk(queries, keys, ridge).between(w_q.mT, w_k)


def joint_vo(w_v: Tensor, w_o: Tensor, attended: Tensor, ridge: float = RIDGE) -> Decomposition:
    """What one head writes, B = W_o W_v; ``up`` becomes its W_o, ``down`` its W_v."""
    return inner_vo(w_o, attended, ridge).between(w_o, w_v)


class Head:
    """Random weights of one head, the moments of what it reads, and its decompositions without a ridge."""

    def __init__(self, seed: int, d_head: int = D_HEAD, rank: int | None = None) -> None:
        self.q, self.k = matrix(seed, d_head, D_MODEL), matrix(seed + 1, d_head, D_MEMORY)
        self.v, self.o = matrix(seed + 2, d_head, D_MEMORY), matrix(seed + 3, D_MODEL, d_head)
        self.c_q, self.c_k = coloured(seed + 4, D_MODEL, rank), coloured(seed + 5, D_MEMORY, rank)
        self.left, self.right = symmetric_root(self.c_q)[0], symmetric_root(self.c_k)[0]

    def qk(self, ridge: float = 0.0) -> Decomposition:
        return joint_qk(self.q, self.k, self.q @ self.c_q @ self.q.T, self.k @ self.c_k @ self.k.T, ridge)

    def vo(self, ridge: float = 0.0) -> Decomposition:
        return joint_vo(self.v, self.o, self.v @ self.c_k @ self.v.T, ridge)

    def targets(self) -> dict[str, Tensor]:
        """What is approximated in the Frobenius norm: C_q^{1/2} A C_k^{1/2}, and B C_z^{1/2}."""
        return {"qk": self.left.T @ self.q.T @ self.k @ self.right, "vo": self.o @ self.v @ self.right}

    def error(self, pair: str, product: Tensor) -> float:
        """Root of E (x_qᵀ(A − Ã)x_k)², or of E‖(B − B̃)z‖²."""
        if pair == "qk":
            return float((self.left.T @ (self.q.T @ self.k - product) @ self.right).norm())
        return float(((self.o @ self.v - product) @ self.right).norm())

    def decompose(self, pair: str, ridge: float = 0.0) -> Decomposition:
        return self.qk(ridge) if pair == "qk" else self.vo(ridge)


PAIRS = pytest.mark.parametrize("pair", ["qk", "vo"])


@PAIRS
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), d_head=st.sampled_from([1, 3, 4, 9]), rank=st.sampled_from([None, 2]))
def test_every_truncation_is_the_closed_form_optimum(pair: str, seed: int, d_head: int, rank: int | None) -> None:
    """Eckart–Young on the whole (d_model × d_memory) problem, also where heads are wider than the model."""
    head = Head(seed, d_head, rank)
    best = torch.linalg.svdvals(head.targets()[pair])
    best = torch.cat([best, best.new_zeros(max(0, d_head - len(best)))])[:d_head]
    found = head.decompose(pair)
    scale = float(best[0])
    torch.testing.assert_close(found.sigma, best, rtol=1e-6, atol=1e-6 * scale)
    assert found.up.shape == (D_MODEL, d_head)
    assert found.down.shape == (d_head, D_MEMORY)
    for r in range(1, d_head + 1):
        cut = float(found.sigma[r:].square().sum()) ** 0.5
        assert head.error(pair, found.at(r).dense()) == pytest.approx(cut, rel=1e-6, abs=1e-6 * scale)


@PAIRS
def test_no_random_and_no_optimised_pair_of_heads_is_better(pair: str) -> None:
    head = Head(11)
    target = head.targets()[pair]
    for r in (1, 2, 3):
        best = head.error(pair, head.decompose(pair).at(r).dense())
        for seed in range(4):
            up = matrix(seed, target.shape[0], r)
            down = torch.linalg.lstsq(up, target).solution
            assert float((target - up @ down).norm()) > best  # any queries, with the best keys to them
            for _ in range(300):
                up = torch.linalg.lstsq(down.T, target.T).solution.T
                down = torch.linalg.lstsq(up, target).solution
            searched = float((target - up @ down).norm())
            assert best * (1 - 1e-9) <= searched <= best * (1 + 1e-3)


@PAIRS
def test_descent_on_the_heads_themselves_finds_nothing_better(pair: str) -> None:
    head = Head(21)
    start = head.decompose(pair).at(2)
    best = head.error(pair, start.dense()) ** 2
    size = start.up.numel()

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        both = torch.from_numpy(flat).requires_grad_()
        product = both[:size].reshape(start.up.shape) @ both[size:].reshape(start.down.shape)
        whole = head.q.T @ head.k if pair == "qk" else head.o @ head.v
        seen = (whole - product) @ head.right
        value = (head.left.T @ seen if pair == "qk" else seen).square().sum() / best
        value.backward()
        return float(value.detach()), both.grad.numpy()

    flat = torch.cat([start.up.flatten(), start.down.flatten()])
    assert float(np.abs(loss(flat.numpy())[1]).max()) < 1e-6
    moved = (flat + 0.1 * matrix(1, len(flat))).numpy()
    assert loss(moved)[0] > 1.5
    found = scipy.optimize.minimize(loss, moved, jac=True, method="L-BFGS-B", options={"maxiter": 500})
    assert found.fun == pytest.approx(1.0, rel=1e-3)
    assert found.fun > 1 - 1e-9


@PAIRS
@pytest.mark.parametrize("ridge", [0.0, 1e-6])
def test_full_width_reproduces_the_product(pair: str, ridge: float) -> None:
    for seed in range(5):
        head = Head(seed)
        whole = head.q.T @ head.k if pair == "qk" else head.o @ head.v
        torch.testing.assert_close(head.decompose(pair, ridge).at(D_HEAD).dense(), whole, rtol=1e-8, atol=1e-8)


@PAIRS
def test_directions_that_calibration_missed_are_not_free(pair: str) -> None:
    """With moments of rank 2 the ridge brings the other directions back, at the bottom of the spectrum."""
    head = Head(5, rank=2)
    bare, ridged = head.decompose(pair), head.decompose(pair, 1e-6)
    whole = head.q.T @ head.k if pair == "qk" else head.o @ head.v
    assert int((bare.sigma > 1e-6 * bare.sigma[0]).sum()) == 2
    assert bool((ridged.sigma > 0).all())
    assert float(ridged.sigma[2]) < 1e-2 * float(ridged.sigma[1])
    torch.testing.assert_close(ridged.at(D_HEAD).dense(), whole, rtol=1e-6, atol=1e-6)


def rows(seed: int, series: int = 5, tokens: int = 9) -> Tensor:
    return matrix(seed, series, tokens, D_MEMORY)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.sampled_from([1.0, 1e3]))
def test_what_all_keys_of_a_sequence_share_costs_nothing(seed: int, size: float) -> None:
    """Softmax does not see it, so neither moments within sequences nor the heads may."""
    x = rows(seed)
    moved = x + size * matrix(seed + 1, len(x), 1, D_MEMORY)
    plain, shifted = moments_of(x), moments_of(moved)
    assert plain is not None
    assert shifted is not None
    torch.testing.assert_close(shifted.within, plain.within, rtol=1e-9, atol=1e-12 * size**2)
    assert not torch.allclose(shifted.second, plain.second, rtol=1e-2)
    head = Head(seed)
    queries = head.q @ head.c_q @ head.q.T
    found = [joint_qk(head.q, head.k, queries, head.k @ m.within @ head.k.T) for m in (plain, shifted)]
    torch.testing.assert_close(found[1].sigma, found[0].sigma, rtol=1e-6, atol=1e-9 * float(found[0].sigma[0]))


def test_centred_keys_spend_no_rank_on_what_all_keys_share() -> None:
    """Mean squared error of the scores that softmax sees, over every query and key of one sequence."""
    head = Head(31)
    x, asked = rows(31, 1, 40) + 30 * matrix(32, 1, 1, D_MEMORY), matrix(33, 40, D_MODEL)
    moments = moments_of(x)
    assert moments is not None
    queries = head.q @ (asked.T @ asked / 40) @ head.q.T
    found = [joint_qk(head.q, head.k, queries, head.k @ c @ head.k.T) for c in (moments.within, moments.second)]
    for r in (1, 2, 3):
        errors = []
        for one in found:
            scores = asked @ (head.q.T @ head.k - one.at(r).dense()) @ x[0].T
            errors.append(float((scores - scores.mean(dim=1, keepdim=True)).square().mean()) ** 0.5)
        assert errors[0] == pytest.approx(float(found[0].sigma[r:].square().sum()) ** 0.5, rel=1e-5)
        assert errors[0] < errors[1] * (1 - 1e-3)


def test_heads_without_energy_become_zero_not_nan() -> None:
    """A decoder of one token: its keys differ in nothing, so its queries and keys are worth nothing."""
    head = Head(1)
    nothing = torch.zeros(D_HEAD, D_HEAD, dtype=torch.float64)
    found = joint_qk(head.q, head.k, head.q @ head.c_q @ head.q.T, nothing)
    assert not found.sigma.any()
    assert not found.at(1).dense().any()
    silent = joint_vo(head.v, torch.zeros_like(head.o), head.v @ head.c_k @ head.v.T)
    assert not silent.sigma.any()
    assert not silent.at(2).dense().any()


def test_rounding_of_float32_sums_is_forgiven_and_nonsense_is_not() -> None:
    head = Head(2)
    queries, keys = head.q @ head.c_q @ head.q.T, head.k @ head.c_k @ head.k.T
    least = torch.linalg.eigh(keys).eigenvectors[:, :1]
    noisy = keys - (float(least.T @ keys @ least) + 1e-5 * float(keys.trace())) * least @ least.T
    assert bool(torch.isfinite(joint_qk(head.q, head.k, queries, noisy).at(2).dense()).all())
    with pytest.raises(DataError, match="negative eigenvalue"):
        joint_qk(head.q, head.k, queries, -keys)
    with pytest.raises(DataError, match="NaN or Inf"):
        joint_vo(head.v, head.o, keys * torch.nan)
