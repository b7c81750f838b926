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

**Biases.** Checkpoints keep theirs as they are. Where a cut is given the biases of its matrices, they take up what it
changes on average; of a single matrix see `MatrixCut`. Queries are W_q x + b_q, so A = [W_q b_q]ᵀ W_k is what is cut. A
key's bias adds the same number q·b_k to all scores of a query, which softmax does not see: it becomes zero. Attention
weights of a query sum to 1, so a value's bias adds W_o b_v to every output; it goes into the output's bias, as does
what a cut takes from the mean of the outputs, and the moment is the covariance of the attended values. The output's
bias is shared by all heads: each adds what its cut changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.compress.calibration.moments import InputMoments, centred
from rankscope.compress.methods import Decomposition, Matrices
from rankscope.compress.plan import SitePlan, Spectrum
from rankscope.compress.taps import PairTap, Tap
from rankscope.families import HeadWidth, Layout, Site
from rankscope.numerics import symmetric_root

RIDGE = 1e-6
"""Share of the mean eigenvalue that is added to all, so that no direction that calibration missed is free."""
NOISE = 1e-3
"""Moments of a head are those of a wide layer, seen through it: where it looks away from what is loud there, rounding
makes a larger share of them negative."""
GRADIENT_RIDGE = 1e-3
"""`RIDGE` of an output-gradient moment, which is known from some dozens of series alone."""


@dataclass(frozen=True)
class PairCut:
    """Queries with keys, or values with outputs, of every head of one attention.

    Attributes:
        pair: ``qk`` or ``vo``.
        first: site of q or v, whose rows are the heads'.
        second: site of k, whose rows are, or of o, whose columns are.
        widths: that all heads of the attention have now.
        moments: of what queries and what keys are made of, or of what enters o.
        cached: tokens that the attention caches.
        gradients: output-gradient moment of every head's slice of the input of o, where that was measured.
        layer_biases: of both layers, where they are to take up what is cut.
    """

    pair: Literal["qk", "vo"]
    first: Site
    second: Site
    widths: HeadWidth
    moments: tuple[InputMoments, ...] = field(repr=False)
    cached: int = 0
    gradients: tuple[Float[Tensor, "_ _"], ...] | None = field(default=None, repr=False)
    layer_biases: tuple[Float[Tensor, " d"], Float[Tensor, " d"]] | None = field(default=None, repr=False)

    @property
    def sites(self) -> tuple[Site, ...]:
        """Both."""
        return self.first, self.second

    @property
    def module(self) -> str:
        """Name of the attention."""
        return self.first.block

    @property
    def heads(self) -> tuple[int, ...]:
        """Widths that the heads of the pair have now."""
        return self.widths.of("q" if self.pair == "qk" else "v")

    def spectra(self, matrices: Matrices, terms: Sequence[Decomposition] | None = None) -> list[Spectrum]:
        """One per head."""
        first, second = matrices[self.first], matrices[self.second]
        shape = (second.shape[0], first.shape[1]) if self.pair == "vo" else (first.shape[1], second.shape[1])
        return [
            Spectrum(
                self.module,
                shape,
                inner.sigma,
                stored_rank=width,
                layout="head-width",
                cached=self.cached,
                layer=self.first.layer or 0,
                rows=2 if self.pair == "qk" else 1,
                pair=self.pair,
                head=head,
            )
            for head, (inner, width) in enumerate(zip(terms or self.terms(matrices), self.heads, strict=True))
        ]

    def tap(self, terms: Sequence[Decomposition]) -> Tap:
        """Before the softmax, where queries leave; or where the attended values enter o."""
        qk = self.pair == "qk"
        return PairTap((self.first if qk else self.second).module, self, terms if qk else ())

    def layouts(self, plans: Sequence[SitePlan], now: Mapping[str, Layout]) -> dict[str, Layout]:
        """Head widths, those of the other pair among them."""
        known = now.get(self.module, self.widths)
        assert isinstance(known, HeadWidth)
        ranks = tuple(plan.rank for plan in plans)
        return {self.module: replace(known, qk=ranks) if self.pair == "qk" else replace(known, vo=ranks)}

    def shapes(self, plans: Sequence[SitePlan]) -> dict[str, tuple[int, ...]]:
        """Names and shapes of both matrices."""
        (rows, columns), width = plans[0].spectrum.shape, sum(plan.rank for plan in plans)
        if self.pair == "qk":
            return {self.first.name: (width, rows), self.second.name: (width, columns)}
        return {self.first.name: (width, columns), self.second.name: (rows, width)}

    def tensors(self, matrices: Matrices, plans: Sequence[SitePlan]) -> dict[str, Tensor]:
        """The narrower heads side by side, in at least float32; those that are kept are kept bit for bit."""
        first, second = zip(*self._narrowed(matrices, plans), strict=True)
        columns = matrices[self.first].shape[1]
        return {self.first.name: torch.cat(first)[:, :columns], self.second.name: torch.cat(second, dim=self._axis)}

    def renamed(self) -> Mapping[str, str]:
        """None."""
        return {}

    def stand_ins(self, matrices: Matrices, plans: Sequence[SitePlan]) -> dict[Site, Tensor]:
        """Narrower heads, filled up with zeros to the width that they have now: neither scores nor outputs change."""
        parts = zip(self._narrowed(matrices, plans), self.heads, strict=True)
        first, second = zip(
            *((_filled(one, width, 0), _filled(two, width, self._axis)) for (one, two), width in parts), strict=True
        )
        columns = matrices[self.first].shape[1]
        return {self.first: torch.cat(first)[:, :columns], self.second: torch.cat(second, dim=self._axis)}

    def biases(self, matrices: Matrices, plans: Sequence[SitePlan]) -> dict[Site, Tensor]:
        """Biases beside the `stand_ins` that compensate their mean error, where there are some."""
        if self.layer_biases is None:
            return {}
        first, second = (bias.double() for bias in self.layer_biases)
        changed = torch.tensor([plan.changed for plan in plans]).repeat_interleave(torch.tensor(self.heads))
        if self.pair == "qk":
            parts = zip(self._narrowed(matrices, plans), self.heads, strict=True)
            queries = torch.cat([_filled(left, width, 0)[:, -1] for (left, _), width in parts])
            return {self.first: queries, self.second: second.masked_fill(changed, 0.0)}
        means = self.moments[0].mean.split(self.heads)
        heads = zip(plans, self._slices(matrices), self.terms(matrices), first.split(self.heads), means, strict=True)
        for plan, (_, w_o), inner, b_v, mean in heads:
            if plan.changed:
                # outputs were W_o a with a = W_v z + b_v, and are W̃_o W̃_v z: the same on average
                kept = inner.up[:, : plan.rank] @ (inner.down[: plan.rank] @ (mean - b_v))
                second = second + w_o.double() @ (mean - kept)
        return {self.first: first.masked_fill(changed, 0.0), self.second: second}

    def shortage(self, plans: Sequence[SitePlan]) -> tuple[int, int] | None:
        """Positions and the widest head that is cut, where there are fewer positions."""
        tokens, widest = min(one.tokens for one in self.moments), max(self.heads)
        return (tokens, widest) if any(plan.changed for plan in plans) and tokens < widest else None

    def terms(self, matrices: Matrices) -> list[Decomposition]:
        """Return the terms between the two matrices of every head."""
        if self.gradients is not None:
            return [inner_gradients(*each) for each in zip(self.gradients, self.attended(), strict=True)]
        slices = [(left.double(), right.double()) for left, right in self._slices(matrices)]
        if self.pair == "vo":
            return [inner_vo(w_o, each) for (_, w_o), each in zip(slices, self.attended(), strict=True)]
        biases = [None] * len(slices) if self.layer_biases is None else self.layer_biases[0].double().split(self.heads)
        queries, keys = self.moments
        second, mean, within = queries.second, queries.mean, keys.within
        return [
            inner_qk(_queries(left, second, mean, bias), right @ within @ right.mT)
            for (left, right), bias in zip(slices, biases, strict=True)
        ]

    def attended(self) -> list[Float[Tensor, "d_head d_head"]]:
        """Second moment of every head's slice of the input of o; without its mean where a bias can stand for that."""
        moments = self.moments[0] if self.layer_biases is None else centred(self.moments[0])
        rows = moments.second.split(self.heads)
        return [one.split(self.heads, dim=1)[head] for head, one in enumerate(rows)]

    @property
    def _axis(self) -> int:
        """Axis of the second matrix that splits into heads."""
        return 0 if self.pair == "qk" else 1

    def _slices(self, matrices: Matrices) -> list[tuple[Tensor, Tensor]]:
        first, second = matrices[self.first], matrices[self.second]
        assert isinstance(first, Tensor)
        assert isinstance(second, Tensor)
        return list(zip(first.split(self.heads), second.split(self.heads, dim=self._axis), strict=True))

    def _narrowed(self, matrices: Matrices, plans: Sequence[SitePlan]) -> list[tuple[Tensor, Tensor]]:
        """Slices of both matrices as every head's plan leaves them; queries end in their bias, if it counts."""
        slices = [(left.double(), right.double()) for left, right in self._slices(matrices)]
        if self.pair == "qk" and self.layer_biases is not None:
            columns = self.layer_biases[0].double()[:, None].split(self.heads)
            slices = [(torch.cat([left, b], dim=1), right) for (left, right), b in zip(slices, columns, strict=True)]
        for head, (plan, inner) in enumerate(zip(plans, self.terms(matrices), strict=True)):
            left, right = slices[head]
            if plan.changed and self.pair == "qk":
                factors = inner.between(left.mT, right).at(plan.rank)
                slices[head] = factors.up.mT, factors.down
            elif plan.changed:
                factors = inner.between(right, left).at(plan.rank)
                slices[head] = factors.down, factors.up
        return slices


def inner_qk(
    queries: Float[Tensor, "d_head d_head"], keys: Float[Tensor, "d_head d_head"], ridge: float = RIDGE
) -> Decomposition:
    """Between W_qᵀ and W_k of one head; ``sigma`` are root mean squares of the scores that each term contributes.

    Args:
        queries: second moment of the head's queries, W_q C_q W_qᵀ.
        keys: second moment, or covariance within sequences, of the head's keys.
        ridge: regularisation of both moments.
    """
    return _coupled(_root(queries, ridge), _root(keys, ridge))


def inner_vo(
    w_o: Float[Tensor, "d_model d_head"], attended: Float[Tensor, "d_head d_head"], ridge: float = RIDGE
) -> Decomposition:
    """Between W_o and W_v of one head; ``sigma`` are root mean squares of the outputs that each term contributes.

    Args:
        w_o: columns of W_O that belong to the head.
        attended: second moment of the head's slice of the input of W_O.
        ridge: regularisation of the moment.
    """
    out = w_o.double()
    return _coupled(_root(out.mT @ out, 0.0), _root(attended, ridge))


def inner_gradients(
    gradients: Float[Tensor, "d_head d_head"], attended: Float[Tensor, "d_head d_head"]
) -> Decomposition:
    """`inner_vo` where the output-gradient moment of the head's slice was measured, in the place of W_oᵀW_o."""
    return _coupled(_root(gradients, GRADIENT_RIDGE), _root(attended, RIDGE))


def _coupled(r_left: Float[Tensor, "d d"], r_right: Float[Tensor, "d d"]) -> Decomposition:
    """Decompose the identity in the norm given by the left and right roots."""
    u, sigma, vh = torch.linalg.svd(r_left @ r_right.mT)
    kept = sigma > torch.finfo(sigma.dtype).eps * len(sigma) * sigma[0]
    inverse = torch.where(kept, sigma, torch.ones_like(sigma)).rsqrt() * kept
    return Decomposition(
        torch.where(kept, sigma, torch.zeros_like(sigma)),
        (r_right.mT @ vh.mT) * inverse,
        inverse[:, None] * (u.mT @ r_left),
    )


def _root(moment: Float[Tensor, "d d"], ridge: float) -> Float[Tensor, "d d"]:
    """R with Rᵀ R = moment (+ ridge)."""
    return symmetric_root(moment, ridge, NOISE)[0].mT


def _queries(
    w: Float[Tensor, "d_head d_in"],
    second: Float[Tensor, "d_in d_in"],
    mean: Float[Tensor, " d_in"],
    bias: Float[Tensor, " d_head"] | None,
) -> Float[Tensor, "d_head d_head"]:
    """Second moment of a head's queries, by that of their inputs and the mean of those."""
    moment = w @ second @ w.mT
    if bias is None:
        return moment
    cross = torch.outer(w @ mean, bias)
    return moment + cross + cross.mT + torch.outer(bias, bias)


def _filled(part: Tensor, width: int, axis: int) -> Tensor:
    """Add zeros on one side until a head has its width."""
    missing = width - part.shape[axis]
    return nn.functional.pad(part, (0, missing) if axis else (0, 0, 0, missing))
