"""Run folder of the SLT study: finished runs are read, others are trained locally or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rankscope.engine import Progress, silent
from rankscope.engine.device import resolve_device
from rankscope.engine.fan_out import fan_out
from rankscope.engine.pool import Engine, Tick, available_cores
from rankscope.errors import DataError, unknown_choice
from rankscope_lab.data.table import VariableTable, benchmark_columns, read_table
from rankscope_lab.data.windows import ForecastData, forecast_data
from rankscope_lab.machine import FLOAT32, keep_memory
from rankscope_lab.runs import epoch_ticks, run_store, write_weights
from rankscope_lab.slt.ablations import Setting, ablation
from rankscope_lab.slt.models import NAIVE, build_model
from rankscope_lab.slt.run_spec import RunResult, RunSpec, protocol
from rankscope_lab.slt.training import Training, check_table

STUDY = "the study"
"""Name of the runs' folder in errors."""


def run_specs(
    specs: Sequence[RunSpec],
    data: Path | str,
    out: Path | str,
    *,
    engine: Engine | None = None,
    ignore_times: bool = False,
    progress: Progress = silent,
) -> list[RunResult]:
    """Train every run missing in ``out``; interrupted runs resume after their last epoch.

    Args:
        specs: of the runs; the same may stand twice.
        data: folder of the tables, ``<dataset>.csv`` each.
        out: folder of the results, ``<spec.id>.json`` each, and of the tested weights, ``<spec.id>.safetensors``.
        engine: where they run; in this process, on the CPU, by default.
        ignore_times: take the tables' rows as they stand, whatever their times say.
        progress: called with the epochs done over those of the runs that are not there yet.

    Returns:
        Results in the order of the specs, each once.

    Raises:
        DataError: a table or a result cannot be read, a table is too short, or a result is of another table.
        RankscopeError: another process makes one of the runs.
    """
    engine, store, source = engine or Engine(jobs=1, device="cpu"), run_store(out, STUDY), Path(data)
    unique = list(dict.fromkeys(specs))
    left = [spec for spec in unique if spec.id not in store]
    check_specs(unique, source, store.root, ignore_times=ignore_times)
    if left:
        store.root.mkdir(parents=True, exist_ok=True)
        total = sum(max(1, spec.epochs) for spec in left)  # a model that learns nothing is scored once
        work = partial(
            run_task,
            data=str(source.resolve()),
            out=str(store.root.resolve()),
            device=engine.device,
            ignore_times=ignore_times,
        )
        jobs, ticks = (
            min(engine.jobs or available_cores(), len(left)),
            epoch_ticks(progress, total, f"{len(left)} runs"),
        )
        for _ in fan_out(work, left, engine, jobs, tick=ticks, threads=1):
            pass
    return [result for spec in unique if (result := store.get(spec.id, RunResult))]


def run_task(
    spec: RunSpec, ticks: Tick, *, data: str, out: str, device: str = "cpu", ignore_times: bool = False
) -> None:
    """Train a run in this process and write its result and the tested weights; no-op if they exist.

    Args:
        spec: of the run.
        ticks: called with the epochs done.
        data: folder of the tables.
        out: folder of the results.
        device: ``auto``, ``cpu`` or ``cuda``.
        ignore_times: take the table's rows as they stand, see `read_table`.
    """
    keep_memory()
    store = run_store(out, STUDY)
    state = store.root / f".{spec.id}.state"
    with store.claim(spec.id):
        if spec.id in store:
            return
        windows = run_data(spec, Path(data), ignore_times=ignore_times)
        training = Training(spec, windows, device=resolve_device(device), state=state)
        if training.result.epochs:
            ticks(len(training.result.epochs))
        result = training.run(lambda result: ticks(1))
        if result.parameters:
            write_weights(store.path(spec.id, ".safetensors"), training.model)
        store.put(spec.id, result)
        state.unlink(missing_ok=True)


def run_data(spec: RunSpec, folder: Path, *, ignore_times: bool = False) -> ForecastData:
    """Windows of a run's table, as its protocol cuts them.

    Raises:
        DataError: the table is missing, damaged, or shorter than a window.
    """
    rules = protocol(spec.protocol)
    file = folder / f"{spec.dataset}.csv"
    table = read_table(file, benchmark_columns(file), ignore_times=ignore_times)
    limit = dict(rules.first_columns).get(table.name.lower())
    if limit is not None:
        table = VariableTable(table.name, table.columns[:limit], table.values[:, :limit], table.source, table.freq)
    return forecast_data(table, rules.split, spec.lookback, spec.horizon, reach_back=rules.reach_back)


def check_specs(specs: Sequence[RunSpec], folder: Path, out: Path, *, ignore_times: bool = False) -> None:
    """Validate data sets, models and finished runs before any training.

    Raises:
        DataError: a table is missing, damaged, or shorter than a window; a season is longer than the look-back; a
            finished run in ``out`` is of another table.
    """
    checked: dict[tuple[object, ...], ForecastData] = {}
    store = run_store(out, STUDY)
    for spec in specs:
        kind = (spec.dataset, spec.protocol, spec.lookback, spec.horizon)
        if kind not in checked:
            checked[kind] = run_data(spec, folder, ignore_times=ignore_times)
        with torch.device("meta"):
            build_model(spec.model, checked[kind].season, spec.lookback, spec.horizon)
        done = store.get(spec.id, RunResult)
        if done is not None:
            check_table(done, checked[kind], str(store.path(spec.id)))


TABLES = ("ETTh1", "ETTh2")
"""Tables of a study unless others are named."""


def find_tables(folder: Path | str, names: Sequence[str] = TABLES) -> tuple[str, ...]:
    """The names as the folder's files spell them: ``weather`` finds ``Weather.csv``.

    Raises:
        DataError: there is no folder, or no such table in it.
    """
    place = Path(folder)
    if not place.is_dir():
        raise DataError(f"there is no folder {place}: give the one that holds {', '.join(names)} as CSV files.")
    spelt = {file.stem.casefold(): file.stem for file in sorted(place.glob("*.csv"))}
    for name in names:
        if name.casefold() not in spelt:
            known = unknown_choice("table", name, spelt.values()) if spelt else f"it holds no CSV file, not {name!r}."
            raise DataError(f"in {place}: {known}")
    return tuple(dict.fromkeys(spelt[name.casefold()] for name in names))


def study_specs(
    settings: Sequence[Setting], datasets: Sequence[str], protocols: Sequence[str], seeds: int, **options: Any
) -> list[RunSpec]:
    """Cells of every setting on every table; seed by seed, so that a stopped study has whole seeds.

    What learns nothing has one seed and no epochs; other options are fields of `RunSpec`.
    """
    specs = []
    for seed in range(seeds):
        for dataset in datasets:
            for name in protocols:
                for setting in settings:
                    if setting.model != NAIVE:
                        specs.append(RunSpec(dataset, setting.model, name, setting.revin, seed, **options))
                    elif seed == 0 and not setting.revin:
                        specs.append(RunSpec(dataset, NAIVE, name, **{**options, "epochs": 0, "precision": FLOAT32}))
    return list(dict.fromkeys(specs))


def settings_of(models: Sequence[str], ablations: Sequence[str], revin: bool = False) -> list[Setting]:
    """The settings that models and ablations take, each once."""
    found = [Setting(model) for model in models]
    if revin:
        found += [Setting(model, True) for model in models if model != NAIVE]
    found += [setting for name in ablations for setting in ablation(name).settings]
    return list(dict.fromkeys(found))
