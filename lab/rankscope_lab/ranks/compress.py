"""How much of a model's layers can be cut, and at what loss."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.compress import Budget, Plan, plan_by_budget
from rankscope.compress.calibration import InputMoments
from rankscope.errors import DataError, OptionError, unknown_choice
from rankscope_lab.ranks.calibrate import model_moments
from rankscope_lab.ranks.pieces import CUTS, KINDS, Piece, pieces_of

RATIOS = (1.0, 0.5, 0.25, 0.125, 0.0625)
"""Shares that factors of square matrices and heads of the lab's widths meet exactly."""
UNIFORM = "uniform-ratio"
"""Every matrix, or head, keeps the same share of its numbers: no worth of one is held against that of another."""
Score = Callable[[nn.Module], float]
"""Loss of a model on data that the calibration has not seen."""


@dataclass(frozen=True)
class CurvePoint:
    """One kind of layer cut to one size, all else whole.

    Attributes:
        kind: ``attention``, ``projection`` or ``feed_forward``.
        method: ``svd``, ``whitened`` or ``joint``.
        asked: ratio asked for.
        ratio: numbers that the kind's matrices store, after over before; None where even rank 1 everywhere stores more
            than was asked.
        stored: those numbers.
        loss: of the model that is left; None where the ratio cannot be reached.
        before: loss of the whole model.
    """

    kind: str
    method: str
    asked: float
    ratio: float | None
    stored: int | None
    loss: float | None
    before: float

    @property
    def relative(self) -> float | None:
        """Loss over that of the whole model."""
        return None if self.loss is None else self.loss / self.before


def compression_curve(
    model: nn.Module,
    batches: Iterable[Tensor | tuple[Tensor, ...]],
    score: Score,
    *,
    ratios: Sequence[float] = RATIOS,
    methods: Sequence[str] = CUTS,
) -> tuple[CurvePoint, ...]:
    """Cut each kind of layer by each method to each ratio, one at a time, and score what is left.

    Args:
        model: left as it is.
        batches: to calibrate on.
        score: loss of a model.
        ratios: numbers stored after over before.
        methods: of `CUTS`; ``joint`` applies to attention.

    Raises:
        OptionError: an unknown method, or a ratio outside (0, 1].
        DataError: the whole model has no finite loss.
    """
    moments = model_moments(model, batches)
    before = float(score(model))
    if not 0 < before < float("inf"):
        raise DataError(f"the model's loss is {before}: there is nothing that a cut could be compared with.")
    made = copy.deepcopy(model)
    whole = {name: value.clone() for name, value in made.state_dict().items()}
    points = []
    for kind, method, pieces in _all(made, methods, moments):
        for ratio in ratios:
            points.append(_point(made, pieces, score, CurvePoint(kind, method, ratio, None, None, None, before)))
            made.load_state_dict(whole)
    return tuple(points)


def _all(
    model: nn.Module, methods: Sequence[str], moments: Mapping[str, InputMoments]
) -> Iterator[tuple[str, str, list[Piece]]]:
    for method in methods:
        if method not in CUTS:
            raise OptionError(unknown_choice("method", method, CUTS))
        for kind in KINDS:
            pieces = pieces_of(model, kind, method, moments)
            if pieces:
                yield kind, method, pieces


def _point(model: nn.Module, pieces: list[Piece], score: Score, asked: CurvePoint) -> CurvePoint:
    spectra = [piece.spectrum for piece in pieces]
    least = sum(one.after(1) for one in spectra) / sum(one.stored for one in spectra)
    if least > asked.asked:
        return asked
    plan = _plan(pieces, asked.asked)
    _cut(pieces, plan)
    loss = float(score(model))
    return CurvePoint(asked.kind, asked.method, asked.asked, plan.ratio, plan.after, loss, asked.before)


def _plan(pieces: Sequence[Piece], ratio: float) -> Plan:
    return plan_by_budget([piece.spectrum for piece in pieces], Budget("ratio", ratio), UNIFORM)


@torch.no_grad()
def _cut(pieces: Sequence[Piece], plan: Plan) -> None:
    for piece, site in zip(pieces, plan.sites, strict=True):
        if site.changed:
            piece.cut(site.rank)
