"""Rows that are computed in other processes, on this machine or by Ray, are those of one process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rankscope.engine.pool import Engine
from rankscope.errors import OptionError
from rankscope_eval import evaluate
from rankscope_eval.forecasters import Forecaster
from rankscope_eval.report import EvalReport

TASKS = ["nile", "air_passengers", "generated_daily"]


def same(one: EvalReport, other: EvalReport) -> bool:
    rows = ([replace(row, seconds=0.0) for row in report.rows] for report in (one, other))
    return next(rows) == next(rows) and one.summary == other.summary and one.slices == other.slices


def test_processes_of_this_machine(bolt_folder: Path, tmp_path: Path) -> None:
    models = ["naive", str(bolt_folder)]
    alone = evaluate(models, tasks=TASKS)
    assert same(evaluate(models, tasks=TASKS, engine=Engine(jobs=2), kept=tmp_path / "kept"), alone)
    assert len(list((tmp_path / "kept" / "rows").iterdir())) == 3 * len(TASKS)
    assert same(evaluate(models, tasks=TASKS, engine=Engine(jobs=2), kept=tmp_path / "kept", resume=True), alone)


def test_a_model_without_a_name_stays_in_this_process() -> None:
    def run(*args: Any) -> Any:
        pytest.fail("a forecast was made")

    with pytest.raises(OptionError, match="model mine is not known by a name"):
        evaluate([Forecaster("mine", run)], tasks=TASKS, engine=Engine(jobs=2))


@pytest.mark.slow
def test_a_cluster(bolt_folder: Path) -> None:
    pytest.importorskip("ray")
    models = ["naive", str(bolt_folder)]
    assert same(evaluate(models, tasks=TASKS, engine=Engine("ray", jobs=2)), evaluate(models, tasks=TASKS))
