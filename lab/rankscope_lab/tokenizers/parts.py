"""Scaled training, validation and test rows, and Adam with warm-up and cosine decay."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.errors import DataError
from rankscope.train.proxies.train import Schedule
from rankscope_lab.blocks import patches
from rankscope_lab.data.table import VariableTable
from rankscope_lab.data.windows import MONTHS, forecast_data


@dataclass(frozen=True)
class ScaledParts:
    """Rows of each part in time order; every variable has mean 0 and standard deviation 1 over the training rows.

    Attributes:
        train: 8640 rows of ETTh1.
        validation: the 2880 rows after them.
        test: the 2880 rows after those.
    """

    train: Float[Tensor, "time variables"]
    validation: Float[Tensor, "rows variables"]
    test: Float[Tensor, "steps variables"]

    def to(self, device: str) -> ScaledParts:
        """The same on another device."""
        return ScaledParts(*(part.to(device) for part in (self.train, self.validation, self.test)))


def scaled_parts(table: VariableTable) -> ScaledParts:
    """Split a table 12/4/4 months (ETT) or 70/10/20 (any other) and scale it.

    Raises:
        DataError: the table is too short for the split.
    """
    data = forecast_data(table, MONTHS, 1, 1)
    return ScaledParts(data.train.values, data.validation.values, data.test.values)


def tiles(
    values: Float[Tensor, "time variables"], window: int, offset: int = 0, what: str = "the part"
) -> Float[Tensor, "windows window"]:
    """Windows of each variable side by side from ``offset`` on, variable by variable; the rest at the end is left out.

    Raises:
        DataError: fewer rows than one window.
    """
    if len(values) - offset < window:
        raise DataError(
            f"{what} has {len(values):,} rows, one window takes {offset + window:,}: give more data, or a shorter "
            "window."
        )
    return patches(values[None, offset:], window, window).flatten(0, 1)


class Descent:
    """Adam; linear warm-up over a twentieth of the steps, then a cosine to a tenth of the peak; gradients clipped at 1.

    Args:
        parameters: what is trained.
        learning_rate: peak.
        steps: as many as will be taken.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], learning_rate: float, steps: int) -> None:
        self.parameters = [p for p in parameters if p.requires_grad]
        self.schedule = Schedule(steps, learning_rate, 0.0)
        self.adam = torch.optim.Adam(self.parameters, lr=learning_rate)
        self.taken = 0

    def step(self, loss: Float[Tensor, ""]) -> float:
        """Take a step and return the loss before it; without a finite loss no step is taken."""
        value = float(loss.detach())
        if not torch.isfinite(loss):
            return value
        for group in self.adam.param_groups:
            group["lr"] = self.schedule.learning_rate * self.schedule.share(self.taken)
        self.taken += 1
        self.adam.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.adam.step()
        return value

    def forget(self, parameter: Tensor, rows: Tensor) -> None:
        """Set Adam's moments of some rows (a mask) of a matrix to 0."""
        state: dict[Any, Any] = self.adam.state
        for moment in state[parameter].values():
            if isinstance(moment, Tensor) and moment.shape == parameter.shape:
                moment[rows] = 0.0
