"""Train a stand-in and write its folder: weights, config, loss curve, model card."""

from __future__ import annotations

import csv
import os
import platform
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from rankscope.engine.progress import Progress, silent
from rankscope.errors import OptionError, unknown_choice
from rankscope.io import codec
from rankscope.io.atomic import atomic_folder, refuse_existing
from rankscope.train.proxies import images, series, text, tokenised
from rankscope.train.proxies.loop import Schedule, Trained, train
from rankscope.train.proxies.record import Recipe, StandIn, StandInOptions

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

STANDINS: dict[str, StandIn] = {
    standin.family: standin
    for standin in (
        StandIn("t5", "T5 v1.0 for text", "google-t5/t5-small", text.t5, 1500, 16, 2e-3, reads_text=True),
        StandIn("bert", "BERT", "google-bert/bert-base-uncased", text.bert, 1500, 16, 1e-3, reads_text=True),
        StandIn("time-moe", "Time-MoE with dense MLPs", "Maple728/TimeMoE-50M", tokenised.time_moe, 600, 16, 2e-3),
        StandIn("wavetoken", "WaveToken over a T5", "the paper's settings", tokenised.wavetoken, 1500, 16, 2e-3),
        StandIn("timesfm", "TimesFM", "google/timesfm-2.0-500m-pytorch", series.timesfm, 1500, 32, 1e-3),
        StandIn(
            "timesfm-2.5", "TimesFM 2.5", "google/timesfm-2.5-200m-transformers", series.timesfm2_5, 1000, 32, 1e-3
        ),
        StandIn("patchtst", "PatchTST", "ibm-granite/granite-timeseries-patchtst", series.patchtst, 600, 32, 1e-3),
        StandIn(
            "patchtsmixer",
            "PatchTSMixer",
            "ibm-granite/granite-timeseries-patchtsmixer",
            series.patchtsmixer,
            600,
            32,
            1e-3,
        ),
        StandIn("informer", "Informer", "huggingface/informer-tourism-monthly", series.informer, 600, 32, 1e-3),
        StandIn(
            "autoformer", "Autoformer", "huggingface/autoformer-tourism-monthly", series.autoformer, 1200, 32, 1e-3
        ),
        StandIn("vit", "ViT", "google/vit-base-patch16-224", images.vit, 1200, 32, 1e-3),
        StandIn("totem", "TOTEM VQ-VAE", "the paper's settings", tokenised.totem, 1000, 32, 1e-3),
    )
}
"""How each family's stand-in is trained, by family."""


@dataclass(frozen=True)
class StandInReport:
    """What was trained.

    Attributes:
        family: its family.
        out: its folder.
        parameters: numbers in it.
        steps: optimiser steps.
        batch_size: examples per step.
        seed: of every random choice.
        dtype: number format of the stored weights.
        seconds: wall time of training.
        data: what it learnt from, in words.
        loss: what the loss is, in words.
        loss_start: mean training loss of the first row of the curve.
        loss_end: mean training loss of the last one.
        held_out_before: loss on what is held out, before training.
        held_out_after: the same, after it.
        machine: what it ran on.
    """

    family: str
    out: str
    parameters: int
    steps: int
    batch_size: int
    learning_rate: float
    seed: int
    dtype: str
    seconds: float
    data: str
    loss: str
    loss_start: float
    loss_end: float
    held_out_before: float
    held_out_after: float
    machine: str

    SCHEMA: ClassVar = "rankscope/standin@1"


def train_standin(
    family: str,
    out: str | Path,
    options: StandInOptions | None = None,
    *,
    dtype: str = "float32",
    force: bool = False,
    progress: Progress | None = None,
) -> StandInReport:
    """Train a small model of a family on the CPU and write its folder, whole or not at all.

    Args:
        family: key of `STANDINS`.
        out: folder to write.
        options: what differs from the family's own settings.
        dtype: number format of the stored weights: ``float32``, ``float16`` or ``bfloat16``.
        force: replace ``out`` if it exists.
        progress: told the steps done.

    Raises:
        OptionError: an unknown family or format, or an option that the family cannot use.
        OutputError: ``out`` exists, or cannot be written.
        DataError: the text cannot be used.
    """
    if family not in STANDINS:
        raise OptionError(unknown_choice("family", family, STANDINS))
    if dtype not in DTYPES:
        raise OptionError(unknown_choice("dtype", dtype, DTYPES))
    chosen, standin = options or StandInOptions(), STANDINS[family]
    if chosen.text is not None and not standin.reads_text:
        raise OptionError(f"--text is of no use here: {family} reads no text.")
    refuse_existing(out, force)
    steps, batch_size = chosen.steps or standin.steps, chosen.batch_size or standin.batch_size
    rate = chosen.learning_rate or standin.learning_rate
    report = progress or silent
    report(0, steps, "preparing")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(chosen.seed)
        recipe = standin.make(chosen, batch_size)
        trained = train(recipe.model, recipe.batches, Schedule(steps, rate, standin.weight_decay), report)
    result = StandInReport(
        family=family,
        out=str(out),
        parameters=sum(p.numel() for p in recipe.model.parameters()),
        steps=steps,
        batch_size=batch_size,
        learning_rate=rate,
        seed=chosen.seed,
        dtype=dtype,
        seconds=round(trained.seconds, 1),
        data=recipe.data,
        loss=recipe.loss,
        loss_start=trained.curve[0][1],
        loss_end=trained.curve[-1][1],
        held_out_before=trained.before,
        held_out_after=trained.after,
        machine=_machine(),
    )
    with atomic_folder(out, force) as folder:
        _write(folder, standin, recipe, trained, result)
    return result


def _write(folder: Path, standin: StandIn, recipe: Recipe, trained: Trained, result: StandInReport) -> None:
    module = recipe.model.to(DTYPES[result.dtype])
    if recipe.save is not None:
        recipe.save(module, folder)
    else:
        save: Any = module
        save.save_pretrained(str(folder), safe_serialization=True)
    if recipe.write is not None:
        recipe.write(folder)
    for written in folder.iterdir():  # some savers keep others from reading
        written.chmod(written.stat().st_mode | 0o044)
    with (folder / "loss.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("step", "loss", "learning_rate"))
        rows.writerows((step, f"{loss:.6g}", f"{rate:.6g}") for step, loss, rate in trained.curve)
    codec.write(folder / "standin.json", replace(result, out=Path(result.out).name), indent=2)
    (folder / "README.md").write_text(model_card(standin, recipe, result, folder_name=Path(result.out).name))


def _machine() -> str:
    threads = torch.get_num_threads()
    return f"{threads} thread{'s' if threads > 1 else ''} on {platform.machine()}, {os.cpu_count()} cores, no GPU"


def model_card(standin: StandIn, recipe: Recipe, result: StandInReport, folder_name: str) -> str:
    """Write the card: what it is, what it learnt from, how long, and how far the loss came down."""
    rows = [
        ("layout", f"{standin.layout} (safetensors, {result.dtype}; trained in float32)"),
        ("modelled on", standin.published),
        ("parameters", f"{result.parameters:,}"),
        *recipe.notes,
        ("data", result.data),
        ("steps", f"{result.steps:,} of {result.batch_size} examples, seed {result.seed}"),
        ("optimiser", f"AdamW (0.9, 0.98), peak learning rate {result.learning_rate:g}, cosine to a tenth"),
        ("machine", f"{result.machine}, {result.seconds:.0f} s"),
        (
            "training loss",
            f"{result.loss_start:.4g} at the start, {result.loss_end:.4g} at the end ({result.loss}; `loss.csv`)",
        ),
        ("held-out loss", f"{result.held_out_before:.4g} before training, {result.held_out_after:.4g} after"),
    ]
    table = "\n".join(f"| {name} | {text} |" for name, text in rows)
    return f"""---
license: apache-2.0
tags: [rankscope]
---

# {folder_name}: a small {standin.layout}

Trained from scratch by this project with `rankscope standin {standin.family}`, so that spectra and ranks of this family
can be measured on trained weights where no hub can be reached. It is no model to forecast with.

| | |
|---|---|
{table}
"""
