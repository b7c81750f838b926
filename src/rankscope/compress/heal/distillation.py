"""Distillation: how far a student is from its teacher on a batch, and the Trainer that lowers it.

The default rate and share of the truth are from a grid on development data: docs/howto/heal.md. What did follow is only
as good as the corpus: a teacher that was trained on better data than generated series may be better followed alone
(``truth`` 0).
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import TrainerCallback

from rankscope.checkpoints import Checkpoint
from rankscope.compress.heal.config import Budget, HealConfig
from rankscope.engine import Progress
from rankscope.errors import DataError
from rankscope.families import Family
from rankscope.io import codec
from rankscope.io.run_store import RunStore
from rankscope.train.callbacks import Health, Logs, Sealing
from rankscope.train.config import PretrainConfig
from rankscope.train.logs import Clock, Events, LossMeter
from rankscope.train.loop import Loop
from rankscope.train.passes import fast_stacks, has_fast_pass, token_loss
from rankscope.train.stream import GroupCollator, ScaledCollator, TokenCollator
from rankscope.train.teaching import quantile_distance

Distance = Callable[..., Float[Tensor, ""]]
"""Distance of a student from a teacher on a batch; both are called, the teacher without gradients."""

IGNORED = -100
"""Label of a position at which nothing is asked."""
CLOCK = "clock.json"
"""Seconds of training up to a snapshot, in its folder."""


def token_kl(
    student: Float[Tensor, "series tokens bins"],
    teacher: Float[Tensor, "series tokens bins"],
    labels: Int[Tensor, "series tokens"],
) -> Float[Tensor, ""]:
    """Mean KL(teacher ‖ student) of the next token's distribution, in nats, over the positions that have a label.

    With p the teacher's probabilities it is logΣe^s − logΣe^t + Σ p (t − s), whose gradient softmax(s) − p is exactly
    zero where the logits s and t are equal; Adam would blow up what rounding leaves of a gradient.

    >>> logits = torch.randn(2, 3, 5)
    >>> float(token_kl(logits, logits, torch.ones(2, 3, dtype=torch.long)))
    0.0
    """
    own, true = student.float(), teacher.float()
    norm = true.logsumexp(-1)
    each = own.logsumexp(-1) - norm + ((true - norm[..., None]).exp() * (true - own)).sum(-1)
    asked = labels != IGNORED
    return (each * asked).sum() / asked.sum().clamp(min=1)


def token_distance(
    student: Any, teacher: Any, batch: Mapping[str, Tensor], truth: float = 0.0, fast: bool = False
) -> Float[Tensor, ""]:
    """`token_kl` of two Chronos-T5 under teacher forcing, where both decoders read the true future values.

    Args:
        student: the model that is trained.
        teacher: what it is compared with.
        batch: what `TokenCollator` makes.
        truth: share of the loss that is the cross-entropy of the true future values.
        fast: computed inside `rankscope.train.passes.fast_stacks`: without all logits at once, if the heads are dense.
    """
    if fast and all(type(one.lm_head) is torch.nn.Linear for one in (student, teacher)):
        return token_loss(student, batch, teacher, truth)
    with torch.no_grad():
        true = teacher(**batch).logits
    answer = student(**batch)
    distance = token_kl(answer.logits, true, batch["labels"])
    return (1 - truth) * distance + truth * answer.loss if truth else distance


def forecast_distance(
    student: Any, teacher: Any, batch: Mapping[str, Tensor], truth: float = 0.0, fast: bool = False
) -> Float[Tensor, ""]:
    """`quantile_distance` of two Chronos-Bolt on histories of mean 0 and deviation 1.

    Args:
        student: the model that is trained.
        teacher: what it is compared with.
        batch: what `ScaledCollator` makes.
        truth: share of the loss that is the quantile loss of the true future values, per value.
        fast: makes no difference here.
    """
    with torch.no_grad():
        true = teacher(context=batch["context"]).quantile_preds
    answer = student(context=batch["context"], target=batch["target"] if truth else None)
    distance = quantile_distance(answer.quantile_preds, true, batch["asked"])
    return (1 - truth) * distance + truth * answer.loss / true.shape[-1] if truth else distance


def group_distance(
    student: Any, teacher: Any, batch: Mapping[str, Any], truth: float = 0.0, fast: bool = False
) -> Float[Tensor, ""]:
    """`quantile_distance` of two Chronos-2, in the scale in which they emit quantiles; known covariates do not count.

    Args:
        student: the model that is trained.
        teacher: what it is compared with.
        batch: what `ScaledGroupCollator` makes.
        truth: share of the loss that is the quantile loss of the true future values, per value.
        fast: makes no difference here.
    """
    given = {name: value for name, value in batch.items() if name not in ("asked", "future_target")}
    with torch.no_grad():
        true = _emitted(student, teacher(**given).quantile_preds)
    answer = student(**given, future_target=batch["future_target"] if truth else None)
    distance = quantile_distance(_emitted(student, answer.quantile_preds), true, batch["asked"])
    return (1 - truth) * distance + truth * answer.loss / true.shape[1] if truth else distance


def _emitted(
    model: Any, quantiles: Float[Tensor, "series quantiles horizon"]
) -> Float[Tensor, "series quantiles horizon"]:
    """Forecasts for histories of mean 0 and deviation 1 as the output head of a Chronos-2 emits them."""
    emitted, _ = model.instance_norm(quantiles.float(), (quantiles.new_zeros(1), quantiles.new_ones(1)))
    return emitted  # type: ignore[no-any-return]


class ScaledGroupCollator:
    """Groups of series for Chronos-2, each scaled as `ScaledCollator` scales Bolt's.

    What is known of the future is scaled likewise; values farther than `rankscope.train.stream.FARTHEST` are dropped.
    """

    def __init__(self, patch: int) -> None:
        """Answer the targets in patches of ``patch`` values."""
        self.stack, self.scaled = GroupCollator(patch), ScaledCollator()

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return what ``Chronos2Model.forward`` takes, and ``asked`` (series,): 0 for known covariates and series
        without an observation, else 1.
        """
        scaled = self.scaled([{**row, "answer": row["known"][None]} for row in rows])
        known = scaled["answer"][:, 0]
        covariate = torch.stack([row["known"].isfinite().any() for row in rows])
        return {
            **self.stack(rows),
            "context": scaled["context"],
            "future_target": scaled["target"].masked_fill(~known.isnan(), torch.nan),
            "future_covariates": known,
            "asked": scaled["asked"] * ~covariate,
        }


def loss_of(family: Family) -> tuple[str, Distance]:
    """Return the name of the loss of a family, and the loss."""
    if family.answers == "samples":
        return "token-kl", token_distance
    return "quantile-l1", group_distance if family.grouped else forecast_distance


def collator_for(student: Checkpoint) -> Callable[[list[dict[str, Any]]], dict[str, Any]]:
    """Return the collator that makes batches for the loss of a student's family."""
    family, config = student.family, student.config
    if family.answers == "samples":
        return TokenCollator(dict(config["chronos_config"]))
    if family.grouped:
        return ScaledGroupCollator(int(config["chronos_config"]["output_patch_size"]))
    return ScaledCollator()


@contextlib.contextmanager
def same_kernels(student: Any, teacher: Any, fast: bool) -> Iterator[None]:
    """Compute both models by the same kernels inside the block, with ``fast`` by the fast CPU pass.

    torch chooses by what needs gradients, and another kernel rounds differently, which is all the loss that a student
    has that is its teacher.
    """
    with contextlib.ExitStack() as stack:
        for one in [fast_stacks(model) for model in (student, teacher)] if fast else [sdpa_kernel(SDPBackend.MATH)]:
            stack.enter_context(one)
        yield


class Distillation(Loop):
    """Lowers the distance to a teacher at the rate that the budget gives."""

    def __init__(self, *args: Any, teacher: Any, distance: Distance, budget: Budget, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.teacher = teacher.to(self.args.device)
        self.fast = self.fast and has_fast_pass(self.teacher)
        self.distance = distance
        self.budget = budget

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Run teacher and student on one batch, by the fast CPU pass if both have it."""
        half = torch.autocast(self.args.device.type, torch.bfloat16, enabled=self.args.bf16)
        with half, same_kernels(model, self.teacher, self.fast):
            loss = self.distance(model, self.teacher, inputs, fast=self.fast)
        return (loss, None) if return_outputs else loss

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Let the learning rate fall with the budget."""
        if self.lr_scheduler is None:
            rate, trained = self.budget.rate, self.optimizer if optimizer is None else optimizer
            assert trained is not None
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
                trained, lambda step: rate(step)
            )  # no method: torch would store it
            self._created_lr_scheduler = True
        return self.lr_scheduler


class Deadline(TrainerCallback):
    """Ends the healing with its budget, and asks for snapshots by the clock."""

    def __init__(self, budget: Budget, run: Path, save_seconds: float) -> None:
        self.budget, self.run, self.save_seconds = budget, run, save_seconds
        self.saved = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock."""
        self.budget.begin()
        self.saved = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop, or ask for a snapshot, where it is time; the end gets one too."""
        if self.budget.over(state.global_step):
            control.should_training_stop = True
        if control.should_training_stop or time.monotonic() - self.saved >= self.save_seconds:
            control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Keep the time with the snapshot, before it is sealed."""
        folder = self.run / f"checkpoint-{state.global_step}"
        (folder / CLOCK).write_text(json.dumps({"seconds": self.budget.seconds()}) + "\n", encoding="utf-8")
        self.saved = time.monotonic()


def callbacks(
    plan: PretrainConfig, options: HealConfig, kept: RunStore, meter: LossMeter, budget: Budget, progress: Progress
) -> list[Any]:
    """Return the callbacks; the deadline is first, so that the others see that the end has come."""
    run = kept.root
    return [
        Deadline(budget, run, options.save_seconds),
        Health(meter, kept),
        Logs(plan, run, meter, Clock(), Events(None), lambda step, _, what: progress(*budget.progress(step), what)),
        Sealing(meter, run),
    ]


def seconds_before(folder: Path) -> float:
    """Seconds of training up to the snapshot in ``folder``.

    Raises:
        DataError: its clock is damaged.
    """
    file, fix = folder / CLOCK, f"Delete the folder {folder}, and --resume goes on from the snapshot before it."
    seconds = codec.part(file, "seconds", fix)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < math.inf:
        raise DataError(f"{file}: seconds is {seconds!r}, no time that has passed. {fix}")
    return float(seconds)
