"""Trainer callbacks: divergence checks, logs, validation, spectra, snapshots. Imports transformers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from rankscope.engine import Progress
from rankscope.engine.randomness import random_states_kept
from rankscope.errors import RankscopeError
from rankscope.io.atomic import atomic_folder
from rankscope.io.run_store import RunStore
from rankscope.train import processes
from rankscope.train.config import PretrainConfig, Snapshots
from rankscope.train.logs import (
    LOSSES,
    SCORES,
    Clock,
    Events,
    LossMeter,
    append_row,
    series_per_step,
    tokens_per_series,
)
from rankscope.train.run_folder import KEPT_MODELS, newest, seal, tidy
from rankscope.train.spectra import SpectraLog, due

STRIDE = 10
"""Steps between loss checks on a GPU, since each check synchronises the device."""


@contextlib.contextmanager
def as_saved(model: Any) -> Iterator[Any]:
    """Yield the module in evaluation mode and its own dtype; restore everything afterwards.

    Restores the training mode of every submodule, the forward pass replaced by mixed precision or compilation,
    ``config.use_cache``, and the random states of Python, NumPy and torch, so that training is not affected.
    """
    modes = {module: module.training for module in model.modules()}
    replaced = model.__dict__.pop("forward", None)
    cache = getattr(model.config, "use_cache", None)
    try:
        with random_states_kept(), torch.no_grad():
            model.eval()
            model.config.use_cache = True
            yield model
    finally:
        for module, training in modes.items():
            module.training = training
        if replaced is not None:
            model.__dict__["forward"] = replaced
        model.config.use_cache = cache


class Health(TrainerCallback):
    """Divergence check of losses, and of weights before they are saved."""

    def __init__(self, meter: LossMeter, run: RunStore) -> None:
        self.meter = meter
        self.run = run

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Raise `RankscopeError` with the last good snapshot if the run has diverged."""
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
                f"{problem}, before the first snapshot. Restart with --force and a lower learning_rate or "
                "max_grad_norm."
            )
        if processes.is_main():
            self.run.note(diverged=problem)
        raise RankscopeError(
            f"{problem}. Last good snapshot: {last.folder}. Continue from it with --resume and a lower "
            "learning_rate or max_grad_norm, or restart with --force."
        )


def _finite(model: torch.nn.Module) -> bool:
    # NaN and Inf propagate through sums, which are cheaper than elementwise checks; overflowing sums are rechecked
    return all(bool(p.detach().sum().isfinite()) or bool(p.detach().isfinite().all()) for p in model.parameters())


class Logs(TrainerCallback):
    """Logging every ``log_steps`` steps and at the end."""

    def __init__(
        self, config: PretrainConfig, run: Path, meter: LossMeter, clock: Clock, events: Events, progress: Progress
    ) -> None:
        self.config, self.run = config, run
        self.meter, self.clock = meter, clock
        self.events, self.progress = events, progress
        self.logged = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock."""
        self.logged = state.global_step
        self.clock.take()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Request a last line if the steps are not a multiple of ``log_steps``."""
        control.should_log = control.should_log or control.should_training_stop

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Write a line in the main process, with the mean over all processes."""
        if not logs or "loss" not in logs:
            return
        step = state.global_step
        loss = self.meter.take()
        series = series_per_step(self.config) * (step - self.logged) / self.clock.take()
        self.logged = step
        if not processes.is_main():
            return
        row = {"loss": loss, "learning_rate": logs.get("learning_rate"), "grad_norm": logs.get("grad_norm")}
        append_row(self.run / LOSSES, {"step": step, **row})
        tokens = series * tokens_per_series(self.config)
        self.events.add(step, {**row, "series_per_second": series, "tokens_per_second": tokens})
        self.progress(
            step, self.config.max_steps, f"loss {loss:.3f}, {short(series)} series/s, {short(tokens)} tokens/s"
        )


def short(value: float) -> str:
    """Format a rate compactly.

    >>> short(3.14159), short(36.2), short(4712.0), short(2.5e6)
    ('3.1', '36', '4.7k', '2.5M')
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.1f}{letter}"
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


class Scores(TrainerCallback):
    """Validation every ``validation.every`` steps and at the end, in the main process."""

    def __init__(
        self,
        config: PretrainConfig,
        run: Path,
        validate: Callable[[Any], Mapping[str, float]],
        clock: Clock,
        events: Events,
        progress: Progress,
    ) -> None:
        self.config, self.run = config, run
        self.validate, self.clock = validate, clock
        self.events, self.progress = events, progress

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Score, before the snapshot of the same step is written."""
        if state.global_step % self.config.validation.every and not control.should_training_stop:
            return
        with self.clock.pause():
            processes.on_main(lambda: self._score(state.global_step, model))

    def _score(self, step: int, model: Any) -> None:
        self.progress(step, self.config.max_steps, f"scoring on {self.config.validation.suite}")
        with as_saved(model) as network:
            scores = {name: float(value) for name, value in self.validate(network).items()}
        append_row(self.run / SCORES, {"step": step, **scores})
        self.events.add(step, scores, group="validation")
        self.progress(
            step,
            self.config.max_steps,
            ", ".join(f"{name} {value:.3f}" for name, value in scores.items() if " " not in name),
        )


class Spectra(TrainerCallback):
    """Logging of spectra in the main process, flushed to disk before each snapshot."""

    def __init__(self, plan: Snapshots, log: SpectraLog, clock: Clock) -> None:
        self.plan, self.log, self.clock = plan, log, clock

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Log the start."""
        if state.global_step == 0:
            self._take(0, model)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Log a step."""
        self._take(state.global_step, model)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Wait for pending writes."""
        self.log.finish()

    def _take(self, step: int, model: Any) -> None:
        if due(self.plan, step) and processes.is_main():
            with self.clock.pause():
                self.log.take(step, model)


class Keeping(TrainerCallback):
    """Permanent checkpoints after the requested steps."""

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


class Interruption(TrainerCallback):
    """End of the training, with a snapshot, at the step in which it is interrupted."""

    def __init__(self, interrupts: Sequence[object]) -> None:
        self.interrupts = interrupts

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ask for a snapshot and the end if an interrupt waits."""
        if self.interrupts:
            control.should_save = control.should_training_stop = True


class Sealing(TrainerCallback):
    """Sealing of snapshots written by the Trainer, and removal of old ones."""

    def __init__(self, meter: LossMeter, run: Path) -> None:
        self.meter = meter
        self.run = run

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Restore the intervals of this call, which a resumed state overrides."""
        state.logging_steps, state.save_steps = args.logging_steps, args.save_steps

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Wait for all processes' files, then seal."""
        processes.wait()
        total, steps = self.meter.state()

        def finish() -> None:
            seal(self.run / f"checkpoint-{state.global_step}", total, steps)
            tidy(self.run)

        processes.on_main(finish)
