"""Models on the way that stay when the run is over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from rankscope.io.atomic import atomic_folder
from rankscope.train import processes
from rankscope.train.as_saved import as_saved
from rankscope.train.run_folder import KEPT_MODELS


class Keeping(TrainerCallback):
    """Writes a checkpoint, readable like any other, after each of the asked steps."""

    def __init__(self, steps: tuple[int, ...], run: Path) -> None:
        self.steps, self.run = frozenset(steps), run

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Keep the start."""
        if state.global_step == 0:
            self._keep(0, model)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Keep a step."""
        self._keep(state.global_step, model)

    def _keep(self, step: int, model: Any) -> None:
        if step not in self.steps or not processes.is_main():
            return
        target = self.run / KEPT_MODELS / f"step-{step}"
        with as_saved(model) as network, atomic_folder(target, force=True) as folder:
            network.save_pretrained(folder)
