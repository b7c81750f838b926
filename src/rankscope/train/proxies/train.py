"""Train a proxy model and write its folder: weights, config, loss curve, model card."""

from __future__ import annotations

import csv
import math
import os
import platform
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from rankscope.engine import Progress, silent
from rankscope.engine.randomness import seeded
from rankscope.errors import OptionError, RankscopeError, unknown_choice
from rankscope.io import codec
from rankscope.io.atomic import atomic_folder, refuse_existing
from rankscope.train.proxies import series, text_images, tokenised
from rankscope.train.proxies.recipe import Batch, Batches, ProxyModel, ProxyOptions, Recipe

HELD_OUT = 8
"""Held-out batches, scored before and after training."""
POINTS = 100
"""Approximate number of rows of the loss curve."""
_LEAST = 0.1
"""Final learning rate as a fraction of the peak."""
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Schedule:
    """Steps, learning rate and weight decay."""

    steps: int
    learning_rate: float
    weight_decay: float

    def share(self, step: int) -> float:
        """Share of the peak rate at a step: linear warm-up over a twentieth of the steps, then a cosine to a tenth.

        >>> schedule = Schedule(100, 1e-3, 0.0)
        >>> schedule.share(0), round(schedule.share(5), 6), round(schedule.share(100), 6)
        (0.2, 1.0, 0.1)
        """
        warm = max(1, self.steps // 20)
        if step < warm:
            return (step + 1) / warm
        done = (step - warm) / max(1, self.steps - warm)
        return _LEAST + (1 - _LEAST) * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))


@dataclass(frozen=True)
class Trained:
    """Training history.

    Attributes:
        curve: rows (step, mean loss since the last row, learning rate).
        before: mean loss over the held-out batches at the start.
        after: the same at the end.
        seconds: wall time of the steps.
    """

    curve: list[tuple[int, float, float]]
    before: float
    after: float
    seconds: float


def train(model: nn.Module, batches: Batches, schedule: Schedule, progress: Progress) -> Trained:
    """Train in place.

    Raises:
        RankscopeError: the loss stopped being a number.
    """
    before = held_out_loss(model, batches)
    start = time.perf_counter()
    # as everywhere, vectors (norms and biases) are not decayed
    matrices = [p for p in model.parameters() if p.requires_grad and p.ndim > 1]
    vectors = [p for p in model.parameters() if p.requires_grad and p.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": schedule.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, lr=schedule.learning_rate, betas=(0.9, 0.98))
    every = max(1, schedule.steps // POINTS)
    curve: list[tuple[int, float, float]] = []
    losses: list[float] = []
    model.train()
    for step in range(schedule.steps):
        rate = schedule.learning_rate * schedule.share(step)
        for group in optimiser.param_groups:
            group["lr"] = rate
        losses.append(_step(model, batches(step, False), optimiser))
        if not math.isfinite(losses[-1]):
            raise RankscopeError(f"the loss is {losses[-1]} at step {step + 1}: train with a lower learning rate.")
        if (step + 1) % every == 0 or step + 1 == schedule.steps:
            curve.append((step + 1, sum(losses) / len(losses), rate))
            losses = []
            progress(step + 1, schedule.steps, f"training, loss {curve[-1][1]:.3f}")
    seconds = time.perf_counter() - start
    return Trained(curve, before, held_out_loss(model, batches), seconds)


@torch.no_grad()
def held_out_loss(model: nn.Module, batches: Batches) -> float:
    """Mean loss of the held-out batches, the module in evaluation mode."""
    model.eval()
    return sum(float(_loss(model, batches(step, True))) for step in range(HELD_OUT)) / HELD_OUT


def _step(model: nn.Module, batch: Batch, optimiser: Any) -> float:
    optimiser.zero_grad(set_to_none=True)
    loss = _loss(model, batch)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    return float(loss.detach())


def _loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    loss: torch.Tensor = model(**batch).loss
    return loss


PROXIES: dict[str, ProxyModel] = {
    proxy.family: proxy
    for proxy in (
        ProxyModel("t5", "T5 v1.0 for text", "google-t5/t5-small", text_images.t5, 1500, 16, 2e-3, reads_text=True),
        ProxyModel("bert", "BERT", "google-bert/bert-base-uncased", text_images.bert, 1500, 16, 1e-3, reads_text=True),
        ProxyModel("time-moe", "Time-MoE with dense MLPs", "Maple728/TimeMoE-50M", tokenised.time_moe, 600, 16, 2e-3),
        ProxyModel("wavetoken", "WaveToken over a T5", "the paper's settings", tokenised.wavetoken, 1500, 16, 2e-3),
        ProxyModel("timesfm", "TimesFM", "google/timesfm-2.0-500m-pytorch", series.timesfm, 1500, 32, 1e-3),
        ProxyModel(
            "timesfm-2.5", "TimesFM 2.5", "google/timesfm-2.5-200m-transformers", series.timesfm2_5, 1000, 32, 1e-3
        ),
        ProxyModel("patchtst", "PatchTST", "ibm-granite/granite-timeseries-patchtst", series.patchtst, 600, 32, 1e-3),
        ProxyModel(
            "patchtsmixer",
            "PatchTSMixer",
            "ibm-granite/granite-timeseries-patchtsmixer",
            series.patchtsmixer,
            600,
            32,
            1e-3,
        ),
        ProxyModel("informer", "Informer", "huggingface/informer-tourism-monthly", series.informer, 600, 32, 1e-3),
        ProxyModel(
            "autoformer", "Autoformer", "huggingface/autoformer-tourism-monthly", series.autoformer, 1200, 32, 1e-3
        ),
        ProxyModel("vit", "ViT", "google/vit-base-patch16-224", text_images.vit, 1200, 32, 1e-3),
        ProxyModel("totem", "TOTEM VQ-VAE", "the paper's settings", tokenised.totem, 1000, 32, 1e-3),
    )
}
"""Proxy models by family."""


@dataclass(frozen=True)
class ProxyReport:
    """Report of a trained proxy model.

    Attributes:
        family: model family.
        out: output folder.
        parameters: number of parameters.
        steps: optimiser steps.
        batch_size: examples per step.
        seed: random seed.
        dtype: dtype of the stored weights.
        seconds: wall time of training.
        data: description of the training data.
        loss: description of the loss.
        loss_start: mean training loss of the first row of the curve.
        loss_end: mean training loss of the last one.
        held_out_before: held-out loss before training.
        held_out_after: held-out loss after training.
        machine: machine description.
        width: d_model that was asked for; None for the family's own, and in files from before it was kept.
        layers: layers that were asked for; likewise.
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
    width: int | None = None
    layers: int | None = None

    SCHEMA: ClassVar = "rankscope/standin@1"


def train_proxy(
    family: str,
    out: str | Path,
    options: ProxyOptions | None = None,
    *,
    dtype: str = "float32",
    force: bool = False,
    progress: Progress | None = None,
) -> ProxyReport:
    """Train a small model of a family on CPU and write its folder atomically.

    Args:
        family: key of `PROXIES`.
        out: folder to write.
        options: overrides of the family's settings.
        dtype: dtype of the stored weights: ``float32``, ``float16`` or ``bfloat16``.
        force: overwrite ``out`` if it exists.
        progress: progress callback.

    Raises:
        OptionError: an unknown family or format, or an option that the family cannot use.
        OutputError: ``out`` exists, or cannot be written.
        DataError: the text cannot be used.
    """
    if family not in PROXIES:
        raise OptionError(unknown_choice("family", family, PROXIES))
    if dtype not in DTYPES:
        raise OptionError(unknown_choice("dtype", dtype, DTYPES))
    chosen, proxy = options or ProxyOptions(), PROXIES[family]
    for name in ("text", "vocabulary"):
        if not proxy.reads_text and getattr(chosen, name) != getattr(ProxyOptions, name):
            raise OptionError(f"--{name} has no effect: {family} reads no text.")
    refuse_existing(out, force)
    steps, batch_size = chosen.steps or proxy.steps, chosen.batch_size or proxy.batch_size
    rate = chosen.learning_rate or proxy.learning_rate
    report = progress or silent
    report(0, steps, "preparing")
    with seeded(chosen.seed):
        recipe = proxy.make(chosen, batch_size)
        trained = train(recipe.model, recipe.batches, Schedule(steps, rate, proxy.weight_decay), report)
    result = ProxyReport(
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
        width=chosen.width,
        layers=chosen.layers,
    )
    with atomic_folder(out, force) as folder:
        _write(folder, proxy, recipe, trained, result)
    return result


def _write(folder: Path, proxy: ProxyModel, recipe: Recipe, trained: Trained, result: ProxyReport) -> None:
    module = recipe.model.to(DTYPES[result.dtype])
    recipe.save(module, folder)
    if recipe.write is not None:
        recipe.write(folder)
    for written in folder.iterdir():  # some savers keep others from reading
        written.chmod(written.stat().st_mode | 0o044)
    with (folder / "loss.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("step", "loss", "learning_rate"))
        rows.writerows((step, f"{loss:.6g}", f"{rate:.6g}") for step, loss, rate in trained.curve)
    codec.write(folder / "standin.json", replace(result, out=Path(result.out).name), indent=2)
    (folder / "README.md").write_text(model_card(proxy, recipe, result, folder_name=Path(result.out).name))


def _machine() -> str:
    threads = torch.get_num_threads()
    return f"{threads} thread{'s' if threads > 1 else ''} on {platform.machine()}, {os.cpu_count()} cores, no GPU"


def model_card(proxy: ProxyModel, recipe: Recipe, result: ProxyReport, folder_name: str) -> str:
    """Write the model card."""
    rows = [
        ("layout", f"{proxy.layout} (safetensors, {result.dtype}; trained in float32)"),
        ("modelled on", proxy.published),
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

# {folder_name}: a small {proxy.layout}

Trained from scratch by this project with `rankscope standin {proxy.family}`, so that spectra and ranks of this family
can be measured on trained weights where no hub can be reached. It is not a model to forecast with.

| | |
|---|---|
{table}
"""
