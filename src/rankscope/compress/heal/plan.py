"""Where a healing writes, and what it is in the words of a pretraining."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rankscope.checkpoints import Checkpoint
from rankscope.compress.heal.config import HealConfig
from rankscope.errors import OutputError
from rankscope.io.atomic import refuse_workplace
from rankscope.train.config import ModelShape, PretrainConfig
from rankscope.train.data.mixture import Mixture

SUFFIX = "-healed"
LONGEST = 512
"""Longest history that is healed on, observations: longer ones cost time and teach the attention little more."""
ENDLESS = 10**9
"""Steps of a healing by time, for the Trainer, which wants a number."""
MIXTURE = Mixture(
    kernel_share=0.15, mixup_share=0.15, short_share=0.35, shortest=8, missing_share=0.05, seasonal_share=0.25
)
"""The corpus that the bundled Chronos-Bolt was trained on, once its curriculum is over."""
KERNELS, DRAWS = 200, 16
"""Kernels in the KernelSynth bank, and paths of each: a second's work."""


def target_folder(student: Checkpoint, teacher: Checkpoint, out: str | Path | None, force: bool) -> Path:
    """Where the result goes: ``out``, or else the student's own folder with ``force``, or else one beside it.

    Raises:
        OutputError: it is the teacher's, the working folder or a parent of it, or none of the user's.
    """
    target = Path(out) if out is not None else _default_target(student, force)
    refuse_workplace(target)  # there is no place beside it
    if teacher.folder.resolve() == target.resolve():
        raise OutputError(f"--out {target} is the teacher's folder, which is not replaced: choose another place.")
    return target


def _default_target(student: Checkpoint, force: bool) -> Path:
    local = Path(student.source).expanduser()
    if not (local.is_dir() and local.resolve() == student.folder.resolve()):  # bundled, or from the hub
        if force:
            raise OutputError(f"{student.source} is no folder of yours, so it is not replaced: give --out.")
        return Path(f"{local.name}{SUFFIX}")
    own = local.resolve()
    return own if force else own.with_name(f"{own.name}{SUFFIX}")


def as_pretraining(options: HealConfig, student: Checkpoint, teacher: Checkpoint) -> PretrainConfig:
    """Say a healing in the words of a pretraining, whose data, arguments and logs it shares."""
    family, config = student.family, student.config
    known = (family.context(config), family.context(teacher.config), LONGEST)
    context = min(length for length in known if length is not None)
    shape = ModelShape()
    if family.strategy == "continuous":
        shape = ModelShape(patch_size=family.patch_size(config))
        context = max(context // shape.patch_size, 1) * shape.patch_size
    return PretrainConfig(
        family=family.name,
        model=shape,
        context=context,
        horizon=family.horizon(config) or LONGEST,
        mixture=replace(MIXTURE, files=options.files, file_share=options.file_share if options.files else 0.0),
        bank_kernels=KERNELS,
        bank_draws=DRAWS,
        max_steps=ENDLESS if options.steps is None else options.steps,
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        weight_decay=0.0,
        beta2=options.beta2,
        max_grad_norm=options.max_grad_norm,
        warmup_steps=0,
        schedule="constant",  # not looked at: `Distillation` has the budget's
        save_steps=ENDLESS,  # `Deadline` asks for snapshots
        log_steps=options.log_steps,
        precision=options.precision,
        seed=options.seed,
    )
