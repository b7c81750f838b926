"""What is cut together: a single matrix, or the four matrices of an attention, head by head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.compress.calibration import InputMoments
from rankscope.compress.decomposition import Decomposition
from rankscope.compress.factorise import truncated_svd
from rankscope.compress.joint import Inner, inner_qk, inner_vo
from rankscope.compress.methods import METHODS
from rankscope.compress.plan import SitePlan, Spectrum
from rankscope.families import Factored, HeadWidth, Layout, Site
from rankscope.numerics import FactoredMatrix, singular_values

JOINT = "joint"
Matrices = Mapping[str, Tensor | FactoredMatrix]
"""Matrices by the module of their site."""


@runtime_checkable
class Group(Protocol):
    """Matrices that one decomposition concerns."""

    @property
    def sites(self) -> tuple[Site, ...]:
        """The sites whose matrices it reads."""
        ...

    def spectra(self, matrices: Matrices) -> list[Spectrum]:
        """What can be cut, and what each rank of it is worth."""
        ...

    def layouts(self, plans: Sequence[SitePlan]) -> dict[str, Layout]:
        """Layouts of the modules that the plans, one per spectrum, change."""
        ...

    def shapes(self, plans: Sequence[SitePlan]) -> dict[str, tuple[int, int]]:
        """Names and shapes of the tensors that replace those of the changed sites."""
        ...

    def tensors(self, matrices: Matrices, plans: Sequence[SitePlan]) -> dict[str, Tensor]:
        """These tensors, in at least float32."""
        ...

    def stand_ins(self, matrices: Matrices, plans: Sequence[SitePlan]) -> dict[str, Tensor]:
        """What the changed matrices become, in the shapes that they have now, by module."""
        ...

    def replaced(self, plans: Sequence[SitePlan]) -> tuple[Site, ...]:
        """The sites whose stored tensors they replace."""
        ...

    def shortage(self, plans: Sequence[SitePlan]) -> tuple[int, int] | None:
        """Positions that calibration showed and the ranks that they are to tell apart, where they are fewer."""
        ...


@dataclass(frozen=True)
class Single:
    """One matrix W ≈ up·down.

    Attributes:
        site: where it is.
        method: a key of `rankscope.compress.methods.METHODS`.
        moments: of its inputs, None for a method that needs none.
        stored: layout and number of stored numbers where it is factored already.
        eps: smallest ε that will be asked for, where one is known: the cheapest way to singular values depends on it.
        seed: of a random method.
    """

    site: Site
    method: str
    moments: InputMoments | None = field(default=None, repr=False)
    stored: tuple[int, int] | None = None
    eps: float | None = None
    seed: int = 0

    @property
    def sites(self) -> tuple[Site, ...]:
        """The one site."""
        return (self.site,)

    def spectra(self, matrices: Matrices) -> list[Spectrum]:
        """Singular values, in the norm of the method."""
        matrix = matrices[self.site.module]
        if self.method != "svd":
            sigma = self.decompose(matrix).sigma
        elif isinstance(matrix, FactoredMatrix):
            sigma = matrix.singular_values()
        else:
            sigma = singular_values(matrix, smallest_eps=self.eps)
        stored_rank, stored_factors = self.stored or (None, None)
        rows, columns = matrix.shape
        return [
            Spectrum(
                self.site.name,
                (rows, columns),
                sigma,
                stored_rank,
                stored_factors,
                layer=self.site.layer or 0,
                heads=self.site.heads or 1,
            )
        ]

    def layouts(self, plans: Sequence[SitePlan]) -> dict[str, Layout]:
        """Factored at the plan's rank."""
        return {plan.module: Factored(plan.rank) for plan in plans if plan.changed}

    def shapes(self, plans: Sequence[SitePlan]) -> dict[str, tuple[int, int]]:
        """Shapes of both factors."""
        (plan,) = plans
        rows, columns = plan.shape
        return {f"{plan.module}.down.weight": (plan.rank, columns), f"{plan.module}.up.weight": (rows, plan.rank)}

    def tensors(self, matrices: Matrices, plans: Sequence[SitePlan]) -> dict[str, Tensor]:
        """Both factors."""
        (plan,) = plans
        matrix = matrices[self.site.module]
        if self.method == "svd":
            factors = truncated_svd(matrix, plan.rank, _wide(matrix))
        else:
            factors = self.decompose(matrix).at(plan.rank)
        return {f"{plan.module}.down.weight": factors.down, f"{plan.module}.up.weight": factors.up}

    def stand_ins(self, matrices: Matrices, plans: Sequence[SitePlan]) -> dict[str, Tensor]:
        """The product of both factors."""
        made = self.tensors(matrices, plans)
        module = self.site.module
        return {module: made[f"{module}.up.weight"] @ made[f"{module}.down.weight"]}

    def replaced(self, plans: Sequence[SitePlan]) -> tuple[Site, ...]:
        """The one site."""
        return self.sites

    def shortage(self, plans: Sequence[SitePlan]) -> tuple[int, int] | None:
        """Positions and the smaller side of the matrix, where there are fewer positions."""
        (plan,) = plans
        if self.moments is None or not plan.changed or self.moments.tokens >= min(plan.shape):
            return None
        return self.moments.tokens, min(plan.shape)

    def decompose(self, matrix: Tensor | FactoredMatrix) -> Decomposition:
        """All terms of the matrix, by its method."""
        return METHODS[self.method].decompose(matrix, self.moments, self.seed)


@dataclass(frozen=True)
class Attention:
    """Queries with keys, values with outputs, of every head of one attention.

    Attributes:
        module: its name.
        q: the site of its queries, and so on.
        moments: of the inputs of q, of k (and v) and of o.
        pairs: which of ``qk`` and ``vo`` may be cut.
        cached: tokens that it caches.
        felt: what the answers feel of every head's slice of the input of o, where that was measured.
    """

    module: str
    q: Site
    k: Site
    v: Site
    o: Site
    moments: Mapping[str, InputMoments] = field(repr=False)
    pairs: tuple[str, ...] = ("qk", "vo")
    cached: int = 0
    felt: tuple[Float[Tensor, "_ _"], ...] | None = field(default=None, repr=False)

    @property
    def sites(self) -> tuple[Site, ...]:
        """All four, whichever may be cut."""
        return self.q, self.k, self.v, self.o

    def spectra(self, matrices: Matrices) -> list[Spectrum]:
        """One per head and pair: all of ``qk``, then all of ``vo``."""
        d_q, d_k = matrices[self.q.module].shape[1], matrices[self.k.module].shape[1]
        d_o = matrices[self.o.module].shape[0]
        shapes = {"qk": (d_q, d_k), "vo": (d_o, d_k)}
        return [
            Spectrum(
                f"{self.module}.{pair}.{head}",
                shapes[pair],
                decomposition.sigma,
                stored_rank=self.head_widths(pair)[head],
                layout="head-width",
                cached=self.cached,
                layer=self.q.layer or 0,
                rows=2 if pair == "qk" else 1,
            )
            for pair in self.pairs
            for head, decomposition in enumerate(self._decompose(matrices, pair))
        ]

    def layouts(self, plans: Sequence[SitePlan]) -> dict[str, Layout]:
        """Head widths, those that are kept among them."""
        widths = self._planned(plans)
        return {self.module: HeadWidth(widths["qk"], widths["vo"])}

    def shapes(self, plans: Sequence[SitePlan]) -> dict[str, tuple[int, int]]:
        """Shapes of the tensors of every pair of which some head changes."""
        shapes: dict[str, tuple[int, int]] = {}
        widths = self._planned(plans)
        for pair, (first, second) in self._changed(plans).items():
            rows, columns = next(plan.shape for plan in plans if f".{pair}." in plan.name)
            if pair == "qk":
                shapes |= {first.name: (sum(widths[pair]), rows), second.name: (sum(widths[pair]), columns)}
            else:
                shapes |= {first.name: (sum(widths[pair]), columns), second.name: (rows, sum(widths[pair]))}
        return shapes

    def tensors(self, matrices: Matrices, plans: Sequence[SitePlan]) -> dict[str, Tensor]:
        """The narrower heads side by side; those that are kept are kept bit for bit."""
        made: dict[str, Tensor] = {}
        for pair, (first, second) in self._changed(plans).items():
            mine = [plan for plan in plans if f".{pair}." in plan.name]
            parts: list[tuple[Tensor, Tensor]] = []
            for head, (plan, decomposition) in enumerate(zip(mine, self._decompose(matrices, pair), strict=True)):
                if not plan.changed:
                    parts.append(self._slices(matrices, pair, head))
                    continue
                factors = decomposition.at(plan.rank)
                parts.append((factors.up.mT, factors.down) if pair == "qk" else (factors.down, factors.up))
            left, right = zip(*parts, strict=True)
            made[first.name] = torch.cat([part.double() for part in left])
            made[second.name] = torch.cat([part.double() for part in right], dim=0 if pair == "qk" else 1)
        return made

    def stand_ins(self, matrices: Matrices, plans: Sequence[SitePlan]) -> dict[str, Tensor]:
        """Narrower heads, filled up with zeros, which change neither scores nor outputs."""
        made = self.tensors(matrices, plans)
        found = {}
        for pair, sites in self._changed(plans).items():
            for site in sites:
                axis = site.head_axis or 0
                parts = made[site.name].split(self._planned(plans)[pair], dim=axis)
                wide = [_filled(part, width, axis) for part, width in zip(parts, self.head_widths(pair), strict=True)]
                found[site.module] = torch.cat(wide, dim=axis)
        return found

    def replaced(self, plans: Sequence[SitePlan]) -> tuple[Site, ...]:
        """Both sites of every pair of which some head changes."""
        return tuple(site for pair in self._changed(plans).values() for site in pair)

    def shortage(self, plans: Sequence[SitePlan]) -> tuple[int, int] | None:
        """Positions and the widest head that is cut, where there are fewer positions."""
        tokens = {"qk": min(self.moments["q"].tokens, self.moments["k"].tokens), "vo": self.moments["o"].tokens}
        pairs = [(tokens[pair], max(self.head_widths(pair))) for pair in self._changed(plans)]
        return min((pair for pair in pairs if pair[0] < pair[1]), default=None)

    def _changed(self, plans: Sequence[SitePlan]) -> dict[str, tuple[Site, Site]]:
        both = {"qk": (self.q, self.k), "vo": (self.v, self.o)}
        return {pair: both[pair] for pair in self.pairs if any(p.changed and f".{pair}." in p.name for p in plans)}

    def head_widths(self, pair: str) -> tuple[int, ...]:
        """Widths that the heads of a pair have now."""
        return self.q.head_widths if pair == "qk" else self.v.head_widths

    def _planned(self, plans: Sequence[SitePlan]) -> dict[str, tuple[int, ...]]:
        widths = {pair: self.head_widths(pair) for pair in ("qk", "vo")}
        for pair in self.pairs:
            widths[pair] = tuple(plan.rank for plan in plans if f".{pair}." in plan.name)
        return widths

    def _slices(self, matrices: Matrices, pair: str, head: int) -> tuple[Tensor, Tensor]:
        widths = self.head_widths(pair)
        part = slice(sum(widths[:head]), sum(widths[: head + 1]))
        first, second = (self.q, self.k) if pair == "qk" else (self.v, self.o)
        left, right = matrices[first.module], matrices[second.module]
        assert isinstance(left, Tensor)
        assert isinstance(right, Tensor)
        return left[part], right[part] if pair == "qk" else right[:, part]

    def inner(self, matrices: Matrices, pair: str) -> list[Inner]:
        """What stands between the two matrices of every head, term by term."""
        found = []
        start = 0
        for head, width in enumerate(self.head_widths(pair)):
            left, right = (part.double() for part in self._slices(matrices, pair, head))
            if pair == "qk":
                queries = left @ self.moments["q"].second @ left.mT
                keys = right @ self.moments["k"].within @ right.mT
                found.append(inner_qk(queries, keys))
            else:
                felt = None if self.felt is None else self.felt[head]
                found.append(inner_vo(right, self.attended(start, width), felt=felt))
            start += width
        return found

    def attended(self, start: int, width: int) -> Float[Tensor, "d_head d_head"]:
        """Second moment of a slice of the input of o."""
        part = slice(start, start + width)
        return self.moments["o"].second[part, part]

    def _decompose(self, matrices: Matrices, pair: str) -> list[Decomposition]:
        found = []
        for head, inner in enumerate(self.inner(matrices, pair)):
            left, right = self._slices(matrices, pair, head)
            found.append(inner.between(left.mT, right) if pair == "qk" else inner.between(right, left))
        return found


def _filled(part: Tensor, width: int, axis: int) -> Tensor:
    """Add zeros on one side until a head has its width."""
    missing = width - part.shape[axis]
    return nn.functional.pad(part, (0, missing) if axis else (0, 0, 0, missing))


def _wide(matrix: Tensor | FactoredMatrix) -> torch.dtype:
    stored = matrix.dtype if isinstance(matrix, Tensor) else matrix.up.dtype
    return torch.float32 if stored.itemsize < 4 else stored
