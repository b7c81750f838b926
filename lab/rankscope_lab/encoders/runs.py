"""Run folder of the audit: one JSON file per run, final weights, and states of unfinished runs.

``DIR/<run id>.json`` is a `RunResult`; ``.safetensors`` holds the weights after the last epoch; ``.state`` belongs to
a run that was interrupted, or cut short by `ComputeOptions.stop`, and is removed when the run has all its epochs. A run
whose JSON is there is not made again, unless it was cut short, has its state, and is asked for longer now. Seeds that
were trained in one stack have states of their own: they go on in stacks of those that have come equally far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rankscope.engine import Progress, silent
from rankscope.engine.fan_out import fan_out
from rankscope.engine.pool import Engine, Tick, available_cores
from rankscope.errors import OptionError, RankscopeError, unknown_choice
from rankscope_lab.data.table import check_digest
from rankscope_lab.encoders.data import RunData, run_data
from rankscope_lab.encoders.diagnostics import diagnose
from rankscope_lab.encoders.models import AuditModel
from rankscope_lab.encoders.run_spec import ETTH1, SYNTHETIC, RunResult, RunSpec
from rankscope_lab.encoders.stacked import stack_size, train_stacked
from rankscope_lab.encoders.training import ComputeOptions, Trained, train
from rankscope_lab.kernels import library
from rankscope_lab.machine import PRECISIONS, describe, keep_memory
from rankscope_lab.measure import rank_record
from rankscope_lab.runs import count_parameters, epoch_ticks, read_state, run_store, write_weights

AUDIT = "the audit"
"""Name of the runs' folder in errors."""
STACK = 16
"""Seeds in a stack on a GPU, where they fit."""
RANKED = 32
"""Validation series whose stream is measured at the end of a run."""


def run_specs(
    specs: Sequence[RunSpec],
    folder: str | Path,
    *,
    how: ComputeOptions | None = None,
    engine: Engine | None = None,
    etth1: str | Path | None = None,
    stack: int = 0,
    force: bool = False,
    progress: Progress = silent,
) -> list[RunResult]:
    """Run runs that have no result in a folder yet; return all their results in the runs' order.

    A stopped call goes on where it was: finished runs are read, begun ones continue from their last validation, and
    so do those that were cut short before the epoch that is asked for now.

    Args:
        specs: which; repeated ones run once.
        folder: made if it is not there.
        how: device and precision.
        engine: processes on this machine, or a Ray cluster that shares the folder; this process by default.
        etth1: path of ETTh1.csv, for runs on it.
        stack: most seeds of one setting that are trained in one stack; 0: 16 on a GPU, none on a CPU. On a GPU stacks
            are made smaller where they would not fit.
        force: forget what the folder holds of the runs, once all else has been checked.
        progress: called with the epochs.

    Raises:
        OptionError: bad options; ETTh1 is needed and not given; a result in the folder has another precision.
        DataError: ETTh1 cannot be used, or a result in the folder is damaged or of another table.
        RankscopeError: another process makes runs in the folder; a single run does not fit on the GPU.
    """
    how, engine, folder = how or ComputeOptions(), engine or Engine(jobs=1), Path(folder)
    if how.precision not in PRECISIONS:
        raise OptionError(unknown_choice("precision", how.precision, PRECISIONS))
    unique = list(dict.fromkeys(specs))
    with run_store(folder, AUDIT).open():
        ready = {} if force else _ready(folder, unique, how, etth1)
        waiting = [spec for spec in unique if spec not in ready]
        for spec in {replace(spec, seed=0) for spec in waiting if spec.data != SYNTHETIC}:
            run_data(spec, etth1)  # a table that cannot be used is refused before anything runs, or is forgotten
        if force:
            forget_runs(folder, unique)
        jobs = min(engine.jobs or available_cores(), max(len(waiting), 1))
        groups = _groups(waiting, stack or (STACK if how.device.type == "cuda" else 1), folder)
        work = partial(run_group, folder=str(folder), how=how, etth1=None if etth1 is None else str(etth1), beside=jobs)
        ticks = epoch_ticks(progress, sum(map(how.last, unique)), "epochs", sum(map(how.last, ready)))
        where = replace(engine, device=how.device.type)
        for results in fan_out(work, groups, where, min(jobs, len(groups)), tick=ticks, threads=1):
            ready |= {result.spec: result for result in results}
    return [ready[spec] for spec in specs]


def _ready(
    folder: Path, specs: Sequence[RunSpec], how: ComputeOptions, etth1: str | Path | None
) -> dict[RunSpec, RunResult]:
    """Results that need no further training."""
    stored = stored_runs(folder, specs)
    for one in stored:
        if one.precision != how.precision:
            raise OptionError(
                f"{one.spec.id} was run in {one.precision}, not in {how.precision}: choose another --out, that "
                "--precision, or --force."
            )
        if one.spec.data == ETTH1 and etth1 is not None:
            check_digest(one.digest, run_data(one.spec, etth1).digest, str(run_store(folder, AUDIT).path(one.spec.id)))
    return {one.spec: one for one in stored if not _goes_on(folder, one, how)}


def stored_runs(folder: str | Path, specs: Sequence[RunSpec]) -> list[RunResult]:
    """Results that a folder holds.

    Raises:
        DataError: one is damaged.
    """
    store = run_store(folder, AUDIT)
    return [one for spec in specs if (one := store.get(spec.id, RunResult)) is not None]


def forget_runs(folder: str | Path, specs: Sequence[RunSpec]) -> None:
    """Remove results, weights and begun states of runs, so that they are run anew."""
    for spec in specs:
        for suffix in (".json", ".safetensors", ".state"):
            run_store(folder, AUDIT).path(spec.id, suffix).unlink(missing_ok=True)


def run_group(
    specs: Sequence[RunSpec], ticks: Tick, *, folder: str, how: ComputeOptions, etth1: str | None, beside: int
) -> list[RunResult]:
    """Train runs, measure them, write their files; on a GPU in parts, where it has no room for all.

    Args:
        specs: one, or on a GPU several that differ in their seed only and are trained together.
        ticks: called with the epochs done.
        folder: where their files are.
        how: device, precision.
        etth1: path of ETTh1.csv.
        beside: runs on this machine at a time.
    """
    keep_memory()
    again = partial(run_group, ticks=ticks, folder=folder, how=how, etth1=etth1, beside=beside)
    size = min(len(specs), _room(specs, how))
    if size == len(specs):
        try:
            return _run_together(specs, ticks, Path(folder), how, etth1, beside)
        except torch.OutOfMemoryError as error:
            if len(specs) == 1:
                raise RankscopeError(
                    f"{specs[0].id} does not fit into the memory of {how.device}: choose --device cpu."
                ) from error
        torch.cuda.empty_cache()
        size = len(specs) // 2
    return [one for at in range(0, len(specs), size) for one in again(specs[at : at + size])]


def _run_together(
    specs: Sequence[RunSpec], ticks: Tick, folder: Path, how: ComputeOptions, etth1: str | None, beside: int
) -> list[RunResult]:
    data = [run_data(spec, etth1) for spec in specs]
    states = [_state(folder, spec) for spec in specs]
    count = len(specs)
    if count > 1:
        trained = train_stacked(specs, data, how, snapshots=states, progress=lambda one: ticks(one * count))
    else:
        trained = [train(specs[0], data[0], how, snapshot=states[0], progress=ticks)]
    machine = _machine(how, count, beside)
    results = []
    for spec, one, tensors, state in zip(specs, trained, data, states, strict=True):
        results.append(finish(spec, one, tensors, how.precision, machine))
        write_result(folder, results[-1], one.model)
        if not results[-1].cut:
            state.unlink(missing_ok=True)
    return results


def _room(specs: Sequence[RunSpec], how: ComputeOptions) -> int:
    """Seeds that the device has room for at once."""
    if how.device.type != "cuda":
        return len(specs)
    torch.cuda.empty_cache()  # what the group before left with torch counts as taken otherwise
    return stack_size(specs[0], torch.cuda.mem_get_info(how.device)[0])


def _state(folder: Path, spec: RunSpec) -> Path:
    return run_store(folder, AUDIT).path(spec.id, ".state")


def _goes_on(folder: Path, result: RunResult, how: ComputeOptions) -> bool:
    """Return True if a run was cut short before the epoch asked for now, and has the state to go on from."""
    return result.cut and result.stopped < how.last(result.spec) and _state(folder, result.spec).is_file()


def finish(spec: RunSpec, trained: Trained, data: RunData, precision: str, machine: str) -> RunResult:
    """A run's record, measured on its last weights."""
    result = RunResult(
        spec,
        tuple(trained.points),
        parameters=count_parameters(trained.model),
        encoder_parameters=count_parameters(trained.model.encoder),
        seconds=trained.seconds,
        stopped=trained.epochs if trained.epochs < spec.epochs else 0,
        machine=machine,
        precision=precision,
        digest=data.digest,
    )
    return result if result.diverged else replace(result, diagnostics=measured(spec, trained.model, data))


def _machine(how: ComputeOptions, seeds: int, beside: int) -> str:
    """Machine of a run, and what else its time depends on."""
    if seeds > 1:
        return describe(how.device, f"{seeds} seeds in a stack", how.precision)
    compiled = how.kernels and how.device.type == "cpu" and library() is not None
    together = f"{beside} runs at a time" if beside > 1 else ""
    return describe(how.device, together, "compiled kernels" if compiled else "", how.precision)


def measured(spec: RunSpec, model: AuditModel, data: RunData) -> dict[str, Any]:
    """All that is kept of a model's last weights: the audit's diagnostics, and ranks."""
    device = next(model.parameters()).device
    inputs = data.validation.inputs[:RANKED].to(device)
    return {**diagnose(spec, model, data), "ranks": rank_record(model, inputs)}


def write_result(folder: Path, result: RunResult, model: AuditModel) -> None:
    """Weights first: a run with a result has its weights."""
    store = run_store(folder, AUDIT)
    write_weights(store.path(result.spec.id, ".safetensors"), model)
    store.put(result.spec.id, result)


def _groups(specs: Sequence[RunSpec], size: int, folder: Path) -> list[tuple[RunSpec, ...]]:
    """Runs that differ in their seed only and have come equally far, up to ``size`` together."""
    if size == 1:
        return [(spec,) for spec in specs]
    alike: dict[tuple[RunSpec, int], list[RunSpec]] = {}
    for spec in specs:
        alike.setdefault((replace(spec, seed=0), _epochs_done(_state(folder, spec))), []).append(spec)
    return [tuple(group[i : i + size]) for group in alike.values() for i in range(0, len(group), size)]


def _epochs_done(state: Path) -> int:
    """Epochs that a run has behind it; 0 where it has no state."""
    found = read_state(state)
    return 0 if found is None else int(found[1]["epoch"])
