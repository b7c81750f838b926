"""Pretraining on top of transformers' Trainer: devices, precision, processes and accumulation come from there."""

from __future__ import annotations

import contextlib
import functools
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from rankscope.checkpoints import open_checkpoint
from rankscope.engine import Progress, silent
from rankscope.engine.interrupts import uninterrupted
from rankscope.engine.randomness import random_states_kept
from rankscope.errors import DataError, OptionError
from rankscope.io import codec
from rankscope.io.atomic import atomic_folder
from rankscope.io.checksum import checksums
from rankscope.io.run_store import differences, refuse_both
from rankscope.train import logs, processes, run_folder
from rankscope.train.config import PretrainConfig, config_from_dict
from rankscope.train.data.mixture import CORPUS_VERSION
from rankscope.train.data.shard_files import INDEX, read_index
from rankscope.train.logs import Clock, LossMeter
from rankscope.train.models import new_model
from rankscope.train.run_folder import CHECKSUMS, Snapshot, TrainingRun
from rankscope.train.spectra import SpectraLog, forget_after, live_sites
from rankscope.train.stream import BoltCollator, GroupCollator, ScaledCollator, TokenCollator, open_corpus
from rankscope.train.teaching import Taught, answers, taught_loss

RECORD = "pretrain.json"
READ = ("corpus_version", CHECKSUMS)
"""Settings of a run, beside its config, that say what it has read."""
MAY_CHANGE = ("log_steps", "save_steps", "keep_steps", "validation", "spectra")
"""Settings that a resumed run may change: none of them changes a bit of a weight. All others do:
activations that are computed again, and compiled networks, round differently.
"""


@dataclass(frozen=True)
class PretrainReport:
    """Result of a run.

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


@random_states_kept()
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
        resume: go on from the newest whole snapshot of a stopped run with this ``out``, however it was stopped; begin
            where there is none. A run that is finished already is not repeated: its report is returned. One that
            diverged may go on with a lower learning rate or gradient norm, as another run from that snapshot on.
        force: replace ``out``, and the snapshots of an unfinished run, if they exist.
        device: ``auto``, ``cpu`` or ``cuda``.
        workers: processes that generate series, per training process; 0 generates in the training process.
        progress: called with the step, the total and the loss with the speed.
        validate: scores by name of the network as it is then, in evaluation mode; needed, and called in the first
            process only, where ``config.validation.every`` is set. ``rankscope_eval.score_during_training`` makes one.
        skip_damaged: leave damaged files of ``config.shards`` out, where they are otherwise an error.
        tensorboard: also write event files, into the folder ``tensorboard``.

    Returns:
        The report. The folder also holds ``pretrain.json`` (config; as ``conditions`` the arithmetic, the number
        of processes, the version of generated series and the checksums of what was read; report; what was lowered on
        the way, if anything), ``loss.csv`` and, where the config
        asks for them, ``validation.csv`` and ``spectra.parquet``.

    Raises:
        OptionError: an option that cannot be used, or scores are asked for without ``validate``.
        OutputError: ``out`` or an unfinished run of it exists, what is to be resumed is another run, or another
            process is in it.
        RankscopeError: the loss or the weights became NaN or infinite; the snapshot before is kept and named.
    """
    from transformers import set_seed

    from rankscope.train.loop import resolve_precision, training_arguments

    if config.validation.every and validate is None:
        raise OptionError(
            f"validation.every is {config.validation.every}, but nothing was given to score with: pass validate, e.g. "
            "rankscope_eval.score_during_training(suite)."
        )
    refuse_both(resume, force)
    begun = time.perf_counter()
    target = Path(out)
    run = run_folder.beside(target)
    begun_with = run_folder.begun_with(target) if resume else {}
    precision = resolve_precision(config, device, begun_with)
    # joins the processes, which are counted then
    arguments = training_arguments(replace(config, precision=precision), run, device, workers)
    read = processes.on_main(lambda: read_checksums(config))
    kept = training_run(config, target, precision, processes.count(), read)
    with contextlib.ExitStack() as held:
        if resume and (report := processes.on_main(lambda: _finished(config, kept))) is not None:
            return report
        if not begun_with:
            processes.on_main(lambda: check_effects(config))
        start = processes.on_main(lambda: kept.check(resume, force))
        set_seed(config.seed)
        model = processes.together(lambda: new_model(config))
        spectra = processes.together(lambda: _spectra(config, model, run))
        opened: Any = None
        if config.shards:
            opened = processes.together(lambda: open_corpus(config, run, skip_damaged, progress))
        processes.on_main(lambda: _begin(kept, resume, force, held))  # from here on files change
        if opened is None:
            opened = processes.together(lambda: open_corpus(config, run, skip_damaged, progress))
        if config.teacher.asked:
            where = str(arguments.device)
            opened = processes.together(
                lambda: Taught(opened, config, answers(config, opened, run, progress, where, "auto"))
            )
        place = run / logs.TENSORBOARD if tensorboard and processes.is_main() else None
        written = logs.Events(place, start.step if start else 0)
        trainer = _trainer(config, model, arguments, opened, start, _Beside(kept, progress, validate, spectra, written))
        steps = take_steps(trainer, start, start is not None and start.step >= config.max_steps)
        written.close()
        report = PretrainReport(
            folder=str(target),
            steps=steps,
            loss=processes.on_main(lambda: logs.last_loss(run)),
            seconds=round(time.perf_counter() - begun, 1),
            parameters=sum(p.numel() for p in model.parameters()),
            skipped=opened.stream.skipped,
        )
        processes.on_main(lambda: _save(config, model, report, kept, spectra))
    return report


def training_run(
    config: PretrainConfig,
    target: Path,
    precision: str,
    processes: int,
    read: Mapping[str, str] | None = None,
) -> TrainingRun:
    """The run of a config into a folder.

    Args:
        config: the run.
        target: folder of the checkpoint.
        precision: ``fp32`` or ``bf16``: what ``auto`` means on the device.
        processes: that train together.
        read: `read_checksums` of what the config names.
    """
    settings = {**codec.plain(config), "arithmetic": precision, "processes": processes}
    if not config.teacher.model:  # runs from before there were teachers, parts to train, or groups, go on
        del settings["teacher"]
    if not config.trainable:
        del settings["trainable"]
    if not config.mixture.group_share:
        settings["mixture"] = {name: value for name, value in settings["mixture"].items() if "group" not in name}
    if not config.shards:
        settings["corpus_version"] = CORPUS_VERSION
    if read:
        settings[CHECKSUMS] = dict(read)
    return TrainingRun(target, "a training run", "rankscope/pretrain-run@1", settings, MAY_CHANGE)


def check_effects(config: PretrainConfig) -> None:
    """Refuse settings of a new run that nothing would look at; a run that was begun with such goes on.

    Raises:
        OptionError: there are some.
    """
    if config.shards and (config.mixture.files or config.mixture.group_share):
        raise OptionError("shards hold all series of a run: leave out mixture.files and group_share, or shards.")
    if config.mixture.plain_groups and not config.mixture.group_share:
        raise OptionError("mixture.plain_groups has no effect without groups: give mixture.group_share, too.")
    if config.decay_steps and config.schedule != "warmup_stable_decay":
        raise OptionError(
            f"decay_steps {config.decay_steps} has no effect with schedule {config.schedule}: leave it out, or write "
            "schedule: warmup_stable_decay."
        )
    for name, steps in (("keep_steps", config.keep_steps), ("spectra.steps", config.spectra.steps)):
        if max(steps, default=0) > config.max_steps:
            raise OptionError(f"{name} has {max(steps)}, and the run ends at max_steps {config.max_steps}: lower it.")


def data_checksums(files: tuple[str, ...], shards: str) -> dict[str, str]:
    """Checksums of the user's files and of the index of a folder of shards, if one is named, by their names.

    Raises:
        DataError: a file is missing, or the folder of shards has no index.
    """
    read: dict[str, Path] = {}
    for name in files:
        read[name] = Path(name)
        if not read[name].exists():
            raise DataError(f"data file {name} does not exist.")
    if shards:
        read_index(Path(shards))
        read[shards] = Path(shards) / INDEX
    return {name: checksums([(file.name, file)])[:16] for name, file in read.items()}


def read_checksums(config: PretrainConfig) -> dict[str, str]:
    """`data_checksums`, and those of the checkpoints that a run reads.

    Raises:
        DataError: a file is missing, or the folder of shards has no index.
        CheckpointError: a checkpoint cannot be read.
    """
    read: dict[str, dict[str, Path]] = {}
    for name in filter(None, (config.weights, config.teacher.model, config.embedding.model)):
        source = open_checkpoint(name)
        files = {source.folder / "config.json", *(info.file for info in source.index.values())}
        read[name] = {file.name: file for file in files}
    data = data_checksums(config.mixture.files, config.shards)
    return {**data, **{name: checksums(files.items())[:16] for name, files in read.items()}}


def _begin(kept: TrainingRun, resume: bool, force: bool, held: contextlib.ExitStack) -> None:
    """Claim the folder of the run, and leave in it what there was at the point where the run begins."""
    held.enter_context(kept.open(resume, force))
    step = kept.snapshot.step if kept.snapshot else 0
    for name in (logs.LOSSES, logs.SCORES):
        logs.forget_after(kept.folder / name, step)
    forget_after(kept.folder, step)


def _finished(config: PretrainConfig, kept: TrainingRun) -> PretrainReport | None:
    """Return the report of the same run where its result is there, and remove what a kill left beside it."""
    if (kept.store.manifest() or {}).get("replaces"):  # what is there is what the run begun with --force replaces
        return None
    try:
        found = codec.load(kept.target / RECORD)
        changed = differences(config_from_dict(found["config"]), config)
        if any(name.partition(".")[0] not in MAY_CHANGE for name, *_ in changed):
            return None
        was, now = found.get("conditions", {}), kept.store.settings or {}  # records of earlier versions do not have it
        if any(name in was and was[name] != now.get(name) for name in READ):
            return None
        report = replace(codec.parse(PretrainReport, found["report"]), folder=str(kept.target))
    except (ValueError, KeyError, TypeError):
        return None
    kept.clean()
    return report


@dataclass(frozen=True)
class _Beside:
    """Parts of a run beside its steps."""

    kept: TrainingRun
    progress: Progress
    validate: Callable[[Any], Mapping[str, float]] | None
    spectra: SpectraLog | None
    events: logs.Events


def _trainer(
    config: PretrainConfig, model: Any, arguments: Any, corpus: Any, start: Snapshot | None, beside: _Beside
) -> Any:
    from rankscope.train.callbacks import Health, Keeping, Logs, Scores, Sealing, Spectra
    from rankscope.train.loop import Loop

    meter, clock, run = LossMeter(), Clock(), beside.kept.folder
    if start is not None:
        meter.restore(start.loss_total, start.loss_steps)
    if config.gradient_checkpointing:
        _recompute_activations(model)
    callbacks: list[Any] = [Health(meter, beside.kept.store)]
    if beside.spectra is not None:
        callbacks.append(Spectra(config.spectra, beside.spectra, clock))
    if config.keep_steps:
        callbacks.append(Keeping(config.keep_steps, run))
    if config.validation.every and beside.validate is not None:
        callbacks.append(Scores(config, run, beside.validate, clock, beside.events, beside.progress))
    callbacks.append(Logs(config, run, meter, clock, beside.events, beside.progress))
    callbacks.append(Sealing(meter, run))
    collate: Callable[[Any], Any] = BoltCollator()
    if config.teacher.asked:
        collate = ScaledCollator()
    elif config.family_record.vocabulary is not None:
        collate = TokenCollator(model.config.chronos_config)
    elif config.family_record.grouped:
        collate = GroupCollator(config.model.patch_size)
    return Loop(
        model=model,
        args=arguments,
        train_dataset=corpus,
        data_collator=collate,
        callbacks=callbacks,
        meter=meter,
        embedding_rate=config.embedding.rate,
        loss=functools.partial(taught_loss, truth=config.teacher.truth) if config.teacher.asked else None,
    )


def take_steps(trainer: Any, start: Snapshot | None, over: bool) -> int:
    """Take the steps that are left; return how many have been taken in all.

    Ctrl-C waits for the end of a step and its snapshot, in a run of one process.

    Args:
        trainer: a transformers Trainer.
        start: snapshot to go on from.
        over: True if none is left, where a run was stopped between its last snapshot and its result.
    """
    from rankscope.train.callbacks import Interruption

    if start is not None and over:  # the Trainer would take one step too many
        trainer._load_from_checkpoint(str(start.folder))
        return start.step
    with contextlib.nullcontext(()) if processes.joined() else uninterrupted() as interrupts:
        trainer.add_callback(Interruption(interrupts))
        trainer.train(resume_from_checkpoint=None if start is None else str(start.folder))
    return int(trainer.state.global_step)


def _recompute_activations(model: Any) -> None:
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})


def _spectra(config: PretrainConfig, model: Any, run: Path) -> SpectraLog | None:
    asked = bool(config.spectra.steps) or config.spectra.every > 0
    return SpectraLog(run, live_sites(config, model)) if asked else None


def _save(
    config: PretrainConfig,
    model: Any,
    report: PretrainReport,
    kept: TrainingRun,
    spectra: SpectraLog | None,
) -> None:
    run = kept.folder
    with atomic_folder(kept.target, force=kept.replaces) as folder:
        model.config.use_cache = True  # the Trainer turns it off, and forecasts would be slow for it
        model.to("cpu").save_pretrained(folder)
        fields, settings = codec.plain(config), kept.store.settings or {}
        conditions = {name: value for name, value in settings.items() if name not in fields}
        written: dict[str, Any] = {"config": config, "conditions": conditions, "report": report}
        if kept.changes:
            written["changes"] = kept.changes
        codec.write(folder / RECORD, written, indent=2)
        for name in (logs.LOSSES, logs.SCORES):
            if (run / name).exists():
                shutil.copyfile(run / name, folder / name)
        if spectra is not None:
            spectra.gather(folder)
        if (run / run_folder.KEPT_MODELS).is_dir():
            shutil.copytree(run / run_folder.KEPT_MODELS, folder / run_folder.KEPT_MODELS)
        if (run / logs.TENSORBOARD).is_dir():
            shutil.copytree(run / logs.TENSORBOARD, folder / logs.TENSORBOARD)
        for weights in folder.glob("*.safetensors"):  # safetensors writes them for the owner alone
            weights.chmod((folder / "config.json").stat().st_mode)
    if kept.replaces:
        kept.store.note(replaces=None)  # first: a kill while the snapshots go must not have them made again
    kept.clean()
