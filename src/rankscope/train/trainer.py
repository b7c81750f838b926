"""Pretraining on top of transformers' Trainer: devices, precision, processes and accumulation come from there."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from rankscope.engine.progress import Progress, silent
from rankscope.errors import OptionError, OutputError
from rankscope.io import codec
from rankscope.io.atomic import atomic_folder, refuse_existing
from rankscope.train import curves, events, processes, run_folder
from rankscope.train.arguments import resolve_precision, training_arguments
from rankscope.train.config import PretrainConfig, config_from_dict
from rankscope.train.corpus import open_corpus
from rankscope.train.meter import Clock, LossMeter
from rankscope.train.models import new_model
from rankscope.train.run_folder import Snapshot
from rankscope.train.same_run import RunRecord, differences, go_on, read_record
from rankscope.train.spectra import SpectraLog, forget_after, live_sites
from rankscope.train.stream import BoltCollator, TokenCollator

RECORD = "pretrain.json"


@dataclass(frozen=True)
class PretrainReport:
    """What a run did.

    Attributes:
        folder: where the checkpoint lies.
        steps: optimiser steps taken in all.
        loss: mean training loss over the last log interval.
        seconds: wall time of this call.
        parameters: numbers in the model, frozen ones included.
        skipped: damaged shard files that were left out.
    """

    folder: str
    steps: int
    loss: float
    seconds: float
    parameters: int
    skipped: int = 0

    SCHEMA: ClassVar = "rankscope/pretrain@1"


@dataclass(frozen=True)
class _Start:
    """Where a run begins, and as what: at a snapshot, or, without one, at step 0; or it is finished already."""

    record: RunRecord
    snapshot: Snapshot | None = None
    finished: PretrainReport | None = None

    @property
    def step(self) -> int:
        return self.snapshot.step if self.snapshot else 0


def pretrain(
    config: PretrainConfig,
    out: Path | str,
    *,
    resume: bool = False,
    force: bool = False,
    device: str = "auto",
    workers: int = 0,
    progress: Progress = silent,
    validate: Callable[[Any], Mapping[str, float]] | None = None,
    skip_damaged: bool = False,
    tensorboard: bool = False,
) -> PretrainReport:
    """Train a model from scratch and save it as a checkpoint that chronos-forecasting reads.

    Started by ``torchrun`` or ``accelerate launch`` every process calls this, and they train one model together: each
    takes ``config.batch_size`` series per step. The first process alone writes and reports.

    Args:
        config: the run.
        out: folder of the finished checkpoint; snapshots of the run are kept beside it until it is done.
        resume: go on from the newest whole snapshot of a stopped run with this ``out``, however it was stopped. A
            run that is finished already is not repeated: its report is returned. One that diverged may go on with a
            lower learning rate or gradient norm, as another run from that snapshot on.
        force: replace ``out``, and the snapshots of an unfinished run, if they exist.
        device: ``auto``, ``cpu`` or ``cuda``.
        workers: processes that generate series, per training process; 0 generates in the training process.
        progress: told the step, the total and the loss with the speed.
        validate: scores by name of the network as it is then, in evaluation mode; needed, and called in the first
            process only, where ``config.validation.every`` is set. ``rankscope_eval.score_during_training`` makes one.
        skip_damaged: leave damaged files of ``config.shards`` out, where they are otherwise an error.
        tensorboard: also write event files, into the folder ``tensorboard``.

    Returns:
        The report. The folder also holds ``pretrain.json`` (config, report, and what was lowered on the way, if
        anything), ``loss.csv`` and, where the config
        asks for them, ``validation.csv`` and ``spectra.parquet``.

    Raises:
        OptionError: an option that cannot be used, or scores are asked for without ``validate``.
        OutputError: ``out`` or an unfinished run of it exists, there is nothing to resume, what is to be resumed is
            another run, or another process is in it.
        RankscopeError: the loss or the weights became NaN or infinite; the snapshot before is kept and named.
    """
    from transformers import set_seed

    if config.validation.every and validate is None:
        raise OptionError(
            f"validation.every is {config.validation.every}, but nothing was given to score with: pass validate, e.g. "
            "rankscope_eval.score_during_training(suite)."
        )
    begun = time.perf_counter()
    target = Path(out)
    run = run_folder.run_folder(target)
    arguments = training_arguments(config, run, device, workers)
    record = RunRecord(config, resolve_precision(config, device), processes.count())
    with contextlib.ExitStack() as held:
        start = processes.on_main(lambda: _look(record, target, resume, force))
        if start.finished is not None:
            return start.finished
        set_seed(config.seed)
        model = processes.together(lambda: new_model(config))
        spectra = processes.together(lambda: _spectra(config, model, run))
        opened = processes.together(lambda: open_corpus(config, run, skip_damaged, progress)) if config.shards else None
        processes.on_main(lambda: _begin(target, start, resume, held))  # from here on files change
        if opened is None:
            opened = processes.together(lambda: open_corpus(config, run, skip_damaged, progress))
        written = events.Events(run / events.FOLDER if tensorboard and processes.is_main() else None, start.step)
        trainer = _trainer(config, model, arguments, opened, start, _Beside(run, progress, validate, spectra, written))
        steps = _train(trainer, start, config.max_steps)
        written.close()
        report = PretrainReport(
            folder=str(target),
            steps=steps,
            loss=processes.on_main(lambda: curves.last_value(run / curves.LOSSES, "loss")),
            seconds=round(time.perf_counter() - begun, 1),
            parameters=sum(p.numel() for p in model.parameters()),
            skipped=opened.stream.skipped,
        )
        processes.on_main(lambda: _save(start.record, model, report, run, target, force, spectra))
    return report


def _look(record: RunRecord, target: Path, resume: bool, force: bool) -> _Start:
    """Decide where the run begins, and refuse what may not be."""
    run = run_folder.run_folder(target)
    if resume and not force and (report := _finished(record, target)) is not None:
        if run.is_dir():  # the process was killed between saving and cleaning up
            shutil.rmtree(run)
        return _Start(record, finished=report)
    refuse_existing(target, force)
    newest = run_folder.newest(run)
    if not resume:
        if newest is not None and not force:
            raise OutputError(
                f"snapshots of an unfinished run lie in {run}: go on with --resume, or start anew with --force."
            )
        return _Start(record)
    earlier = read_record(run)
    if earlier is None:
        raise OutputError(f"nothing to resume: no run in {run}. Start without --resume.")
    step = newest.step if newest else 0
    return _Start(go_on(run, earlier, record, step, diverged=run_folder.diverged(run)), newest)


def _begin(target: Path, start: _Start, resume: bool, held: contextlib.ExitStack) -> None:
    """Claim the folder of the run, and leave in it what there was at the point where the run begins."""
    run = run_folder.run_folder(target)
    held.enter_context(run_folder.claimed(run))
    for stale in target.parent.glob(f".{target.name}.*.partial"):  # of a process killed while it saved
        shutil.rmtree(stale, ignore_errors=True)
    if not resume:
        run_folder.clear(run)
        held.enter_context(run_folder.removed_if_empty(run))
    run_folder.tidy(run)
    for name in (curves.LOSSES, curves.SCORES):
        curves.forget_after(run / name, start.step)
    forget_after(run, start.step)
    start.record.write(run)
    (run / run_folder.DIVERGED).unlink(missing_ok=True)


def _finished(record: RunRecord, target: Path) -> PretrainReport | None:
    """Return the report of the same run where ``target`` holds its result."""
    try:
        found = codec.load(target / RECORD)
        same = not differences(config_from_dict(found["config"]), record.config)
        return replace(codec.parse(PretrainReport, found["report"]), folder=str(target)) if same else None
    except (ValueError, KeyError, TypeError):
        return None


@dataclass(frozen=True)
class _Beside:
    """What a run does beside its steps."""

    run: Path
    progress: Progress
    validate: Callable[[Any], Mapping[str, float]] | None
    spectra: SpectraLog | None
    events: events.Events


def _trainer(config: PretrainConfig, model: Any, arguments: Any, corpus: Any, start: _Start, beside: _Beside) -> Any:
    from rankscope.train.callbacks.health import Health
    from rankscope.train.callbacks.keeping import Keeping
    from rankscope.train.callbacks.logs import Logs
    from rankscope.train.callbacks.scores import Scores
    from rankscope.train.callbacks.sealing import Sealing
    from rankscope.train.callbacks.spectra import Spectra
    from rankscope.train.loop import Loop

    meter, clock, run = LossMeter(), Clock(), beside.run
    if start.snapshot is not None:
        meter.restore(start.snapshot.loss_total, start.snapshot.loss_steps)
    if config.gradient_checkpointing:
        _recompute_activations(model)
    callbacks: list[Any] = [Health(meter, run)]
    if beside.spectra is not None:
        callbacks.append(Spectra(config.spectra, beside.spectra, clock))
    if config.keep_steps:
        callbacks.append(Keeping(config.keep_steps, run))
    if config.validation.every and beside.validate is not None:
        callbacks.append(Scores(config, run, beside.validate, clock, beside.events, beside.progress))
    callbacks.append(Logs(config, run, meter, clock, beside.events, beside.progress))
    callbacks.append(Sealing(meter, run))
    tokens = config.family_record.vocabulary is not None
    collate = TokenCollator(model.config.chronos_config) if tokens else BoltCollator()
    return Loop(
        model=model, args=arguments, train_dataset=corpus, data_collator=collate, callbacks=callbacks, meter=meter
    )


def _train(trainer: Any, start: _Start, max_steps: int) -> int:
    """Take the steps that are left; return how many have been taken in all."""
    if start.snapshot is None:
        trainer.train()
    elif start.step < max_steps:
        trainer.train(resume_from_checkpoint=str(start.snapshot.folder))
    else:  # stopped between the last snapshot and the result: the Trainer would take one step too many
        trainer._load_from_checkpoint(str(start.snapshot.folder))
        return start.step
    return int(trainer.state.global_step)


def _recompute_activations(model: Any) -> None:
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})


def _spectra(config: PretrainConfig, model: Any, run: Path) -> SpectraLog | None:
    asked = bool(config.spectra.steps) or config.spectra.every > 0
    return SpectraLog(run, live_sites(config, model)) if asked else None


def _save(
    record: RunRecord,
    model: Any,
    report: PretrainReport,
    run: Path,
    target: Path,
    force: bool,
    spectra: SpectraLog | None,
) -> None:
    with atomic_folder(target, force=force) as folder:
        model.config.use_cache = True  # the Trainer turns it off, and forecasts would be slow for it
        model.to("cpu").save_pretrained(folder)
        written: dict[str, Any] = {"config": record.config, "report": report}
        if record.changes:
            written["changes"] = record.changes
        codec.write(folder / RECORD, written, indent=2)
        for name in (curves.LOSSES, curves.SCORES):
            if (run / name).exists():
                shutil.copyfile(run / name, folder / name)
        if spectra is not None:
            spectra.gather(folder)
        if (run / run_folder.KEPT_MODELS).is_dir():
            shutil.copytree(run / run_folder.KEPT_MODELS, folder / run_folder.KEPT_MODELS)
        if (run / events.FOLDER).is_dir():
            shutil.copytree(run / events.FOLDER, folder / events.FOLDER)
        for weights in folder.glob("*.safetensors"):  # safetensors writes them for the owner alone
            weights.chmod((folder / "config.json").stat().st_mode)
    shutil.rmtree(run, ignore_errors=True)
