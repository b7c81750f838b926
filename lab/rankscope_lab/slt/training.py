"""Training of one cell: epochs that can be taken up where they ended, and the scores after each."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rankscope.errors import DataError
from rankscope.io import codec
from rankscope_lab.data.windows import ForecastData
from rankscope_lab.kernels import accelerate
from rankscope_lab.machine import describe, products
from rankscope_lab.measure import rank_record
from rankscope_lab.slt.cell import Cell, CellResult, Epoch, Score, Windows
from rankscope_lab.slt.models import Sizes, build_model, count_parameters
from rankscope_lab.slt.protocol import BEST, Protocol, protocol
from rankscope_lab.slt.scoring import Errors, score, windows_per_second
from rankscope_lab.snapshots import read_state, restore_training, training_tensors, write_state

CHUNK = 56
"""Series of a forward and backward pass on the CPU: more no longer fit into its caches."""

WATCHED = 16
"""Test windows on which the ranks of the stream are measured."""

CHOSEN = "chosen/"
"""In a state: the weights of the best validation so far."""

Told = Callable[[CellResult], None]
"""Called with the result so far after every epoch."""


def windows_of(data: ForecastData) -> Windows:
    """How many each part has."""
    return Windows(len(data.train), len(data.validation), len(data.test))


def check_table(result: CellResult, data: ForecastData, source: str) -> None:
    """Refuse a result that was run on another table of the same name.

    Raises:
        DataError: columns, windows, or values differ.
    """
    same = (result.columns, result.windows) == (len(data.columns), windows_of(data))
    if not same or result.digest not in ("", data.digest):
        raise DataError(
            f"{source} was run on another table of the name {data.name} ({result.columns} columns, "
            f"{result.windows.train:,} training windows): choose another --out, or delete it."
        )


def watched(data: ForecastData) -> Tensor:
    """Test windows that lie evenly apart, windows × lookback × variables: ranks of the stream are measured on them."""
    at = torch.linspace(0, len(data.test) - 1, min(WATCHED, len(data.test)), device=data.test.values.device)
    return data.test.batch(at.long())[0]


def new_model(cell: Cell, season: int) -> nn.Module:
    """The model of a cell before training: its seed decides the draws."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(cell.seed)
        return build_model(cell.model, Sizes(season, cell.lookback, cell.horizon), revin=cell.revin)


class CellTraining:
    """One cell from its first epoch, or from where a stopped run left it.

    Every epoch has its own order and its own seed for dropout, so a run that was stopped between epochs ends with the
    numbers that it would have had.

    Args:
        cell: which.
        data: its table, windows cut as the cell's protocol says.
        device: ``cpu`` or ``cuda``.
        state: file that holds weights, optimiser and scores between epochs; None: nothing is kept.
        compiled: on the CPU let compiled functions do dropout and attention, where there is a compiler.

    Raises:
        DataError: the state is of another cell, or cannot be read.
    """

    def __init__(
        self,
        cell: Cell,
        data: ForecastData,
        *,
        device: str = "cpu",
        state: Path | None = None,
        compiled: bool = True,
    ) -> None:
        self.cell, self.data, self.device, self.state = cell, data.to(device), device, state
        self.rules: Protocol = protocol(cell.protocol)
        self.model = new_model(cell, data.season).to(device)
        if device == "cpu" and compiled:
            accelerate(self.model)
        self.compiled = any(hasattr(module, "compiled") for module in self.model.modules())
        self.result = CellResult(
            cell,
            (),
            count_parameters(self.model),
            len(data.columns),
            windows_of(data),
            machine=self._machine(),
            digest=data.digest,
        )
        self._best: dict[str, Tensor] = {}  # weights of the best validation, where the protocol tests those
        self.chunk = max(1, CHUNK // len(data.columns)) if device == "cpu" else self.rules.batch
        self.optimizer: torch.optim.Optimizer | None = None
        if self.result.parameters:
            self.optimizer = torch.optim.Adam(self.model.parameters(), lr=self.rules.learning_rate, fused=True)
        if state is not None:
            self._take_up(state)

    @property
    def over(self) -> bool:
        """Whether the last epoch is done, or the run diverged."""
        done = self.result.epochs
        return bool(done) and (done[-1].number >= self.cell.epochs or self.result.diverged)

    def run(self, told: Told = lambda result: None) -> CellResult:
        """Train to the end and time forecasts; ``told`` hears of every epoch.

        The model is left with the weights that the protocol tests.
        """
        while not self.over:
            self._epoch()
            told(self.result)
        if self._best:
            self.model.load_state_dict(self._best)
        rates = windows_per_second(self.model, self.data.test, self.cell.precision)
        self.result = replace(self.result, windows_per_second=rates, ranks=self._ranks())
        return self.result

    def _ranks(self) -> dict[str, Any]:
        """Ranks of the weights that the protocol tests, and of the stream."""
        if self.result.diverged or self.optimizer is None:
            return {}
        return rank_record(self.model, watched(self.data))

    def _epoch(self) -> None:
        number = min(len(self.result.epochs) + 1, self.cell.epochs)
        begun = time.perf_counter()
        train = Score(0.0, 0.0) if self.optimizer is None else self._train(number)
        seconds = time.perf_counter() - begun
        finite = math.isfinite(train.mse)
        lost = Score(math.nan, math.nan)
        validation, test = (
            score(self.model, part, self.cell.precision) if finite else lost
            for part in (self.data.validation, self.data.test)
        )
        epoch = Epoch(number, train, validation, test, seconds)
        self.result = replace(self.result, epochs=(*self.result.epochs, epoch))
        if self.rules.choice == BEST and self.optimizer is not None and epoch.finite and self.result.best is epoch:
            self._best = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        self._keep()

    def _train(self, number: int) -> Score:
        seeds = np.random.SeedSequence((self.cell.seed, number)).generate_state(2)
        order = torch.from_numpy(np.random.default_rng(seeds[0]).permutation(len(self.data.train))).to(self.device)
        errors = Errors(self.device)
        self.model.train()
        with torch.random.fork_rng(devices=[self.device] if self.device.startswith("cuda") else []):
            torch.manual_seed(int(seeds[1]))
            for at in order.split(self.rules.batch):
                errors.add(*self.step(at))
        return errors.score

    def step(self, at: Tensor) -> tuple[Tensor, Tensor]:
        """One optimiser step on the windows that begin at these rows: forecasts before it, and targets.

        The gradient is that of the whole batch; on the CPU it is added up over chunks that stay in the caches.
        """
        assert self.optimizer is not None
        self.optimizer.zero_grad(set_to_none=False)
        done = [self._backward(chunk, len(chunk) / len(at)) for chunk in at.split(self.chunk)]
        nn.utils.clip_grad_norm_(self.model.parameters(), self.rules.clip)
        self.optimizer.step()
        forecasts, targets = zip(*done, strict=True)
        return torch.cat(forecasts), torch.cat(targets)

    def _backward(self, at: Tensor, share: float) -> tuple[Tensor, Tensor]:
        """Add the gradient of ``share`` times the mean squared error of some windows."""
        inputs, targets = self.data.train.batch(at)
        with products(self.device, self.cell.precision):
            forecasts = self.model(inputs).float()
            (F.mse_loss(forecasts, targets) * share).backward()
        return forecasts.detach(), targets

    def _keep(self) -> None:
        if self.state is not None and self.optimizer is not None:
            tensors = training_tensors(self.model, self.optimizer)
            tensors |= {CHOSEN + name: value.cpu().contiguous() for name, value in self._best.items()}
            write_state(self.state, tensors, {"result": codec.plain(self.result)})

    def _take_up(self, state: Path) -> None:
        found = read_state(state)
        if found is None or self.optimizer is None:
            return
        tensors, about = found
        result = codec.parse(CellResult, about["result"], str(state))
        if result.cell != self.cell:
            raise DataError(f"{state} is of the run {result.cell.id}, not of {self.cell.id}: delete it.")
        check_table(result, self.data, str(state))
        restore_training(tensors, self.model, self.optimizer)
        best = {name.removeprefix(CHOSEN): value for name, value in tensors.items() if name.startswith(CHOSEN)}
        self._best = {name: value.to(self.device) for name, value in best.items()}
        self.result = replace(result, machine=self.result.machine, digest=self.data.digest)

    def _machine(self) -> str:
        return describe(self.device, "compiled kernels" if self.compiled else "")
