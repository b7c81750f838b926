"""Models of finished runs from stored weights, for measuring ranks and truncation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from rankscope.engine import Progress, silent
from rankscope.errors import DataError
from rankscope_lab.data.table import check_digest
from rankscope_lab.encoders import data as encoder_data
from rankscope_lab.encoders import models as encoder_models
from rankscope_lab.encoders.run_spec import ETTH1, SYNTHETIC
from rankscope_lab.encoders.run_spec import RunSpec as EncoderSpec
from rankscope_lab.encoders.runs import RANKED
from rankscope_lab.encoders.training import score as encoder_score
from rankscope_lab.measure import measure
from rankscope_lab.ranks.compress import Score, compression_curve
from rankscope_lab.ranks.runs import RankedRun, RunSet
from rankscope_lab.ranks.study import RunCurve
from rankscope_lab.slt.run_spec import RunSpec as SltSpec
from rankscope_lab.slt.runs import run_data as slt_data
from rankscope_lab.slt.training import new_model, watched

BATCH = 32
"""Batch size in series or windows."""
CALIBRATED, SCORED = 128, 256
"""Training series, or windows, that cuts are calibrated on; windows of a forecaster that are scored."""


@dataclass(frozen=True)
class Restored:
    """Model of a finished run, with its data.

    Attributes:
        model: with the weights of its run, in eval mode.
        batch: held-out inputs for `measure`.
        calibration: training inputs.
        score: loss on held-out data.
    """

    model: nn.Module
    batch: Tensor
    calibration: tuple[Tensor, ...]
    score: Score


def restored(run: RankedRun, data: str | Path | None) -> Restored | None:
    """Load a run's model; None if weights or data are missing.

    Args:
        run: of an encoder or an SLT study.
        data: folder of the tables (ETTh1.csv and so on); synthetic data need none.

    Raises:
        DataError: weights or table cannot be used, or the table is not that of the run.
    """
    weights, spec = run.weights, run.spec
    if weights is None or spec is None:
        return None
    if isinstance(spec, EncoderSpec):
        return _encoder(run, spec, weights, data)
    return None if data is None else _forecaster(run, spec, weights, Path(data))


def with_ranks(found: RunSet, data: str | Path | None, progress: Progress = silent) -> RunSet:
    """Measure runs without recorded ranks, if their weights are stored."""
    bare = [run for run in found.runs if run.ranks is None and not run.spectra]
    measured: dict[str, RankedRun] = {}
    for done, run in enumerate(bare):
        progress(done, len(bare), "measuring ranks")
        whole = restored(run, data)
        if whole is not None:
            measured[run.source] = replace(run, ranks=measure(whole.model, whole.batch))
    return replace(found, runs=tuple(measured.get(run.source, run) for run in found.runs))


def can_be_cut(found: RunSet) -> list[RankedRun]:
    """Return the encoder and forecaster runs with stored weights."""
    return [run for run in found.runs if run.weights is not None and run.spec is not None]


def curves_of(found: RunSet, data: str | Path | None, progress: Progress = silent) -> tuple[RunCurve, ...]:
    """Truncate the layers of every run in `can_be_cut` whose data are available."""
    curves: list[RunCurve] = []
    kept = can_be_cut(found)
    for done, run in enumerate(kept):
        progress(done, len(kept), "cutting layers")
        whole = restored(run, data)
        if whole is not None:
            points = compression_curve(whole.model, whole.calibration, whole.score)
            curves += [(run, point) for point in points]
    progress(len(kept), len(kept), "cutting layers")
    return tuple(curves)


def _encoder(run: RankedRun, spec: EncoderSpec, weights: Path, data: str | Path | None) -> Restored | None:
    if spec.data == ETTH1 and data is None:
        return None
    table = None if spec.data == SYNTHETIC else Path(data or "") / "ETTh1.csv"
    parts = encoder_data.run_data(spec, table)
    check_digest(run.digest, parts.digest, run.source)
    model = _with_weights(lambda: encoder_models.build(spec), weights)

    def score(one: nn.Module) -> float:
        return encoder_score(one, parts.validation, spec, 0, 0.0).loss

    known = parts.train.inputs
    # windows of ETTh1 lie in time order: the first ones are all of one season; generated series are in no order
    rows = _spread(len(known), CALIBRATED) if spec.data == ETTH1 else torch.arange(min(CALIBRATED, len(known)))
    return Restored(model, parts.validation.inputs[:RANKED], tuple(known[rows].split(BATCH)), score)


def _forecaster(run: RankedRun, spec: SltSpec, weights: Path, data: Path) -> Restored:
    parts = slt_data(spec, data, ignore_times=True)  # as the run may have done
    check_digest(run.digest, parts.digest, run.source)
    model = _with_weights(lambda: new_model(spec, parts.season), weights)
    inputs, targets = parts.test.batch(_spread(len(parts.test), SCORED))
    known = parts.train.batch(_spread(len(parts.train), CALIBRATED))[0]

    def score(one: nn.Module) -> float:
        with torch.no_grad():
            pairs = zip(inputs.split(BATCH), targets.split(BATCH), strict=True)
            return sum(float((one(x) - y).square().sum()) for x, y in pairs) / targets.numel()

    return Restored(model, watched(parts), tuple(known.split(BATCH)), score)


def _spread(count: int, wanted: int) -> Tensor:
    """Return evenly spaced rows."""
    return torch.linspace(0, count - 1, min(wanted, count)).round().long()


def _with_weights(build: Callable[[], nn.Module], weights: Path) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        model = build()
    try:
        model.load_state_dict(load_file(weights))
    except (SafetensorError, RuntimeError, OSError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{weights} does not hold the weights of its run ({reason}): train it again.") from error
    return model.eval()
