"""Adam with a warm-up and a cosine: how every network of this study is trained."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.train.proxies.loop import Schedule


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
