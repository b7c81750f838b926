"""Ranks of a model as records, and as JSON both ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from rankscope.errors import DataError
from rankscope.measure.flow import ranks_by_eps
from rankscope.numerics import effective_rank, stable_rank

SCHEMA = "rankscope/lab-rank-record@1"
DIGITS = 6
"""Significant digits of numbers in JSON."""
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

    def relative(self, eps: str) -> float:
        """ε-rank over the largest rank possible."""
        return self.eps_ranks[eps] / self.size

    def to_json(self, sigma: int | None = None) -> dict[str, Any]:
        """Plain numbers; ``sigma``: how many singular values, all by default."""
        row: dict[str, Any] = {
            "size": self.size,
            "eps_ranks": dict(self.eps_ranks),
            "effective_rank": _short(self.effective_rank),
            "stable_rank": _short(self.stable_rank),
        }
        kept = self.sigma if sigma is None else self.sigma[:sigma]
        return row | {"sigma": [_short(value) for value in kept]} if kept else row


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
        role: see `rankscope_lab.measure.find.Weight`.
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


@dataclass(frozen=True)
class ModelRanks:
    """Ranks of a model's matrices, and of what runs through its layers on one batch."""

    eps: tuple[float, ...]
    weights: tuple[WeightRanks, ...]
    streams: tuple[StreamRanks, ...]

    def stream(self, place: str, stack: str | None = None) -> tuple[StreamRanks, ...]:
        """Records of one place, first layer to last."""
        return tuple(one for one in self.streams if one.place == place and stack in (None, one.stack))

    def role(self, *roles: str) -> tuple[WeightRanks, ...]:
        """Matrices of some roles."""
        return tuple(one for one in self.weights if one.role in roles)

    def to_json(self, *, weight_sigma: int | None = None, stream_sigma: int | None = None) -> dict[str, Any]:
        """Plain numbers; the two arguments say how many singular values of each spectrum, all by default."""
        weights = []
        for one in self.weights:
            row = asdict(one) | one.ranks.to_json(weight_sigma)
            del row["ranks"]
            weights.append(row | {"shape": list(one.shape), "head_eps_ranks": _lists(one.head_eps_ranks)})
        streams = []
        for place in self.streams:
            row = asdict(place) | place.ranks.to_json(stream_sigma if place.place != BETWEEN else 0)
            del row["ranks"]
            streams.append(row | {"centred": place.centred.to_json(0)})
        return {"schema": SCHEMA, "eps": list(self.eps), "weights": weights, "streams": streams}


def ranks_from_json(data: Mapping[str, Any], source: str = "the record") -> ModelRanks:
    """Read what `ModelRanks.to_json` made.

    Raises:
        DataError: another schema, or a part is missing.
    """
    if data.get("schema") != SCHEMA:
        raise DataError(f"{source} holds no ranks ({SCHEMA}): measure the model again.")
    try:
        weights = tuple(
            WeightRanks(
                ranks=summary_from_json(row),
                shape=(int(row["shape"][0]), int(row["shape"][1])),
                head_eps_ranks={eps: tuple(ranks) for eps, ranks in row["head_eps_ranks"].items()},
                **{key: row[key] for key in ("name", "stack", "layer", "role")},
            )
            for row in data["weights"]
        )
        streams = tuple(
            StreamRanks(
                ranks=summary_from_json(row),
                centred=summary_from_json(row["centred"]),
                **{key: row[key] for key in ("stack", "layer", "kind", "place", "tokens", "d_model")},
            )
            for row in data["streams"]
        )
        return ModelRanks(tuple(data["eps"]), weights, streams)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise DataError(f"{source} lacks a part of its ranks ({error}): measure the model again.") from error


def summary_from_json(row: Mapping[str, Any]) -> Ranks:
    """Read what `Ranks.to_json` made; a missing part is a ``KeyError``."""
    return Ranks(
        row["size"], dict(row["eps_ranks"]), row["effective_rank"], row["stable_rank"], tuple(row.get("sigma", ()))
    )


def _lists(ranks: Mapping[str, tuple[int, ...]]) -> dict[str, list[int]]:
    return {eps: list(values) for eps, values in ranks.items()}


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
