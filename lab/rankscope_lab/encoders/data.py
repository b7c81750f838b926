"""Data of the audit runs, and ETTh1 baselines without a transformer: current bin, transition table, bin frequencies."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankscope.errors import DataError, OptionError
from rankscope_lab.data.channels import BINS, LENGTH, bin_edges, bin_of, channel_benchmark
from rankscope_lab.data.table import ETT, VariableTable, read_table
from rankscope_lab.encoders.run_spec import ETTH1, MSE, RunSpec

STRIDE = 8
"""Steps between the starts of windows of ETTh1."""
SHARES = (0.70, 0.15)
"""Training and validation parts of ETTh1's rows, in time order; the rest is not used."""
TARGET = "OT"


@dataclass(frozen=True)
class Part:
    """Inputs and targets.

    Attributes:
        inputs: model inputs.
        targets: bins (int64), or outcomes (float32) under MSE; the target of step t is scored at step t − 1.
    """

    inputs: Float[Tensor, "series time channels"]
    targets: Int[Tensor, "series time"] | Float[Tensor, "series time"]

    def to(self, device: torch.device) -> Part:
        """The same on a device."""
        return Part(self.inputs.to(device), self.targets.to(device))


@dataclass(frozen=True)
class RunData:
    """Training and validation parts, and the digest of their table; empty for generated series."""

    train: Part
    validation: Part
    digest: str = ""


def run_data(spec: RunSpec, etth1: str | Path | None = None) -> RunData:
    """Training and validation tensors of a run.

    Args:
        spec: which; on the synthetic data its seed decides the series and the split.
        etth1: path of ETTh1.csv, for runs on it.

    Raises:
        OptionError: the run is on ETTh1 and no path is given.
        DataError: the table cannot be used.
    """
    if spec.data == ETTH1:
        if etth1 is None:
            raise OptionError("runs on ETTh1 need its table: pass --data PATH/ETTh1.csv.")
        if spec.objective == MSE:
            raise OptionError("the MSE objective is for the synthetic data: ETTh1 runs have 32 bins.")
        return etth1_data(str(etth1))
    return _synthetic(spec)


def _synthetic(spec: RunSpec) -> RunData:
    made = channel_benchmark(spec.channels, spec.series, spec.seed)
    inputs = torch.from_numpy(made.inputs)
    targets = torch.from_numpy(made.outcome if spec.objective == MSE else made.labels)
    held = max(32, spec.series // 10)
    if held >= spec.series:
        raise OptionError(f"{spec.series} series leave none to train on: at least {held + 1} are needed.")
    order = torch.randperm(spec.series, generator=torch.Generator().manual_seed(spec.seed))  # as ``random_split`` draws
    parts = order.split([spec.series - held, held])
    train, validation = (Part(inputs[rows], targets[rows]) for rows in parts)
    return RunData(train, validation)


@functools.lru_cache(maxsize=2)
def etth1_data(path: str) -> RunData:
    """ETTh1: seven variates, the bin of OT; 70 % of the rows train, the next 15 % validate.

    Variates are scaled by mean and population deviation of the training rows; bins are quantiles of scaled training OT.

    Raises:
        DataError: columns are missing, times have gaps, or there are too few rows for one window in each part.
    """
    table = read_table(path, ETT)
    known, held = (slice(*ends) for ends in _ends(table))
    mean, deviation = table.values[known].mean(0), table.values[known].std(0) + 1e-8
    scaled = ((table.values - mean) / deviation).astype(np.float32)
    target = scaled[:, table.columns.index(TARGET)]
    edges = bin_edges(target[known])
    labels = bin_of(target, edges)
    return RunData(_windows(scaled[known], labels[known]), _windows(scaled[held], labels[held]), table.digest)


def _ends(table: VariableTable) -> tuple[tuple[int, int], tuple[int, int]]:
    rows = len(table.values)
    first, second = int(rows * SHARES[0]), int(rows * SHARES[0]) + int(rows * SHARES[1])
    shortest = second - first
    if shortest <= LENGTH:
        raise DataError(
            f"{table.source} has {rows} rows, its validation part {shortest}: a window needs more than {LENGTH}."
        )
    return (0, first), (first, second)


def _windows(values: Float[np.ndarray, "rows channels"], labels: Int[np.ndarray, " rows"]) -> Part:
    starts = np.arange(0, len(values) - LENGTH, STRIDE)
    rows = starts[:, None] + np.arange(LENGTH)
    return Part(torch.from_numpy(values[rows]), torch.from_numpy(labels[rows]))


SMOOTHING = 0.5
"""Added to every count of a transition."""


def bin_baselines(data: RunData, bins: int = BINS) -> dict[str, float]:
    """Score on the validation windows, at the positions that models are scored at.

    Returns:
        ``current``: accuracy of repeating the bin of the current step. ``transition``: NLL (nats) of a table of
        transitions between bins, counted on the training windows. ``marginal``: NLL of the frequencies of bins there,
        infinite where a bin of the validation never trained. ``lowest`` and ``lowest_two``: shares of the labels in the
        lowest bins.
    """
    before, after = _steps(data.validation.targets)
    trained = transition_table(data.train.targets, bins)
    counts = torch.bincount(data.train.targets.flatten(), minlength=bins).double()
    frequency = counts / counts.sum()
    return {
        "current": float((before == after).double().mean()),
        "transition": float(-trained[before, after].log().mean()),
        "marginal": float(-frequency[after].log().mean()),
        "lowest": float((after == 0).double().mean()),
        "lowest_two": float((after <= 1).double().mean()),
    }


def transition_table(labels: Int[Tensor, "series time"], bins: int = BINS) -> Tensor:
    """P(next bin | bin), float64, bins × bins: counts plus `SMOOTHING`, rows sum to 1."""
    before, after = _steps(labels)
    counts = torch.bincount(before * bins + after, minlength=bins * bins).double().reshape(bins, bins) + SMOOTHING
    return counts / counts.sum(1, keepdim=True)


def _steps(labels: Int[Tensor, "series time"]) -> tuple[Tensor, Tensor]:
    return labels[:, :-1].flatten(), labels[:, 1:].flatten()
