"""Cuts, of one decomposition each: a matrix; queries with keys, or values with outputs, of an attention by heads.

**Biases.** Checkpoints keep theirs as they are. Where a cut is given the biases of its matrices, they take up what it
changes on average. A linear map computes W x + b; cut to W̃ x + b̃ with b̃ = b + (W − W̃) x̄ its error has mean zero, so
only the covariance of the inputs counts, and a direction that is the same for all tokens costs no rank. A plain SVD
knows no inputs: its bias stays.

Queries are W_q x + b_q, so A = [W_q b_q]ᵀ W_k is what is cut. A key's bias adds the same number q·b_k to all scores of
a query, which softmax does not see: it becomes zero. Attention weights of a query sum to 1, so a value's bias adds
W_o b_v to every output; it goes into the output's bias, as does what a cut takes from the mean of the outputs, and the
moment is the covariance of the attended values. The output's bias is shared by all heads: each adds what its cut
changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.compress.calibration import InputMoments
from rankscope.compress.calibration.moments import centred
from rankscope.compress.joint import Inner, inner_gradients, inner_qk, inner_vo
from rankscope.compress.methods import METHODS, Decomposition, truncated_svd
from rankscope.compress.plan import SitePlan, Spectrum
from rankscope.families import Factored, HeadWidth, Layout, Site
from rankscope.numerics import FactoredMatrix, singular_values

Matrices = Mapping[Site, Tensor | FactoredMatrix]


@dataclass(frozen=True)
class MatrixCut:
    """One matrix W ≈ up·down.

    Attributes:
        site: where it is.
        method: a key of `rankscope.compress.methods.METHODS`.
        moments: of its inputs, None for a method that needs none.
        stored: layout and number of stored numbers where it is factored already.
        eps: smallest ε that will be asked for, where one is known: the cheapest way to singular values depends on it.
        seed: of a random method.
        bias: of the layer, where it is to take up what is cut.
    """

    site: Site
    method: str
    moments: InputMoments | None = field(default=None, repr=False)
    stored: tuple[int, int] | None = None
    eps: float | None = None
    seed: int = 0
    bias: Float[Tensor, " d_out"] | None = field(default=None, repr=False)

    @property
    def sites(self) -> tuple[Site, ...]:
        """The one site."""
        return (self.site,)

    @property
    def module(self) -> str:
        """Name of the layer."""
        return self.site.module

    def decompose(self, matrix: Tensor | FactoredMatrix) -> Decomposition:
        """All terms of the matrix, by the method."""
        moments = self.moments if self.bias is None or self.moments is None else centred(self.moments)
        return METHODS[self.method](matrix, moments, self.seed)

    def spectra(self, matrices: Matrices) -> list[Spectrum]:
        """Singular values, in the norm of the method."""
        matrix = matrices[self.site]
        if self.method != "svd":
            sigma = self.decompose(matrix).sigma
        elif isinstance(matrix, FactoredMatrix):
            sigma = matrix.singular_values()
        else:
            sigma = singular_values(matrix, smallest_eps=self.eps)
        rank, numbers = self.stored or (None, None)
        layer, heads = self.site.layer or 0, self.site.heads or 1
        return [Spectrum(self.site.name, _sizes(matrix), sigma, rank, numbers, layer=layer, heads=heads)]

    def layouts(self, plans: Sequence[SitePlan], now: Mapping[str, Layout]) -> dict[str, Layout]:
        """Factored at the plan's rank."""
        return {self.module: Factored(plans[0].rank)}

    def shapes(self, plans: Sequence[SitePlan]) -> dict[str, tuple[int, int]]:
        """Names and shapes of both factors."""
        (rows, columns), rank = plans[0].spectrum.shape, plans[0].rank
        return {f"{self.module}.down.weight": (rank, columns), f"{self.module}.up.weight": (rows, rank)}

    def tensors(self, matrices: Matrices, plans: Sequence[SitePlan]) -> dict[str, Tensor]:
        """Both factors, in at least float32."""
        factors = self._factors(matrices, plans[0].rank)
        return {f"{self.module}.down.weight": factors.down, f"{self.module}.up.weight": factors.up}

    def stand_ins(self, matrices: Matrices, plans: Sequence[SitePlan]) -> dict[Site, Tensor]:
        """The product of both factors."""
        return {self.site: self._factors(matrices, plans[0].rank).dense()}

    def biases(self, matrices: Matrices, plans: Sequence[SitePlan]) -> dict[Site, Tensor]:
        """The bias that goes with the factors, where there is one to take up what they leave out."""
        matrix = matrices[self.site]
        if self.bias is None or self.moments is None or not isinstance(matrix, Tensor):
            return {}
        left = self._factors(matrices, plans[0].rank).dense()
        mean = self.moments.total / self.moments.tokens
        return {self.site: self.bias.double() + (matrix.double() - left.double()) @ mean}

    def shortage(self, plans: Sequence[SitePlan]) -> tuple[int, int] | None:
        """Positions that calibration showed and the ranks that they are to tell apart, where they are fewer."""
        ranks = min(plans[0].spectrum.shape)
        if self.moments is None or not plans[0].changed or self.moments.tokens >= ranks:
            return None
        return self.moments.tokens, ranks

    def _factors(self, matrices: Matrices, rank: int) -> FactoredMatrix:
        matrix = matrices[self.site]
        return truncated_svd(matrix, rank, _wide(matrix)) if self.method == "svd" else self.decompose(matrix).at(rank)


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
        return self.first.module.rpartition(".")[0]

    @property
    def heads(self) -> tuple[int, ...]:
        """Widths that the heads of the pair have now."""
        return self.widths.of("q" if self.pair == "qk" else "v")

    def spectra(self, matrices: Matrices) -> list[Spectrum]:
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
            for head, (inner, width) in enumerate(zip(self.inner(matrices), self.heads, strict=True))
        ]

    def layouts(self, plans: Sequence[SitePlan], now: Mapping[str, Layout]) -> dict[str, Layout]:
        """Head widths, those of the other pair among them."""
        known = now.get(self.module, self.widths)
        assert isinstance(known, HeadWidth)
        ranks = tuple(plan.rank for plan in plans)
        return {self.module: replace(known, qk=ranks) if self.pair == "qk" else replace(known, vo=ranks)}

    def shapes(self, plans: Sequence[SitePlan]) -> dict[str, tuple[int, int]]:
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

    def stand_ins(self, matrices: Matrices, plans: Sequence[SitePlan]) -> dict[Site, Tensor]:
        """Narrower heads, filled up with zeros to the width that they have now: neither scores nor outputs change."""
        parts = zip(self._narrowed(matrices, plans), self.heads, strict=True)
        first, second = zip(
            *((_filled(one, width, 0), _filled(two, width, self._axis)) for (one, two), width in parts), strict=True
        )
        columns = matrices[self.first].shape[1]
        return {self.first: torch.cat(first)[:, :columns], self.second: torch.cat(second, dim=self._axis)}

    def biases(self, matrices: Matrices, plans: Sequence[SitePlan]) -> dict[Site, Tensor]:
        """The biases that go with the `stand_ins`, where there are some to take up what these leave out."""
        if self.layer_biases is None:
            return {}
        first, second = (bias.double() for bias in self.layer_biases)
        changed = torch.tensor([plan.changed for plan in plans]).repeat_interleave(torch.tensor(self.heads))
        if self.pair == "qk":
            parts = zip(self._narrowed(matrices, plans), self.heads, strict=True)
            queries = torch.cat([_filled(left, width, 0)[:, -1] for (left, _), width in parts])
            return {self.first: queries, self.second: second.masked_fill(changed, 0.0)}
        means = (self.moments[0].total / self.moments[0].tokens).split(self.heads)
        heads = zip(plans, self._slices(matrices), self.inner(matrices), first.split(self.heads), means, strict=True)
        for plan, (_, w_o), inner, b_v, mean in heads:
            if plan.changed:
                # outputs were W_o a with a = W_v z + b_v, and are W̃_o W̃_v z: the same on average
                kept = inner.left[:, : plan.rank] @ (inner.right[: plan.rank] @ (mean - b_v))
                second = second + w_o.double() @ (mean - kept)
        return {self.first: first.masked_fill(changed, 0.0), self.second: second}

    def shortage(self, plans: Sequence[SitePlan]) -> tuple[int, int] | None:
        """Positions and the widest head that is cut, where there are fewer positions."""
        tokens, widest = min(one.tokens for one in self.moments), max(self.heads)
        return (tokens, widest) if any(plan.changed for plan in plans) and tokens < widest else None

    def inner(self, matrices: Matrices) -> list[Inner]:
        """Return the terms between the two matrices of every head."""
        if self.gradients is not None:
            return [inner_gradients(each, self.attended(head)) for head, each in enumerate(self.gradients)]
        slices = [(left.double(), right.double()) for left, right in self._slices(matrices)]
        if self.pair == "vo":
            return [inner_vo(w_o, self.attended(head)) for head, (_, w_o) in enumerate(slices)]
        biases = [None] * len(slices) if self.layer_biases is None else self.layer_biases[0].double().split(self.heads)
        return [
            inner_qk(_queries(left, self.moments[0], bias), right @ self.moments[1].within @ right.mT)
            for (left, right), bias in zip(slices, biases, strict=True)
        ]

    def attended(self, head: int) -> Float[Tensor, "d_head d_head"]:
        """Second moment of a head's slice of the input of o; without its mean where a bias can stand for that."""
        moments = self.moments[0] if self.layer_biases is None else centred(self.moments[0])
        start = sum(self.heads[:head])
        part = slice(start, start + self.heads[head])
        return moments.second[part, part]

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
        for head, (plan, inner) in enumerate(zip(plans, self.inner(matrices), strict=True)):
            left, right = slices[head]
            if plan.changed and self.pair == "qk":
                factors = inner.between(left.mT, right).at(plan.rank)
                slices[head] = factors.up.mT, factors.down
            elif plan.changed:
                factors = inner.between(right, left).at(plan.rank)
                slices[head] = factors.down, factors.up
        return slices


Cut = MatrixCut | PairCut


def _queries(
    w: Float[Tensor, "d_head d_in"], inputs: InputMoments, bias: Float[Tensor, " d_head"] | None
) -> Float[Tensor, "d_head d_head"]:
    """Second moment of a head's queries."""
    moment = w @ inputs.second @ w.mT
    if bias is None:
        return moment
    cross = torch.outer(w @ (inputs.total / inputs.tokens), bias)
    return moment + cross + cross.mT + torch.outer(bias, bias)


def _filled(part: Tensor, width: int, axis: int) -> Tensor:
    """Add zeros on one side until a head has its width."""
    missing = width - part.shape[axis]
    return nn.functional.pad(part, (0, missing) if axis else (0, 0, 0, missing))


def _sizes(matrix: Tensor | FactoredMatrix) -> tuple[int, int]:
    rows, columns = matrix.shape
    return rows, columns


def _wide(matrix: Tensor | FactoredMatrix) -> torch.dtype:
    stored = matrix.dtype if isinstance(matrix, Tensor) else matrix.up.dtype
    return torch.float32 if stored.itemsize < 4 else stored
