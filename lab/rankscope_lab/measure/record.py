"""Records of model ranks, with JSON serialisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from rankscope.measure.spectrum import ranks_by_eps
from rankscope.numerics import effective_rank, stable_rank

SPECTRUM = tuple(f"ranks.{name}" for name in ("size", "eps_ranks", "effective_rank", "stable_rank", "sigma?"))
"""Keys of a spectrum among those of what has it."""
INPUT, BETWEEN, OUTPUT = "input", "between", "output"


@dataclass(frozen=True)
class Ranks:
    """Summary of one spectrum.

    Attributes:
        size: how many singular values there are: the largest rank possible.
        eps_ranks: ε-rank by ε.
        effective_rank: exponential of the entropy of σ².
        stable_rank: Σσ²/σ_1².
        sigma: singular values, descending; only the leading ones, or none, where they were not stored.
    """

    size: int
    eps_ranks: Mapping[str, int]
    effective_rank: float
    stable_rank: float
    sigma: tuple[float, ...] = ()

    KEYS: ClassVar = ("size", "eps_ranks", "effective_rank", "stable_rank", "sigma?")
    DIGITS: ClassVar = 6

    def leading(self, count: int) -> Ranks:
        """The same with so many singular values."""
        return replace(self, sigma=self.sigma[:count])


def ranks_of(sigma: Float[Tensor, " k"], eps: Sequence[float]) -> Ranks:
    """Summarise the singular values of a matrix.

    >>> import torch
    >>> ranks_of(torch.tensor([2.0, 1.0]), (0.6, 0.1)).eps_ranks
    {'0.6': 1, '0.1': 2}
    """
    wide = sigma.double().cpu()
    return Ranks(
        len(wide),
        ranks_by_eps(wide, eps),
        float(effective_rank(wide)),
        float(stable_rank(wide)),
        tuple(wide.tolist()),
    )


@dataclass(frozen=True)
class WeightRanks:
    """One matrix of a model.

    Attributes:
        name: path of its parameter.
        stack: list of layers that it belongs to; empty outside of layers.
        layer: its layer, from 0; None outside of layers.
        role: ``q``, ``k``, ``v``, ``o``, ``projection``, ``inner`` or ``outer`` (feed-forward), ``embedding``,
            ``position``, ``codebook``, ``head`` or ``other``.
        shape: of the matrix as the model stores it.
        ranks: of the whole matrix.
        head_eps_ranks: by ε, the ε-rank of each head's rows or columns; empty without heads.
    """

    name: str
    stack: str
    layer: int | None
    role: str
    shape: tuple[int, int]
    ranks: Ranks
    head_eps_ranks: Mapping[str, tuple[int, ...]]

    KEYS: ClassVar = (*("name", "stack", "layer", "role", "shape", "head_eps_ranks"), *SPECTRUM)


@dataclass(frozen=True)
class StreamRanks:
    """All tokens at one place of a model, one token a row.

    Attributes:
        stack: list of layers.
        layer: from 0.
        kind: of the layer: ``attention``, ``projection`` or ``feed_forward``.
        place: ``input`` of the layer; ``between``: what its feed-forward half reads; ``output``, of the last layer
            only, since that of the others is the next one's input.
        tokens: rows.
        d_model: columns.
        ranks: of the rows as they are.
        centred: of the rows less their mean.
    """

    stack: str
    layer: int
    kind: str
    place: str
    tokens: int
    d_model: int
    ranks: Ranks
    centred: Ranks

    KEYS: ClassVar = (*("stack", "layer", "kind", "place", "tokens", "d_model", "centred"), *SPECTRUM)


@dataclass(frozen=True)
class ModelRanks:
    """Ranks of a model's matrices, and of what runs through its layers on one batch."""

    eps: tuple[float, ...]
    weights: tuple[WeightRanks, ...]
    streams: tuple[StreamRanks, ...]

    SCHEMA: ClassVar = "rankscope/lab-rank-record@1"
    DIGITS: ClassVar = 6

    def stream(self, place: str, stack: str | None = None) -> tuple[StreamRanks, ...]:
        """Records of one place, first layer to last."""
        return tuple(one for one in self.streams if one.place == place and stack in (None, one.stack))

    def shortened(self, streams: int) -> ModelRanks:
        """The same with so many singular values of every layer's input and output, none of matrices, as is stored."""
        return replace(
            self,
            weights=tuple(replace(one, ranks=one.ranks.leading(0)) for one in self.weights),
            streams=tuple(
                replace(one, ranks=one.ranks.leading(streams * (one.place != BETWEEN)), centred=one.centred.leading(0))
                for one in self.streams
            ),
        )
