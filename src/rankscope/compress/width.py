"""Hidden units of one feed-forward block at a time, to a block of another width.

A block computes y = W_o h, h = φ(W_i x), or φ(W_g x) ∘ W_i x where it is gated. With C = E[h hᵀ] measured behind the
activation, what the units left, S, can still do is W̃_o = W_o C[:, S] C[S, S]⁻¹, the least-squares refit; rows of W_i
and W_g of the other units go. Units leave one by one, each where E‖W_o h − W̃_o h_S‖² grows least
(`rankscope.numerics.elimination`). The errors of successive eliminations are uncorrelated and add up, so W_o is a sum
of rank-1 terms, one a unit, that can be cut anywhere and that a probe can gate: their worth is in units of the loss.
Derivation: docs/theory/compression.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankscope.compress.calibration.moments import InputMoments
from rankscope.compress.methods import Decomposition, Matrices
from rankscope.compress.plan import SitePlan, Spectrum
from rankscope.compress.taps import MatrixTap, Tap, falling
from rankscope.errors import DataError
from rankscope.families import Layout, Site, Width
from rankscope.numerics.elimination import elimination_order, innovations

RIDGE = 1e-6
"""Share of the mean square of a unit that is added to all of them: C is positive definite then, and a unit that never
fires costs nothing."""
RIDGES = (1e-5, 1e-4, 1e-3, 1e-2)
"""Tried in turn where that is not enough: rounding is a share of the loudest direction."""


@dataclass(frozen=True)
class WidthCut:
    """The hidden units of one feed-forward block.

    Attributes:
        inner: sites whose rows are units: the input, and before it the gate where there is one.
        outer: site whose columns are.
        moments: of what enters ``outer``.
        biases: of the inner layers that have one, by tensor name.
    """

    inner: tuple[Site, ...]
    outer: Site
    moments: InputMoments = field(repr=False)
    biases: Mapping[str, Float[Tensor, " units"]] = field(default_factory=dict, repr=False)
    _orders: list[Int[Tensor, " units"]] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def sites(self) -> tuple[Site, ...]:
        """All of them, in the order of computation."""
        return (*self.inner, self.outer)

    @property
    def module(self) -> str:
        """Name of the block."""
        return self.outer.block

    def order(self, matrices: Matrices, second: Float[Tensor, "units units"]) -> Int[Tensor, " units"]:
        """Units by what they are worth; found once.

        Args:
            matrices: of the block.
            second: C, made positive definite.
        """
        if not self._orders:
            self._orders.append(elimination_order(second, _dense(matrices[self.outer])))
        return self._orders[0]

    def decompose(self, matrices: Matrices) -> Decomposition:
        """Terms of the outer matrix; the first r of them read the first r units only."""
        second, w = positive(self.moments.second), _dense(matrices[self.outer]).double()
        order = self.order(matrices, second)
        lower, power = innovations(second, order)
        up = w[:, order] @ lower
        down = torch.zeros_like(lower)
        down[:, order] = torch.linalg.solve_triangular(
            lower, torch.eye(len(lower), dtype=lower.dtype), upper=False, unitriangular=True
        )
        return Decomposition(falling(up.square().sum(dim=0) * power).sqrt(), up, down)

    def terms(self, matrices: Matrices) -> list[Decomposition]:
        """The one decomposition."""
        return [self.decompose(matrices)]

    def spectra(self, matrices: Matrices, terms: Sequence[Decomposition] | None = None) -> list[Spectrum]:
        """One, with a rank for every unit; ``sigma`` are root mean squares of the outputs that go with them."""
        (found,) = terms or self.terms(matrices)
        d_out, units = _dense(matrices[self.outer]).shape
        d_in = _dense(matrices[self.inner[0]]).shape[1]
        per_unit = d_out + len(self.inner) * d_in + len(self.biases)
        return [
            Spectrum(
                self.module,
                (d_out, d_in),
                found.sigma,
                stored_rank=units,
                layout="width",
                layer=self.outer.layer or 0,
                rows=len(self.inner),
                floats=len(self.biases),
                per_rank=per_unit,
            )
        ]

    def tap(self, terms: Sequence[Decomposition]) -> Tap:
        """At the output of the block."""
        return MatrixTap(self.outer.module, terms[0])

    def layouts(self, plans: Sequence[SitePlan], now: Mapping[str, Layout]) -> dict[str, Layout]:
        """The width of the block."""
        return {self.module: Width(plans[0].rank)}

    def shapes(self, plans: Sequence[SitePlan]) -> dict[str, tuple[int, ...]]:
        """Names and shapes of its matrices and biases."""
        (d_out, d_in), units = plans[0].spectrum.shape, plans[0].rank
        inner: dict[str, tuple[int, ...]] = {site.name: (units, d_in) for site in self.inner}
        return {**inner, **dict.fromkeys(self.biases, (units,)), self.outer.name: (d_out, units)}

    def tensors(self, matrices: Matrices, plans: Sequence[SitePlan]) -> dict[str, Tensor]:
        """Rows of the units that are left, as they are, and their columns refitted, in float64."""
        second, w, units = positive(self.moments.second), _dense(matrices[self.outer]), plans[0].rank
        order = self.order(matrices, second)
        kept, places = order[:units].sort()
        inner = {site.name: _dense(matrices[site])[kept] for site in self.inner}
        biases = {name: bias[kept] for name, bias in self.biases.items()}
        return {
            **inner,
            **biases,
            self.outer.name: refit(w, second, order, units)[:, places],
        }

    def renamed(self) -> Mapping[str, str]:
        """None."""
        return {}

    def shortage(self, plans: Sequence[SitePlan]) -> tuple[int, int] | None:
        """Positions that calibration showed and the units that they are to tell apart, where they are fewer."""
        tokens, units = self.moments.tokens, plans[0].spectrum.rank_now
        return (tokens, units) if plans[0].changed and tokens < units else None


def refit(
    w: Float[Tensor, "d_out n"], second: Float[Tensor, "n n"], order: Int[Tensor, " n"], units: int
) -> Float[Tensor, "d_out units"]:
    """W̃_o = W_o C[:, S] C[S, S]⁻¹ in float64, S the first ``units`` of ``order``."""
    lower, _ = innovations(second, order)
    part = w.double()[:, order] @ lower[:, :units]
    return torch.linalg.solve_triangular(lower[:units, :units], part, upper=False, left=False, unitriangular=True)


def positive(second: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """Add `RIDGE` of the mean square to the diagonal of a copy, and more where rounding of the sums asks for it.

    Raises:
        DataError: a second moment has a negative eigenvalue that rounding does not explain.
    """
    mean = float(second.diagonal().mean()) or 1.0  # of a block that never fires
    for ridge in (RIDGE, *RIDGES):
        made = second.clone()
        made.diagonal().add_(ridge * mean)
        if not int(torch.linalg.cholesky_ex(made).info):
            return made
    raise DataError("a second moment of hidden units has a negative eigenvalue, which none has: calibrate again.")


def _dense(matrix: object) -> Tensor:
    assert isinstance(matrix, Tensor), "blocks whose matrices are factored are not cut by width"
    return matrix
