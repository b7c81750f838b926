"""Two matrices of one head at a time: queries with keys, values with outputs, to heads of another width.

T5's head h scores x_qᵀ A x_k with A = W_qᵀ W_k and writes B z with B = W_o W_v, z the attention-weighted mean of its
inputs. Neither product changes when a head's inner coordinates do, so a rank-r approximation of A *is* a head whose
queries and keys have width r, and one of B a head whose values have width r.

**Queries and keys.** Minimise E (x_qᵀ(A − Ã)x_k)² = ‖C_q^{1/2}(A − Ã)C_k^{1/2}‖_F², the mean squared error of the
scores over independent queries and keys. With roots R_q of the second moment of the queries, R_qᵀR_q = W_q C_q W_qᵀ,
and R_k likewise, the matrix to be approximated is Q_q (R_q R_kᵀ) Q_kᵀ with orthonormal columns in Q_q, Q_k. The SVD of
the small core R_q R_kᵀ = U Σ Vᵀ (d_head × d_head) therefore gives the optimum; its heads are

    W̃_q = Σ_r^{-1/2} V_rᵀ R_k W_q,    W̃_k = Σ_r^{-1/2} U_rᵀ R_q W_k.

Only second moments of the head's own queries and keys enter, which follow from those of the layer's inputs, and nothing
is inverted but the singular values that are kept. Adding a constant to all scores of a query leaves its softmax as it
is, so C_k may be the covariance of the keys *within* a sequence: what all keys of a sequence share costs nothing.

**Values and outputs.** Minimise E‖(B − B̃)z‖² = ‖(B − B̃)C_z^{1/2}‖_F². Again only R_zᵀR_z = W_v C_z W_vᵀ = E[a aᵀ] is
needed, a = W_v z being what the head hands to its output projection: the true attention-weighted mean is measured by
looking at the input of ``o``. R_oᵀR_o = W_oᵀW_o counts every direction of the residual stream alike; where the
output-gradient moment was measured, the second moment of the gradients of the model's answers, it takes its place. With
W_o = Q_o R_o and R_o R_zᵀ = U Σ Vᵀ,

    W̃_v = Σ_r^{-1/2} U_rᵀ R_o W_v,    W̃_o = W_o R_zᵀ V_r Σ_r^{-1/2}.

At r = d_head all four reproduce the products A and B exactly wherever the moments have full rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.compress.methods import Decomposition
from rankscope.numerics import symmetric_root

RIDGE = 1e-6
"""Share of the mean eigenvalue that is added to all, so that no direction that calibration missed is free."""
NOISE = 1e-3
"""Moments of a head are those of a wide layer, seen through it: where it looks away from what is loud there, rounding
makes a larger share of them negative."""
GRADIENT_RIDGE = 1e-3
"""`RIDGE` of an output-gradient moment, which is known from some dozens of series alone."""


@dataclass(frozen=True)
class Inner:
    """The identity between the two matrices of a head, left·right, as a sum of terms that can be cut anywhere.

    Attributes:
        sigma: worth of every term, descending.
        left: (d_head, k).
        right: (k, d_head).
    """

    sigma: Float[Tensor, " k"]
    left: Float[Tensor, "d_head k"]
    right: Float[Tensor, "k d_head"]

    def between(self, first: Float[Tensor, "m d_head"], second: Float[Tensor, "d_head n"]) -> Decomposition:
        """The terms of first·second."""
        return Decomposition(self.sigma, first.double() @ self.left, self.right @ second.double())


def inner_qk(
    queries: Float[Tensor, "d_head d_head"], keys: Float[Tensor, "d_head d_head"], ridge: float = RIDGE
) -> Inner:
    """Between W_qᵀ and W_k of one head; ``sigma`` are root mean squares of the scores that each term contributes.

    Args:
        queries: second moment of the head's queries, W_q C_q W_qᵀ.
        keys: second moment, or covariance within sequences, of the head's keys.
        ridge: regularisation of both moments.
    """
    return _coupled(_root(queries, ridge), _root(keys, ridge))


def inner_vo(
    w_o: Float[Tensor, "d_model d_head"], attended: Float[Tensor, "d_head d_head"], ridge: float = RIDGE
) -> Inner:
    """Between W_o and W_v of one head; ``sigma`` are root mean squares of the outputs that each term contributes.

    Args:
        w_o: columns of W_O that belong to the head.
        attended: second moment of the head's slice of the input of W_O.
        ridge: regularisation of the moment.
    """
    out = w_o.double()
    return _coupled(_root(out.mT @ out, 0.0), _root(attended, ridge))


def inner_gradients(
    gradients: Float[Tensor, "d_head d_head"], attended: Float[Tensor, "d_head d_head"], ridge: float = RIDGE
) -> Inner:
    """`inner_vo` where the output-gradient moment of the head's slice was measured, in the place of W_oᵀW_o."""
    return _coupled(_root(gradients, GRADIENT_RIDGE), _root(attended, ridge))


def _coupled(r_left: Float[Tensor, "d d"], r_right: Float[Tensor, "d d"]) -> Inner:
    """Decompose the identity in the norm that the two roots give to what is left and right of it."""
    u, sigma, vh = torch.linalg.svd(r_left @ r_right.mT)
    kept = sigma > torch.finfo(sigma.dtype).eps * len(sigma) * sigma[0]
    inverse = torch.where(kept, sigma, torch.ones_like(sigma)).rsqrt() * kept
    return Inner(
        torch.where(kept, sigma, torch.zeros_like(sigma)),
        (r_right.mT @ vh.mT) * inverse,
        inverse[:, None] * (u.mT @ r_left),
    )


def _root(moment: Float[Tensor, "d d"], ridge: float) -> Float[Tensor, "d d"]:
    """R with Rᵀ R = moment (+ ridge)."""
    return symmetric_root(moment, ridge, NOISE)[0].mT
