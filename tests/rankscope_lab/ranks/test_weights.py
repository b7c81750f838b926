from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from rankscope.errors import DataError
from rankscope.io import codec
from rankscope_lab.encoders.data import run_data
from rankscope_lab.encoders.models import build
from rankscope_lab.encoders.run_spec import Point, RunResult, RunSpec
from rankscope_lab.encoders.runs import measured, write_result
from rankscope_lab.encoders.training import score
from rankscope_lab.measure import measure
from rankscope_lab.ranks.runs import read_runs
from rankscope_lab.ranks.weights import curves_of, restored, with_ranks
from rankscope_lab.slt.models import build_model
from rankscope_lab.slt.run_spec import Epoch, Score, WindowCounts
from rankscope_lab.slt.run_spec import RunResult as SltResult
from rankscope_lab.slt.run_spec import RunSpec as SltSpec

SPEC = RunSpec("linear-ppe", series=40, d_model=16, epochs=1)


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    """A run whose record holds no ranks."""
    torch.manual_seed(3)
    result = RunResult(SPEC, (Point(1, 3.0, 3.1, 0.1),), 1, 1, 1.0)
    write_result(tmp_path, result, build(SPEC))
    return tmp_path


def test_ranks_are_measured_where_only_weights_are_kept(audit: Path) -> None:
    bare = read_runs([audit])
    assert bare.runs[0].ranks is None
    before = torch.get_rng_state()
    (run,) = with_ranks(bare, None).runs
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(3)
    model, data = build(SPEC), run_data(SPEC)
    assert run.ranks == measure(model.eval(), data.validation.inputs[:32])
    # what the study itself would have stored is the same, but for its six digits
    stored = measured(SPEC, model, data)["ranks"]
    assert [one["eps_ranks"] for one in stored["streams"]] == [dict(one.ranks.eps_ranks) for one in run.ranks.streams]


def test_cuts_start_from_the_loss_of_the_run(audit: Path) -> None:
    curves = curves_of(read_runs([audit]), None)
    torch.manual_seed(3)
    whole = score(build(SPEC), run_data(SPEC).validation, SPEC, 1, 0.0).loss
    assert [point.before for _, point in curves] == pytest.approx([whole] * len(curves), rel=1e-6)
    assert {(point.kind, point.method) for _, point in curves} == {
        ("attention", "svd"), ("attention", "whitened"), ("attention", "joint"),
        ("feed_forward", "svd"), ("feed_forward", "whitened"),
    }  # fmt: skip
    assert all(point.relative == 1.0 for _, point in curves if point.asked == 1.0)
    assert all(run.variant == "linear-ppe" for run, _ in curves)


def test_forecasters_are_scored_on_windows_of_the_test_part(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"date": pd.date_range("2024-01-01", periods=500, freq="h"), "a": rng.normal(size=500)})
    table.to_csv(tmp_path / "toy.csv", index=False)
    spec = SltSpec("toy", "slt", epochs=1, lookback=48, horizon=8)
    torch.manual_seed(1)
    model = build_model("slt", 24, 48, 8).eval()
    at = tmp_path / "runs"
    at.mkdir()
    save_file(dict(model.state_dict()), at / f"{spec.id}.safetensors")
    scores = Score(1.0, 1.0)
    result = SltResult(spec, (Epoch(1, scores, scores, scores, 1.0),), 1, 1, WindowCounts(1, 1, 1))
    (at / f"{spec.id}.json").write_text(codec.text(result))

    (run,) = read_runs([at]).runs
    assert restored(run, None) is None  # no table
    whole = restored(run, tmp_path)
    assert whole is not None
    # a slow loop: all 45 windows of the last fifth, scaled by the first three
    values = table["a"].to_numpy()
    scaled = (values - values[:300].mean()) / values[:300].std()
    errors = []
    for start in range(400, 500 - 56 + 1):
        seen, comes = scaled[start : start + 48], scaled[start + 48 : start + 56]
        with torch.no_grad():
            said = model(torch.tensor(seen, dtype=torch.float32)[None, :, None])[0, :, 0].numpy()
        errors.append(((said - comes) ** 2).mean())
    assert whole.score(whole.model) == pytest.approx(float(np.mean(errors)), rel=1e-5)
    (ranked,) = with_ranks(read_runs([at]), tmp_path).runs
    assert [one.kind for one in ranked.ranks.stream("input")] == ["projection", "projection", "attention"]
    assert ranked.ranks.stream("input")[0].tokens == 16 * 5


def test_runs_of_another_table_are_not_scored(tmp_path: Path) -> None:
    table = pd.DataFrame({"date": pd.date_range("2024-01-01", periods=500, freq="h"), "a": np.arange(500.0)})
    table.to_csv(tmp_path / "toy.csv", index=False)
    spec, scores = SltSpec("toy", "slt", epochs=1, lookback=48, horizon=8), Score(1.0, 1.0)
    at = tmp_path / "runs"
    at.mkdir()
    save_file(dict(build_model("slt", 24, 48, 8).state_dict()), at / f"{spec.id}.safetensors")
    epochs = (Epoch(1, scores, scores, scores, 1.0),)
    result = SltResult(spec, epochs, 1, 1, WindowCounts(1, 1, 1), digest="of another")
    (at / f"{spec.id}.json").write_text(codec.text(result))
    (run,) = read_runs([at]).runs
    with pytest.raises(DataError, match=r"toy.*\.json is of another table: give the table"):
        restored(run, tmp_path)


def test_weights_of_another_model_are_refused(audit: Path) -> None:
    (run,) = read_runs([audit]).runs
    other = replace(run, spec=replace(SPEC, d_model=32))
    with pytest.raises(DataError, match="does not hold the weights of its run"):
        restored(other, None)
