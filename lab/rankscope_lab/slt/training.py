"""Training of an SLT run: resumable epochs, scores per epoch, and inference speed."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rankscope.engine.randomness import seeded
from rankscope.errors import DataError
from rankscope.io import codec
from rankscope_lab.data.windows import ForecastData, Windows
from rankscope_lab.kernels import accelerate
from rankscope_lab.machine import describe, products
from rankscope_lab.measure import rank_record
from rankscope_lab.runs import count_parameters, read_state, restore_training, restoring, training_tensors, write_state
from rankscope_lab.slt.models import build_model
from rankscope_lab.slt.run_spec import BEST, Epoch, Protocol, RunResult, RunSpec, Score, WindowCounts, protocol

CHUNK = 56
"""Micro-batch size on a CPU, limited by its caches."""

WATCHED = 16
"""Test windows on which the ranks of the stream are measured."""

CHOSEN = "chosen/"
"""In a state: the weights of the best validation so far."""


def windows_of(data: ForecastData) -> WindowCounts:
    """Number of windows of each part."""
    return WindowCounts(len(data.train), len(data.validation), len(data.test))


def check_table(result: RunResult, data: ForecastData, source: str) -> None:
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


def new_model(spec: RunSpec, season: int) -> nn.Module:
    """Build the untrained model of a run from its seed."""
    with seeded(spec.seed):
        return build_model(spec.model, season, spec.lookback, spec.horizon, revin=spec.revin)


class Training:
    """Training of a run, new or resumed.

    Every epoch has its own order and its own seed for dropout, so a run that was stopped between epochs ends with the
    numbers that it would have had.

    Args:
        spec: which.
        data: its table, windows cut as the run's protocol says.
        device: ``cpu`` or ``cuda``.
        state: file that holds weights, optimiser and scores between epochs; None: nothing is kept.
        compiled: on the CPU let compiled functions do dropout and attention, where there is a compiler.

    Raises:
        DataError: the state is of another run, or cannot be read.
    """

    def __init__(
        self,
        spec: RunSpec,
        data: ForecastData,
        *,
        device: str = "cpu",
        state: Path | None = None,
        compiled: bool = True,
    ) -> None:
        self.spec, self.data, self.device, self.state = spec, data.to(device), device, state
        self.rules: Protocol = protocol(spec.protocol)
        self.model = new_model(spec, data.season).to(device)
        if device == "cpu" and compiled:
            accelerate(self.model)
        self.compiled = any(hasattr(module, "compiled") for module in self.model.modules())
        self.result = RunResult(
            spec,
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
        """True if the last epoch is done or the run diverged."""
        done = self.result.epochs
        return bool(done) and (done[-1].number >= self.spec.epochs or self.result.diverged)

    def run(self, on_progress: Callable[[RunResult], None] = lambda result: None) -> RunResult:
        """Train to the end and time forecasts; ``on_progress`` gets the result so far after every epoch.

        The model is left with the weights that the protocol tests.
        """
        while not self.over:
            self._epoch()
            on_progress(self.result)
        if self._best:
            self.model.load_state_dict(self._best)
        rates = windows_per_second(self.model, self.data.test, self.spec.precision)
        self.result = replace(self.result, windows_per_second=rates, ranks=self._ranks())
        return self.result

    def _ranks(self) -> dict[str, Any]:
        """Ranks of the weights that the protocol tests, and of the stream."""
        if self.result.diverged or self.optimizer is None:
            return {}
        return rank_record(self.model, watched(self.data))

    def _epoch(self) -> None:
        number = min(len(self.result.epochs) + 1, self.spec.epochs)
        begun = time.perf_counter()
        train = Score(0.0, 0.0) if self.optimizer is None else self._train(number)
        seconds = time.perf_counter() - begun
        finite = math.isfinite(train.mse)
        lost = Score(math.nan, math.nan)
        validation, test = (
            score(self.model, part, self.spec.precision) if finite else lost
            for part in (self.data.validation, self.data.test)
        )
        epoch = Epoch(number, train, validation, test, seconds)
        self.result = replace(self.result, epochs=(*self.result.epochs, epoch))
        if self.rules.choice == BEST and self.optimizer is not None and epoch.finite and self.result.best is epoch:
            self._best = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        self._keep()

    def _train(self, number: int) -> Score:
        seeds = np.random.SeedSequence((self.spec.seed, number)).generate_state(2)
        order = torch.from_numpy(np.random.default_rng(seeds[0]).permutation(len(self.data.train))).to(self.device)
        errors = Errors(self.device)
        self.model.train()
        with seeded(int(seeds[1])):
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
        with products(self.device, self.spec.precision):
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
        result = codec.parse(RunResult, about.get("result"), str(state))
        if result.spec != self.spec:
            raise DataError(f"{state} is of the run {result.spec.id}, not of {self.spec.id}: delete it.")
        check_table(result, self.data, str(state))
        best = {name.removeprefix(CHOSEN): value for name, value in tensors.items() if name.startswith(CHOSEN)}
        with restoring(state):
            if best:
                self.model.load_state_dict(best)
            restore_training(tensors, self.model, self.optimizer)
        self._best = {name: value.to(self.device) for name, value in best.items()}
        self.result = replace(result, machine=self.result.machine, digest=self.data.digest)

    def _machine(self) -> str:
        return describe(self.device, "compiled kernels" if self.compiled else "")


BATCH = 32
"""Windows per forward pass, all variables of each."""
PASSES, WARM_UP, TIMED = 5, 2, 8
"""Passes that are timed, batches before them, and batches of a pass."""


class Errors:
    """Error accumulator over batches.

    Sums stay on the device, so that a GPU need not wait.
    """

    def __init__(self, device: str) -> None:
        self._sums = torch.zeros(2, dtype=torch.float64, device=device if device != "mps" else "cpu")
        self._count = 0

    def add(self, forecasts: Tensor, targets: Tensor) -> None:
        """Add a batch."""
        gaps = (forecasts.detach() - targets).float()
        self._sums += torch.stack((gaps.square().mean(), gaps.abs().mean())).double() * gaps.numel()
        self._count += gaps.numel()

    @property
    def score(self) -> Score:
        """Means over all values so far."""
        mse, mae = (self._sums / self._count).tolist()
        return Score(mse, mae)


@torch.no_grad()
def score(model: nn.Module, windows: Windows, precision: str) -> Score:
    """Errors over every window of a part; the model is left in eval mode."""
    device = str(windows.values.device)
    model.eval()
    errors = Errors(device)
    with products(device, precision):
        for at in torch.arange(len(windows), device=device).split(BATCH):
            inputs, targets = windows.batch(at)
            errors.add(model(inputs).float(), targets)
    return errors.score


@torch.no_grad()
def windows_per_second(
    model: nn.Module, windows: Windows, precision: str, batches: int = TIMED
) -> tuple[float, float, float]:
    """Median, least and largest rate over `PASSES` passes through the first batches, cut beforehand.

    The published benchmark passes through all test windows; a rate needs fewer.
    """
    device = str(windows.values.device)
    model.eval()
    ready = [
        windows.batch(at)[0].contiguous() for at in torch.arange(len(windows), device=device).split(BATCH)[:batches]
    ]
    count = sum(len(inputs) for inputs in ready)
    rates = []
    with products(device, precision):
        for inputs in ready[:WARM_UP]:
            model(inputs)
        for _ in range(PASSES):
            settled(device)
            begun = time.perf_counter()
            for inputs in ready:
                model(inputs)
            settled(device)
            rates.append(count / (time.perf_counter() - begun))
    return statistics.median(rates), min(rates), max(rates)


def settled(device: str) -> None:
    """Synchronise the device."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
