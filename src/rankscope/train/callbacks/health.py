"""Stop a run whose loss or weights are no numbers any more, before a snapshot of them is written."""

from __future__ import annotations

from typing import Any

import torch
from transformers import TrainerCallback

from rankscope.errors import RankscopeError
from rankscope.io.run_store import RunStore
from rankscope.train import processes
from rankscope.train.meter import LossMeter
from rankscope.train.run_folder import newest

STRIDE = 10
"""On a GPU the losses are looked at every so many steps, since looking makes the device wait."""


class Health(TrainerCallback):
    """Looks at every loss, and at all weights before they are stored."""

    def __init__(self, meter: LossMeter, run: RunStore) -> None:
        self.meter = meter
        self.run = run

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Raise `RankscopeError`, naming the last good snapshot, where the run has diverged."""
        self.meter.step()
        storing = control.should_save or control.should_training_stop
        if not (storing or control.should_log or args.device.type == "cpu" or state.global_step % STRIDE == 0):
            return
        problem = None
        if not bool(self.meter.finite):
            problem = f"the loss became NaN or infinite by step {state.global_step}"
        elif storing and not _finite(model):
            problem = f"the weights became NaN or infinite by step {state.global_step}"
        processes.together(lambda: self._stop(problem))

    def _stop(self, problem: str | None) -> None:
        if problem is None:
            return
        last = newest(self.run.root)
        if last is None:
            raise RankscopeError(
                f"{problem}: there is no snapshot before it. Start anew with --force and a lower learning_rate or "
                "max_grad_norm."
            )
        if processes.is_main():
            self.run.note(diverged=problem)
        raise RankscopeError(
            f"{problem}: the last good snapshot is {last.folder}. Go on from it with --resume and a lower "
            "learning_rate or max_grad_norm, or start anew with --force."
        )


def _finite(model: torch.nn.Module) -> bool:
    # NaN and Inf survive a sum, which is cheaper than looking at every entry; sums that overflow are looked at again
    return all(bool(p.detach().sum().isfinite()) or bool(p.detach().isfinite().all()) for p in model.parameters())
