"""From a compressed folder to a healed one: check, train against the teacher, write."""

from __future__ import annotations

import functools
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.compress.calibration import fingerprint
from rankscope.compress.card import write_card
from rankscope.compress.heal.config import FILE, Budget, HealConfig, HealReport, read_report
from rankscope.compress.heal.student import build_student, build_teacher, check_teacher, write_student
from rankscope.engine import Progress, silent
from rankscope.engine.randomness import random_states_kept
from rankscope.errors import OptionError, OutputError
from rankscope.io import codec
from rankscope.io.atomic import atomic_folder, refuse_workplace
from rankscope.io.checksum import checksums
from rankscope.io.run_store import differences, refuse_both
from rankscope.train import logs
from rankscope.train.config import ModelShape, PretrainConfig
from rankscope.train.data.mixture import CORPUS_VERSION, Mixture
from rankscope.train.data.pool import read_pool
from rankscope.train.logs import LossMeter
from rankscope.train.run_folder import Snapshot, TrainingRun, begun_with
from rankscope.train.stream import Blocks, SeriesStream, kernel_series
from rankscope.train.trainer import take_steps

SUFFIX = "-healed"
LONGEST = 512
"""Longest history and horizon that are healed on, observations: longer ones cost time and teach little more."""
ENDLESS = 10**9
"""Steps of a healing by time, for the Trainer, which wants a number."""
MIXTURE = Mixture(
    kernel_share=0.15,
    mixup_share=0.15,
    short_share=0.35,
    shortest=8,
    missing_share=0.05,
    seasonal_share=0.25,
    growth_share=0.2,
)
"""Healing corpus: all kinds of the training corpus, and smooth growth, on which compressed models lose most."""
KERNELS, DRAWS = 200, 16
"""Kernels in the KernelSynth bank, and paths of each: a second's work."""
OWN_HORIZON = 64
"""The same of a horizon that a model may be asked for but need not, with files of the user's: a longer one would leave
out more of their series."""
GROUPED = 0.5
"""Share of series in groups, for families that read groups."""
MAY_CHANGE = ("log_steps", "save_seconds")
"""Settings that a resumed healing may change."""


@random_states_kept()
def heal(
    student: Checkpoint | str | Path,
    teacher: Checkpoint | str | Path,
    config: HealConfig | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    device: str = "auto",
    progress: Progress = silent,
) -> HealReport:
    """Train a compressed checkpoint to answer as its teacher does, on generated series, and save it in its own layout.

    Chronos-T5 minimises the KL divergence of its next-token distributions from the teacher's, under teacher forcing;
    Chronos-Bolt and Chronos-2 the absolute difference of all quantiles, in the scale in which the model emits them.
    Half of the series of a Chronos-2 are in groups, with known covariates among them. A share of the loss,
    ``config.truth``, looks at what did follow instead; see `rankscope.compress.heal.distillation`.

    Args:
        student: an open checkpoint or what `open_checkpoint` takes: factored, head-width or dense.
        teacher: likewise; the model that was compressed.
        config: the healing; five minutes of all parameters by default.
        out: folder to write, which may be the student's own; by default the student's name with ``-healed``.
        resume: go on from the newest whole snapshot of a stopped healing into this ``out``, however it was stopped;
            begin where there is none. One that is finished is not repeated.
        force: replace ``out``, and the snapshots of an unfinished healing, if they exist.
        device: ``auto``, ``cpu`` or ``cuda``.
        progress: told steps or seconds, their total, and the loss.

    Returns:
        The report, which is also ``heal.json`` in the folder; ``loss.csv`` is the curve.

    Raises:
        FamilyError: the student is no Chronos model.
        OptionError: the teacher means something else by tokens, patches, quantiles or horizon; nothing is compressed
            where only that is to be trained; several processes.
        DataError: the user's files cannot be used.
        OutputError: ``out`` or an unfinished healing of it exists, what is to be resumed is another healing, or another
            process is in it.
        RankscopeError: the loss or the weights became NaN or infinite; the snapshot before is kept and named.
    """
    from transformers import set_seed

    from rankscope.compress.heal.distillation import loss_of
    from rankscope.train.loop import resolve_precision

    refuse_both(resume, force)
    options = HealConfig() if config is None else config
    if not isinstance(options, HealConfig):
        raise OptionError(f"config must be HealConfig(steps=500, …), not a {type(options).__name__}.")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise OptionError("a healing runs in one process: start it without torchrun or accelerate launch.")
    pupil = open_checkpoint(student)
    guide = open_checkpoint(teacher)
    check_teacher(pupil, guide)
    target = target_folder(pupil, guide, out)
    plan = as_pretraining(options, pupil, guide)
    fingerprints = {"student": fingerprint(pupil), "teacher": fingerprint(guide)}
    plan = replace(plan, precision=resolve_precision(plan, device, begun_with(target) if resume else {}))
    if options.files:  # refused before anything is written
        least = plan.horizon + min(plan.mixture.shortest, plan.context)
        read_pool(options.files, least, options.columns, options.freq)
        fingerprints["data"] = checksums((name, Path(name)) for name in options.files)
    settings = _settings(options, fingerprints, plan.precision, CORPUS_VERSION)
    kept = TrainingRun(target, "a healing", "rankscope/heal-run@1", settings, MAY_CHANGE)
    in_place = pupil.folder.resolve() == target.resolve()  # once it is healed, the same command would heal it again
    if (resume or in_place) and (report := _finished(kept)) is not None:
        return report
    start = kept.check(resume, force)
    set_seed(options.seed)
    run = kept.folder
    trainer = _trainer(pupil, guide, options, start, plan, kept, device, progress)
    with kept.open(resume, force):  # from here on files change
        logs.forget_after(run / logs.LOSSES, start.step if start else 0)
        trainer.train_dataset = Blocks(SeriesStream(plan, kernel_series(plan, run, progress)), plan.batch_size)
        steps = take_steps(trainer, start, start is not None and trainer.budget.over(start.step))
        report = HealReport(
            model=pupil.source,
            teacher=guide.source,
            out=str(target),
            family=pupil.family.name,
            loss=loss_of(pupil.family)[0],
            steps=steps,
            seconds=round(trainer.budget.seconds(), 1),
            first_loss=float(logs.read_rows(run / logs.LOSSES)[0]["loss"]),
            last_loss=logs.last_loss(run),
            parameters=sum(p.numel() for p in trainer.model.parameters()),
            trained_parameters=sum(p.numel() for p in trainer.model.parameters() if p.requires_grad),
            options=options,
            fingerprints=fingerprints,
            precision=plan.precision,
            corpus=CORPUS_VERSION,
            changes=tuple(kept.changes),
            earlier=_earlier(pupil),
        )
        _save(pupil, trainer.model, report, kept)
    return report


def target_folder(student: Checkpoint, teacher: Checkpoint, out: str | Path | None) -> Path:
    """Folder of the result: ``out``, or else one beside the student's.

    Raises:
        OutputError: it is the teacher's, the working folder or a parent of it.
    """
    target = Path(out) if out is not None else _default_target(student)
    refuse_workplace(target)  # there is no place beside it
    if teacher.folder.resolve() == target.resolve():
        raise OutputError(f"--out {target} is the teacher's folder, which is not replaced: choose another place.")
    return target


def _default_target(student: Checkpoint) -> Path:
    local = Path(student.source).expanduser()
    if not (local.is_dir() and local.resolve() == student.folder.resolve()):  # bundled, or from the hub
        return Path(f"{local.name}{SUFFIX}")
    own = local.resolve()
    return own.with_name(f"{own.name}{SUFFIX}")


def as_pretraining(options: HealConfig, student: Checkpoint, teacher: Checkpoint) -> PretrainConfig:
    """Say a healing in the words of a pretraining, whose data, arguments and logs it shares."""
    family, config = student.family, student.config
    known = (family.context(config), family.context(teacher.config), LONGEST)
    context = min(length for length in known if length is not None)
    horizon = min(family.horizon(config) or LONGEST, OWN_HORIZON if options.files and family.grouped else LONGEST)
    shape = ModelShape()
    if family.strategy == "continuous":
        shape = ModelShape(patch_size=family.patch_size(config))
        context, horizon = (max(most // shape.patch_size, 1) * shape.patch_size for most in (context, horizon))
    return PretrainConfig(
        family=family.name,
        model=shape,
        context=context,
        horizon=horizon,
        mixture=replace(
            MIXTURE,
            group_share=GROUPED if family.grouped else 0.0,
            files=options.files,
            file_share=options.file_share if options.files else 0.0,
            columns=options.columns,
            freq=options.freq,
        ),
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


def _settings(options: HealConfig, fingerprints: dict[str, str], precision: str, corpus: int) -> dict[str, Any]:
    return {**codec.plain(options), **fingerprints, "arithmetic": precision, "corpus_version": corpus}


def _finished(kept: TrainingRun) -> HealReport | None:
    """Return the report of the same healing where its result is there, and remove what a kill left beside it.

    A student that was replaced by the result is another one by now: the unfinished run says which it had been.
    """
    report = read_report(kept.target)
    if report is None:
        return None
    done = _settings(report.options, report.fingerprints, report.precision, report.corpus or CORPUS_VERSION)
    now, begun = kept.store.settings or {}, (kept.store.manifest() or {}).get("settings", {})
    before = {**now, **{name: begun[name] for name in ("student", "teacher") if name in begun}}
    if all(any(name not in MAY_CHANGE for name, *_ in differences(done, one)) for one in (now, before)):
        return None
    kept.clean()
    return replace(report, out=str(kept.target))


def _trainer(
    student: Checkpoint,
    teacher: Checkpoint,
    options: HealConfig,
    start: Snapshot | None,
    plan: PretrainConfig,
    kept: TrainingRun,
    device: str,
    progress: Progress,
) -> Any:
    """Build both models and what trains one of them, all but its data."""
    from rankscope.compress.heal.distillation import Distillation, callbacks, collator_for, loss_of, seconds_before
    from rankscope.train.loop import training_arguments

    meter = LossMeter()
    budget = Budget(options, seconds_before(start.folder) if start else 0.0)
    if start is not None:
        meter.restore(start.loss_total, start.loss_steps)
    return Distillation(
        model=build_student(student, options.train),
        args=training_arguments(plan, kept.folder, device, 0),
        data_collator=collator_for(student),
        callbacks=callbacks(plan, options, kept.store, meter, budget, progress),
        meter=meter,
        teacher=build_teacher(teacher),
        distance=functools.partial(loss_of(student.family)[1], truth=options.truth),
        budget=budget,
    )


def _earlier(student: Checkpoint) -> tuple[dict[str, Any], ...]:
    report = read_report(student.folder)
    if report is None:
        return ()
    last = codec.plain(report)
    return (*last.pop("earlier"), last)


def _save(student: Checkpoint, module: Any, report: HealReport, kept: TrainingRun) -> None:
    with atomic_folder(kept.target, force=kept.replaces) as folder:
        write_student(student, module, folder)
        codec.write(folder / FILE, report, indent=2)
        shutil.copyfile(kept.folder / logs.LOSSES, folder / logs.LOSSES)
        write_card(folder, kept.target)
    kept.clean()
