"""Execute a run of the tokenizer study."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rankscope.engine import Progress
from rankscope.io import codec
from rankscope_lab.data.table import VariableTable
from rankscope_lab.data.windows import MONTHS, ForecastData, check_season, forecast_data
from rankscope_lab.machine import describe
from rankscope_lab.measure import rank_record
from rankscope_lab.runs import write_weights
from rankscope_lab.tokenizers.autoencoder import AutoencoderSettings, train_autoencoder
from rankscope_lab.tokenizers.copying import EVERY, START, CopySettings, train_copier
from rankscope_lab.tokenizers.forecasting import STEPWISE, ForecastSettings, train_forecaster
from rankscope_lab.tokenizers.linear_regression import SgdSettings, fit_linear, least_squares, mean_squared_error
from rankscope_lab.tokenizers.parts import ScaledParts, scaled_parts, tiles
from rankscope_lab.tokenizers.run_spec import AUTOENCODER, COPY, FORECAST, LINEAR, VQ, Plan, RunRecord, Task
from rankscope_lab.tokenizers.transformer import shifted
from rankscope_lab.tokenizers.vq import VqSettings, train_vq

WINDOW = 96
LATENT, HIDDEN = 8, (64, 32)
LAGS = 24
"""Values that the linear regression reads to tell the next one."""


class Data:
    """A table, scaled and cut as each component needs it."""

    def __init__(self, table: VariableTable, plan: Plan, device: str) -> None:
        self.table, self.plan, self.device = table, plan, device

    def check(self) -> None:
        """Cut everything that the plan needs.

        Raises:
            DataError: the table is too short for a component, or its season longer than what a forecaster reads.
        """
        if {AUTOENCODER, VQ, LINEAR} & set(self.plan.components):
            for name in ("train", "validation", "test"):
                tiles(getattr(self.parts, name), WINDOW, what=f"the {name} part of {self.table.source}")
        if FORECAST in self.plan.components:
            check_season(self.forecast.season, self.plan.lookback)

    @property
    def name(self) -> str:
        """Description of the table."""
        rows, variables = self.table.values.shape
        return f"{self.table.name}, {rows} rows, {variables} variables"

    @property
    def digest(self) -> str:
        """Tells tables apart that the name does not."""
        return self.table.digest

    @cached_property
    def parts(self) -> ScaledParts:
        """Rows of the three parts."""
        return scaled_parts(self.table).to(self.device)

    @cached_property
    def forecast(self) -> ForecastData:
        """Windows of look-back and horizon; those of a part look back into the part before."""
        plan = self.plan
        return forecast_data(self.table, MONTHS, plan.lookback, plan.horizon, reach_back=True).to(self.device)


def run_task(task: Task, data: Data, folder: Path, progress: Progress) -> RunRecord:
    """Train and score a component.

    A VQ run that did not diverge leaves a checkpoint in ``folder/vq/<id>``, a transformer its weights in
    ``folder/weights/<id>.safetensors``.
    """
    begun = time.perf_counter()
    record = _RUNS[task.component](task, data, folder, progress)
    digest = data.digest if record.data else ""
    return replace(record, digest=digest, seconds=round(time.perf_counter() - begun, 2), machine=describe(data.device))


def _linear(task: Task, data: Data, folder: Path, progress: Progress) -> RunRecord:
    train, test = (
        values.cpu().double().unfold(0, LAGS + 1, 1).flatten(0, 1) for values in (data.parts.train, data.parts.test)
    )
    x, y, unseen, after = train[:, :-1], train[:, -1], test[:, :-1], test[:, -1]
    fit = fit_linear(x, y, SgdSettings(epochs=task.epochs, seed=task.seed))
    best = least_squares(x, y)
    return _record(
        task,
        data.name,
        float(mean_squared_error(unseen, after, fit.theta, fit.bias)),
        float(mean_squared_error(unseen, after, *best)),
        fit.diverged,
        LAGS + 1,
        codec.plain(fit),
    )


def _autoencoder(task: Task, data: Data, folder: Path, progress: Progress) -> RunRecord:
    hidden = HIDDEN if task.setting == "nonlinear" else ()
    settings = AutoencoderSettings(LATENT, hidden, epochs=task.epochs, seed=task.seed)
    train, test = tiles(data.parts.train, WINDOW), tiles(data.parts.test, WINDOW)
    result = train_autoencoder(train, test, settings, progress=progress)
    size, detail = result.parameters, codec.plain(result)
    record = _record(task, data.name, result.test, result.components_test, result.diverged, size, detail)
    return replace(record, width=LATENT)


def _vq(task: Task, data: Data, folder: Path, progress: Progress) -> RunRecord:
    codes, update = task.setting.split("-")
    settings = VqSettings(
        codes=int(codes),
        decay=0.95 if update == "ema" else None,
        revive=update != "loss",
        window=WINDOW,
        epochs=task.epochs,
        seed=task.seed,
    )
    result = train_vq(data.parts, settings, progress=progress)
    error = result.test.mse if result.test else float("nan")
    record = _record(task, data.name, error, float("nan"), result.diverged, result.parameters, codec.plain(result))
    record = replace(record, codes=settings.codes, width=settings.d_model)
    if result.diverged or result.test is None or result.codebook is None:
        return record
    result.save_pretrained(folder / "vq" / task.id, force=True)
    return replace(
        record,
        used=result.test.used,
        perplexity=result.test.perplexity,
        eps_ranks=dict(result.codebook.eps_ranks),
        effective_rank=result.codebook.effective_rank,
    )


def _copy(task: Task, data: Data, folder: Path, progress: Progress) -> RunRecord:
    learnt = 64 if task.setting == "learnt" else None
    settings = CopySettings(sequences=learnt, steps=task.epochs * EVERY, seed=task.seed)
    result = train_copier(settings, device=data.device, progress=progress)
    detail: dict[str, Any] = codec.plain(result)
    if not result.diverged:
        detail["ranks"] = _keep(result.model, folder, task, _copy_batch(settings, data.device))
    error, chance = result.error, 1 - 1 / settings.symbols
    record = _record(task, "", error, chance, result.diverged, result.parameters, detail)
    return replace(record, width=settings.shape.d_model)


def _copy_batch(settings: CopySettings, device: str) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(1, settings.symbols + 1, (256, settings.length), generator=generator).to(device)
    return source, shifted(source, torch.full_like(source[:, :1], START))


def _forecast(task: Task, data: Data, folder: Path, progress: Progress) -> RunRecord:
    plan, mode = data.plan, task.setting.rsplit("-", 2)[0]
    settings = ForecastSettings(mode, plan.lookback, plan.horizon, epochs=task.epochs, seed=task.seed)
    result = train_forecaster(data.forecast, settings, progress=progress)
    detail: dict[str, Any] = codec.plain(result)
    if not result.diverged:
        windows = data.forecast.test
        batch = windows.batch(torch.arange(0, len(windows), max(1, len(windows) // 64)))
        detail["ranks"] = _keep(result.model, folder, task, batch)
    scored, naive = (
        (result.daily, result.daily_naive)
        if mode == STEPWISE or result.every is None
        else (result.every, result.every_naive)
    )
    record = _record(task, data.name, scored.mse, naive.mse, result.diverged, result.parameters, detail)
    return replace(record, width=settings.shape.d_model)


_RUNS: dict[str, Callable[[Task, Data, Path, Progress], RunRecord]] = {
    LINEAR: _linear,
    AUTOENCODER: _autoencoder,
    VQ: _vq,
    COPY: _copy,
    FORECAST: _forecast,
}


def _record(
    task: Task, data: str, error: float, reference: float, diverged: bool, parameters: int, detail: dict[str, Any]
) -> RunRecord:
    return RunRecord(
        task, data, float("nan") if diverged else error, reference, diverged, parameters, 0.0, "", detail=detail
    )


def _keep(model: nn.Module, folder: Path, task: Task, batch: tuple[torch.Tensor, ...]) -> dict[str, Any]:
    """Write the weights, and return the ranks of matrices and of what runs through the layers."""
    write_weights(folder / "weights" / f"{task.id}.safetensors", model)
    return rank_record(model, batch)
