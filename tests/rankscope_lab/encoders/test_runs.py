"""The run folder: what a finished or begun run on a table goes on with."""

from dataclasses import replace

import pytest
import torch

from rankscope.errors import DataError
from rankscope_lab.encoders import models, runs
from rankscope_lab.encoders.data import run_data
from rankscope_lab.encoders.run_spec import Point, RunResult, etth1_spec
from rankscope_lab.encoders.training import Begun, ComputeOptions, train


def test_runs_of_another_etth1_do_not_go_on(tmp_path, etth1):
    other = tmp_path / "other.csv"
    lines = etth1.read_text().splitlines()
    last = lines[-1].rpartition(",")[0]
    other.write_text("\n".join([*lines[:-1], f"{last},99.5"]))
    spec, data, state = replace(etth1_spec("linear", 0), epochs=2), run_data(etth1_spec("linear", 0), etth1), "state"
    Begun(spec.id, 1, (), 1.0, digest=data.digest, tensors={"weight": torch.zeros(1)}).write(tmp_path / state)
    with pytest.raises(DataError, match="state is of another table: give the table"):
        train(spec, run_data(spec, other), ComputeOptions(), snapshot=tmp_path / state)
    model, result = models.build(spec), RunResult(spec, (Point(2, 1.0, 1.0, 0.1),), 1, 1, 1.0, digest=data.digest)
    runs.write_result(tmp_path, result, model)
    assert runs.run_specs([spec], tmp_path, etth1=etth1) == [result]
    with pytest.raises(DataError, match=r"\.json is of another table"):
        runs.run_specs([spec], tmp_path, etth1=other)
    runs.write_result(tmp_path, replace(result, digest=""), model)  # as older releases wrote it
    assert len(runs.run_specs([spec], tmp_path, etth1=other)) == 1
