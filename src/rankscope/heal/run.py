"""From a compressed folder to a healed one: check, train against the teacher, write."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rankscope.atomic import atomic_folder, refuse_existing
from rankscope.calibration._calibration import fingerprint
from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.errors import OptionError, OutputError
from rankscope.heal.budget import Budget
from rankscope.heal.config import HealConfig
from rankscope.heal.losses import distance_for
from rankscope.heal.match import check_teacher
from rankscope.heal.record import RECORD, HealRecord, differences, go_on, read_record
from rankscope.heal.report import HealReport, read_report
from rankscope.heal.student import build_student, build_teacher, write_student
from rankscope.pretrain import curves, run_folder
from rankscope.pretrain.arguments import resolve_precision, training_arguments
from rankscope.pretrain.blocks import Blocks
from rankscope.pretrain.config import ModelShape, PretrainConfig
from rankscope.pretrain.corpus import kernel_series
from rankscope.pretrain.data.mixture import Mixture
from rankscope.pretrain.data.pool import read_pool
from rankscope.pretrain.meter import LossMeter
from rankscope.pretrain.reading import build
from rankscope.pretrain.run_folder import Snapshot
from rankscope.pretrain.stream import SeriesStream
from rankscope.progress import Progress, silent

LOSSES = "loss.csv"
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


@dataclass(frozen=True)
class _Start:
    """Where a healing begins, and as what: at a snapshot or, without one, at the student; or it is finished already."""

    record: HealRecord
    snapshot: Snapshot | None = None
    finished: HealReport | None = None

    @property
    def step(self) -> int:
        return self.snapshot.step if self.snapshot else 0


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
    Chronos-Bolt the absolute difference of all quantiles, on histories of deviation 1. Neither sees what did follow
    other than through the teacher.

    Args:
        student: an open checkpoint or what `open_checkpoint` takes: factored, head-width or dense.
        teacher: likewise; the model that was compressed.
        config: the healing; five minutes of all parameters by default.
        out: folder to write. By default the student's name with ``-healed``; with ``force`` the student's own folder.
        resume: go on from the newest whole snapshot of a stopped healing into this ``out``, however it was stopped. One
            that is finished is not repeated.
        force: replace ``out``, and the snapshots of an unfinished healing, if they exist.
        device: ``auto``, ``cpu`` or ``cuda``.
        progress: told steps or seconds, their total, and the loss.

    Returns:
        The report, which is also ``heal.json`` in the folder; ``loss.csv`` is the curve.

    Raises:
        FamilyError: the student is neither a Chronos-T5 nor a Chronos-Bolt.
        OptionError: the teacher means something else by tokens, patches, quantiles or horizon; nothing is compressed
            where only that is to be trained; several processes.
        DataError: the user's files cannot be used.
        OutputError: ``out`` or an unfinished healing of it exists, there is nothing to resume, what is to be resumed is
            another healing, or another process is in it.
        RankscopeError: the loss or the weights became NaN or infinite; the snapshot before is kept and named.
    """
    from transformers import set_seed

    from rankscope.heal.loop import Distillation, callbacks, seconds_before

    options = config or HealConfig()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise OptionError("a healing runs in one process: start it without torchrun or accelerate launch.")
    pupil = student if isinstance(student, Checkpoint) else open_checkpoint(student)
    guide = teacher if isinstance(teacher, Checkpoint) else open_checkpoint(teacher)
    check_teacher(pupil, guide)
    target = target_folder(pupil, out, force)
    refuse_existing(target, force=True)  # the working folder and its parents, which have no place beside them
    if guide.folder.resolve() == target.resolve():
        raise OptionError(f"--out {target} is the teacher's folder, which is not replaced: choose another place.")
    run = run_folder.run_folder(target)
    plan = as_pretraining(options, pupil, guide)
    arguments = training_arguments(plan, run, device, 0)
    fingerprints = {"student": fingerprint(pupil), "teacher": fingerprint(guide)}
    record = HealRecord(options, fingerprints, resolve_precision(plan, device))
    start = _look(record, target, resume, force)
    if start.finished is not None:
        return start.finished
    if options.files:  # refused before anything is written
        read_pool(options.files, plan.horizon + min(plan.mixture.shortest, plan.context))
    set_seed(options.seed)
    module = build_student(pupil, options.train)
    guiding = build_teacher(guide)
    name, distance, collate = distance_for(pupil, options.truth)
    with contextlib.ExitStack() as held:
        _begin(start, target, resume, held)  # from here on files change
        series = Blocks(SeriesStream(plan, kernel_series(plan, run, progress)), plan.batch_size)
        budget = Budget(options, seconds_before(start.snapshot.folder) if start.snapshot else 0.0)
        meter = LossMeter()
        if start.snapshot is not None:
            meter.restore(start.snapshot.loss_total, start.snapshot.loss_steps)
        trainer = Distillation(
            model=module,
            args=arguments,
            train_dataset=series,
            data_collator=collate,
            callbacks=callbacks(plan, options, run, meter, budget, progress),
            meter=meter,
            teacher=guiding,
            distance=distance,
            budget=budget,
        )
        steps = _train(trainer, start, budget)
        report = HealReport(
            model=pupil.source,
            teacher=guide.source,
            out=str(target),
            family=pupil.family.name,
            loss=name,
            steps=steps,
            seconds=round(budget.seconds(), 1),
            first_loss=float(curves.read_rows(run / LOSSES)[0]["loss"]),
            last_loss=curves.last_value(run / LOSSES, "loss"),
            parameters=sum(p.numel() for p in module.parameters()),
            trained_parameters=sum(p.numel() for p in module.parameters() if p.requires_grad),
            options=options.to_dict(),
            fingerprints=fingerprints,
            precision=record.precision,
            changes=start.record.changes,
            earlier=_earlier(pupil),
        )
        _save(pupil, module, report, run, target, force)
    return report


def target_folder(student: Checkpoint, out: str | Path | None, force: bool) -> Path:
    """Where the result goes: ``out``, or else the student's own folder with ``force``, or else one beside it.

    Raises:
        OutputError: the student is no local folder, so it is not replaced.
    """
    if out is not None:
        return Path(out)
    local = Path(student.source).expanduser()
    if not (local.is_dir() and local.resolve() == student.folder.resolve()):  # bundled, or from the hub
        if force:
            raise OutputError(f"{student.source} is no folder of yours, so it is not replaced: give --out.")
        return Path(f"{local.name}{SUFFIX}")
    own = local.resolve()
    return own if force else own.with_name(f"{own.name}{SUFFIX}")


def as_pretraining(options: HealConfig, student: Checkpoint, teacher: Checkpoint) -> PretrainConfig:
    """Say a healing in the words of a pretraining, whose data, arguments and logs it shares."""
    inner, other = student.config["chronos_config"], teacher.config["chronos_config"]
    context = min(int(inner["context_length"]), int(other["context_length"]), LONGEST)
    shape = ModelShape()
    if student.family.name == "chronos-bolt":
        shape = ModelShape(patch_size=student.family.patch_size(student.config))
        context = max(context // shape.patch_size, 1) * shape.patch_size
    return PretrainConfig(
        family=student.family.name,
        model=shape,
        context=context,
        horizon=int(inner["prediction_length"]),
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


def _look(record: HealRecord, target: Path, resume: bool, force: bool) -> _Start:
    """Decide where the healing begins, and refuse what may not be."""
    run = run_folder.run_folder(target)
    earlier = read_record(run) if resume or not force else None
    if resume and (report := _finished(record, earlier, target)) is not None:
        if run.is_dir():  # the process was killed between saving and cleaning up
            shutil.rmtree(run)
        return _Start(record, finished=report)
    refuse_existing(target, force)
    newest = run_folder.newest(run)
    if not resume:
        if newest is not None and not force:
            raise OutputError(
                f"snapshots of an unfinished healing lie in {run}: go on with --resume, or start anew with --force."
            )
        return _Start(record)
    if earlier is None:
        raise OutputError(f"nothing to resume: no healing in {run}. Start without --resume.")
    step = newest.step if newest else 0
    return _Start(go_on(run, earlier, record, step, diverged=run_folder.diverged(run)), newest)


def _finished(record: HealRecord, begun: HealRecord | None, target: Path) -> HealReport | None:
    """Return the report of the same healing where ``target`` holds its result.

    A student that was replaced by it is another one by now: ``begun`` says which it had been.
    """
    report = read_report(target)
    if report is None:
        return None
    done = HealRecord(build(HealConfig, report.options), report.fingerprints, report.precision)
    before = record if begun is None else replace(record, fingerprints=begun.fingerprints)
    same = [one for one in (record, before) if not differences(done, one)]
    return replace(report, out=str(target)) if same else None


def _begin(start: _Start, target: Path, resume: bool, held: contextlib.ExitStack) -> None:
    """Claim the folder of the healing, and leave in it what there was at the point where it begins."""
    run = run_folder.run_folder(target)
    held.enter_context(run_folder.claimed(run))
    for stale in target.parent.glob(f".{target.name}.*.partial"):  # of a process killed while it saved
        shutil.rmtree(stale, ignore_errors=True)
    if not resume:
        run_folder.clear(run)
        held.enter_context(run_folder.removed_if_empty(run))
    run_folder.tidy(run)
    curves.forget_after(run / LOSSES, start.step)
    start.record.write(run)
    (run / run_folder.DIVERGED).unlink(missing_ok=True)


def _train(trainer: Any, start: _Start, budget: Budget) -> int:
    """Take the steps that are left; return how many have been taken in all."""
    if start.snapshot is None:
        trainer.train()
    elif budget.over(start.step):  # stopped between the last snapshot and the result
        trainer._load_from_checkpoint(str(start.snapshot.folder))
        return start.step
    else:
        trainer.train(resume_from_checkpoint=str(start.snapshot.folder))
    return int(trainer.state.global_step)


def _earlier(student: Checkpoint) -> tuple[dict[str, Any], ...]:
    report = read_report(student.folder)
    if report is None:
        return ()
    last = report.to_json()
    return (*last.pop("earlier"), last)


def _save(student: Checkpoint, module: Any, report: HealReport, run: Path, target: Path, force: bool) -> None:
    with atomic_folder(target, force=force) as folder:
        write_student(student, module, folder)
        text = json.dumps(report.to_json(), indent=2, ensure_ascii=False)
        (folder / RECORD).write_text(text + "\n", encoding="utf-8")
        shutil.copyfile(run / LOSSES, folder / LOSSES)
    shutil.rmtree(run, ignore_errors=True)
