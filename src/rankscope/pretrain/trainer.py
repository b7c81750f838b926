"""Pretraining on top of transformers' Trainer: devices, precision, accumulation and resuming come from there."""

from __future__ import annotations

import csv
import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rankscope.atomic import atomic_file, atomic_folder, refuse_existing
from rankscope.errors import OutputError, RankscopeError
from rankscope.pretrain.config import PretrainConfig, config_from_dict
from rankscope.pretrain.data.kernels import kernel_bank
from rankscope.pretrain.models import new_model
from rankscope.pretrain.stream import BoltCollator, SeriesStream, TokenCollator
from rankscope.progress import Progress, silent

if TYPE_CHECKING:
    from transformers import TrainingArguments

RUN_FOLDER = ".run"
"""Snapshots live in this subfolder of the output until the run is done."""


@dataclass(frozen=True)
class PretrainReport:
    """What a run did.

    Attributes:
        folder: where the checkpoint lies.
        steps: optimiser steps taken in all.
        loss: mean training loss over the last log interval.
        seconds: wall time of this call.
        parameters: trainable numbers in the model.
    """

    folder: str
    steps: int
    loss: float
    seconds: float
    parameters: int

    def to_json(self) -> dict[str, Any]:
        """Return the result in the shape ``rankscope/pretrain@1``."""
        return {"schema": "rankscope/pretrain@1", **self.__dict__}


def pretrain(
    config: PretrainConfig,
    out: Path | str,
    *,
    resume: bool = False,
    force: bool = False,
    device: str = "auto",
    workers: int = 0,
    progress: Progress = silent,
) -> PretrainReport:
    """Train a model from scratch and save it as a checkpoint that chronos-forecasting reads.

    Args:
        config: the run.
        out: folder of the finished checkpoint; snapshots of the run are kept beside it until it is done.
        resume: go on from the newest snapshot of an interrupted run with this ``out``.
        force: replace ``out``, and the snapshots of an unfinished run, if they exist.
        device: ``auto``, ``cpu`` or ``cuda``.
        workers: processes that generate series; 0 generates in the training process.
        progress: told the step, the total and the loss.

    Returns:
        The report; the folder also holds ``pretrain.json`` (config and report) and ``loss.csv``.

    Raises:
        OutputError: ``out`` or an unfinished run of it exists, or there is nothing to resume.
        RankscopeError: the loss became NaN; the snapshot before it is kept and named.
    """
    from transformers import set_seed

    target = Path(out)
    refuse_existing(target, force)
    run = target.with_name(f"{target.name}{RUN_FOLDER}")
    newest = _newest_snapshot(run)
    if resume and newest is None:
        raise OutputError(f"nothing to resume: no snapshot in {run}. Start without --resume.")
    if newest is not None and not resume and not force:
        raise OutputError(
            f"snapshots of an unfinished run lie in {run}: go on with --resume, or start anew with --force."
        )
    if not resume and run.exists():
        shutil.rmtree(run)
    run.mkdir(parents=True, exist_ok=True)
    _check_same_run(run, config)
    _forget_losses_after(run, int(newest.name.rpartition("-")[2]) if resume and newest else 0)
    set_seed(config.seed)
    bank = _bank(config, run, progress)
    model = new_model(config)
    begun = time.perf_counter()
    trainer = _trainer(config, model, SeriesStream(config, bank), run, device, workers, progress)
    result = trainer.train(resume_from_checkpoint=str(newest) if resume else None)
    report = PretrainReport(
        folder=str(target),
        steps=int(trainer.state.global_step),
        loss=_last_loss(run, result.training_loss),
        seconds=round(time.perf_counter() - begun, 1),
        parameters=sum(p.numel() for p in model.parameters()),
    )
    if trainer.is_world_process_zero():
        _save(config, model, report, run, target, force)
    return report


def _save(config: PretrainConfig, model: Any, report: PretrainReport, run: Path, target: Path, force: bool) -> None:
    with atomic_folder(target, force=force) as folder:
        model.to("cpu").save_pretrained(folder)
        record = {"config": config.to_dict(), "report": report.to_json()}
        (folder / "pretrain.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        shutil.copyfile(run / "loss.csv", folder / "loss.csv")
        for weights in folder.glob("*.safetensors"):  # safetensors writes them for the owner alone
            weights.chmod((folder / "config.json").stat().st_mode)
    shutil.rmtree(run, ignore_errors=True)


def _trainer(
    config: PretrainConfig,
    model: Any,
    data: SeriesStream,
    run: Path,
    device: str,
    workers: int,
    progress: Progress,
) -> Any:
    from torch.utils.data import SequentialSampler
    from transformers import Trainer, TrainerCallback

    class InOrder(Trainer):
        def _get_train_sampler(self, *args: Any, **kwargs: Any) -> Any:
            return SequentialSampler(data)

    class Log(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            if logs and "loss" in logs and state.is_world_process_zero:
                _append_loss(run, state.global_step, logs)
                progress(state.global_step, config.max_steps, f"loss {float(logs['loss']):.3f}")
                if not torch.isfinite(torch.tensor(float(logs["loss"]))):
                    raise RankscopeError(
                        f"the loss became {logs['loss']} at step {state.global_step}: lower learning_rate "
                        f"and go on with --resume from {_newest_snapshot(run) or 'the start'}."
                    )

    collate = TokenCollator(model.config.chronos_config) if config.family == "chronos-t5" else BoltCollator()
    trainer = InOrder(
        model=model,
        args=_arguments(config, run, device, workers),
        train_dataset=data,
        data_collator=collate,
        callbacks=[Log()],
    )
    from transformers.trainer_callback import PrinterCallback, ProgressCallback

    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    return trainer


def _arguments(config: PretrainConfig, run: Path, device: str, workers: int) -> TrainingArguments:
    from transformers import TrainingArguments

    extra = {"num_decay_steps": config.decay_steps} if config.schedule == "warmup_stable_decay" else {}
    return TrainingArguments(
        output_dir=str(run),
        max_steps=config.max_steps,
        per_device_train_batch_size=config.batch_size,
        gradient_accumulation_steps=config.accumulation,
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        warmup_steps=config.warmup_steps,
        lr_scheduler_type=config.schedule,
        lr_scheduler_kwargs=extra,
        save_steps=config.save_steps,
        save_total_limit=2,
        logging_steps=config.log_steps,
        logging_nan_inf_filter=False,
        seed=config.seed,
        data_seed=config.seed,
        dataloader_num_workers=workers,
        dataloader_pin_memory=torch.cuda.is_available() and device != "cpu",
        remove_unused_columns=False,
        report_to=[],
        disable_tqdm=True,
        use_cpu=device == "cpu",
        bf16=device != "cpu" and torch.cuda.is_available() and torch.cuda.is_bf16_supported(),
    )


def _check_same_run(run: Path, config: PretrainConfig) -> None:
    """Keep the config beside the snapshots and refuse to go on with another model or corpus."""
    file = run / "config.json"
    if file.exists():
        earlier = config_from_dict(json.loads(file.read_text(encoding="utf-8")))
        for name in ("family", "model", "context", "horizon", "mixture", "batch_size", "seed"):
            was, now = getattr(earlier, name), getattr(config, name)
            if was != now:
                raise OutputError(f"the run in {run} has {name} {was!r}, not {now!r}: resume it as it was.")
    with atomic_file(file) as path:
        path.write_text(json.dumps(config.to_dict(), indent=2), encoding="utf-8")


def _bank(config: PretrainConfig, run: Path, progress: Progress) -> Any:
    import numpy as np

    if config.bank_kernels < 1 or config.mixture.kernel_share <= 0:
        return None
    file = run / "bank.npy"
    if file.exists():
        return np.load(file, allow_pickle=False)
    length = config.context + config.horizon + 64
    bank = kernel_bank(config.seed, config.bank_kernels, config.bank_draws, length, progress)
    with atomic_file(file) as path:
        np.save(path, bank)
    return bank


def _newest_snapshot(run: Path) -> Path | None:
    steps = [p for p in run.glob("checkpoint-*") if (p / "trainer_state.json").exists()]
    return max(steps, key=lambda p: int(p.name.rpartition("-")[2]), default=None)


def _append_loss(run: Path, step: int, logs: dict[str, Any]) -> None:
    file = run / "loss.csv"
    fresh = not file.exists()
    with file.open("a", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle)
        if fresh:
            writer.writerow(["step", "loss", "learning_rate", "grad_norm"])
        writer.writerow([step, logs["loss"], logs.get("learning_rate"), logs.get("grad_norm")])


def _forget_losses_after(run: Path, step: int) -> None:
    """Drop the log lines of steps that will be taken again."""
    file = run / "loss.csv"
    if not file.exists():
        return
    with file.open(encoding="utf-8", newline="") as handle:
        rows = list(csv.reader(handle))
    with atomic_file(file) as path, path.open("w", newline="", encoding="utf-8") as handle:
        csv.writer(handle).writerows(rows[:1] + [row for row in rows[1:] if int(row[0]) <= step])


def _last_loss(run: Path, fallback: float) -> float:
    file = run / "loss.csv"
    if not file.exists():
        return float(fallback)
    with file.open(encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    return float(rows[-1]["loss"]) if rows else float(fallback)
