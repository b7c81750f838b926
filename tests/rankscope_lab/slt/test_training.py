"""Training against a plain loop, whatever is stopped in between, and what diverges."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rankscope.errors import DataError, OptionError
from rankscope.io import codec
from rankscope_lab.data.windows import ForecastData
from rankscope_lab.runs import read_state, write_state
from rankscope_lab.slt import training as module
from rankscope_lab.slt.run_spec import PROTOCOLS, Epoch, RunResult, RunSpec, Score, WindowCounts
from rankscope_lab.slt.training import Training, new_model, score

SMALL: dict[str, Any] = {"lookback": 48, "horizon": 8}


def plain_epochs(spec: RunSpec, data: ForecastData, epochs: int) -> list[float]:
    """Training MSE of every epoch: one batch after the other, torch's plain Adam, no chunks."""
    model = new_model(spec, 24)
    adam = torch.optim.Adam(model.parameters(), lr=1e-4)
    values, losses = data.train.values, []
    for number in range(1, epochs + 1):
        seeds = np.random.SeedSequence((spec.seed, number)).generate_state(2)
        order = np.random.default_rng(seeds[0]).permutation(len(data.train))
        total = 0.0
        for begin in range(0, len(order), 32):
            rows = order[begin : begin + 32]
            x = torch.stack([values[row : row + 48] for row in rows])
            y = torch.stack([values[row + 48 : row + 56] for row in rows])
            loss = ((model(x) - y) ** 2).mean()
            adam.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            adam.step()
            total += loss.item() * len(rows)
        losses.append(total / len(order))
    return losses


@pytest.mark.parametrize("name", ["dlinear", "nbeats"])
def test_epochs_equal_a_plain_loop(small_data: ForecastData, name: str) -> None:
    spec = RunSpec("made", name, seed=3, epochs=3, **SMALL)
    result = Training(spec, small_data).run()
    assert [epoch.train.mse for epoch in result.epochs] == pytest.approx(plain_epochs(spec, small_data, 3), rel=1e-5)
    assert result.windows == WindowCounts(len(small_data.train), len(small_data.validation), len(small_data.test))


def test_chunks_add_up_to_the_gradient_of_the_batch(small_data: ForecastData, monkeypatch: pytest.MonkeyPatch) -> None:
    gradients = []
    for chunk in (1, 10**6):
        monkeypatch.setattr(module, "CHUNK", chunk)
        torch.manual_seed(0)
        run = Training(RunSpec("made", "slt", **SMALL), small_data)
        run.model.eval()  # no dropout
        run.optimizer = torch.optim.SGD(run.model.parameters(), lr=0.0)
        run.rules = replace(run.rules, clip=math.inf)
        forecasts, targets = run.step(torch.arange(0, 40, 2))
        assert forecasts.shape == targets.shape == (20, 8, 3)
        gradients.append(torch.cat([weight.grad.flatten() for weight in run.model.parameters()]))
    assert gradients[0].abs().max() > 1e-3
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-3, atol=1e-6)


def test_the_gradient_is_clipped(small_data: ForecastData) -> None:
    run = Training(RunSpec("made", "dlinear", **SMALL), small_data)
    nn.init.constant_(run.model.trend.bias, 50.0)
    run.step(torch.arange(32))
    norm = sum(weight.grad.square().sum() for weight in run.model.parameters()).sqrt()
    assert norm.item() == pytest.approx(1.0, abs=1e-4)


def test_score_is_the_mean_over_all_values(small_data: ForecastData) -> None:
    spec = RunSpec("made", "naive", epochs=0, **SMALL)
    found = score(new_model(spec, 24), small_data.test, "float32")
    gaps = []
    values = small_data.test.values.numpy()
    for begin in range(len(small_data.test)):
        for step in range(8):
            gaps.append(values[begin + 48 + step] - values[begin + 24 + step])
    assert found.mse == pytest.approx(float(np.mean(np.square(gaps))), rel=1e-5)
    assert found.mae == pytest.approx(float(np.mean(np.abs(gaps))), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_run_that_was_stopped_ends_with_the_same_numbers(
    small_data: ForecastData, tmp_path: Path, precision: str
) -> None:
    spec = RunSpec("made", "slt", seed=1, epochs=3, precision=precision, **SMALL)
    whole = Training(spec, small_data).run()
    state = tmp_path / "state"

    class Stopped(Exception):
        pass

    def stop(result: RunResult) -> None:
        raise Stopped

    for _ in range(2):
        torch.manual_seed(99)  # whatever drew numbers before does not matter
        with pytest.raises(Stopped):
            Training(spec, small_data, state=state).run(stop)
    resumed = Training(spec, small_data, state=state)
    assert len(resumed.result.epochs) == 2
    errors = [[(one.train, one.validation, one.test) for one in run.epochs] for run in (whole, resumed.run())]
    assert errors[0] == errors[1]
    assert errors[0][0] != errors[0][1]


def test_training_leaves_the_callers_random_numbers_alone(small_data: ForecastData) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    Training(RunSpec("made", "dlinear", epochs=1, **SMALL), small_data).run()
    assert torch.equal(torch.rand(3), expected)


def test_seeds_decide_weights_and_order(small_data: ForecastData) -> None:
    errors = [Training(RunSpec("made", "dlinear", seed=s, epochs=1, **SMALL), small_data).run() for s in (0, 0, 1)]
    assert errors[0].last.test == errors[1].last.test
    assert errors[0].last.test != errors[2].last.test


def test_a_diverged_run_ends_early_and_says_so(small_data: ForecastData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROTOCOLS, "released", replace(PROTOCOLS["released"], learning_rate=1e30))
    result = Training(RunSpec("made", "nbeats", epochs=5, **SMALL), small_data).run()
    assert result.diverged
    assert len(result.epochs) == 1
    assert codec.parse(RunResult, codec.plain(result)).diverged
    with pytest.raises(DataError, match="diverged in its first epoch"):
        _ = result.best


def test_ranks_of_the_last_weights_are_kept(small_data: ForecastData) -> None:
    ranks = Training(RunSpec("made", "slt", epochs=1, **SMALL), small_data).run().ranks
    kinds = [(one["layer"], one["kind"]) for one in ranks["streams"] if one["place"] == "input"]
    assert kinds == [(0, "projection"), (1, "projection"), (2, "attention")]


def test_a_state_of_another_run_is_refused(small_data: ForecastData, tmp_path: Path) -> None:
    state = tmp_path / "state"
    Training(RunSpec("made", "dlinear", epochs=1, **SMALL), small_data, state=state).run()
    with pytest.raises(DataError, match="is of the run made-released-l48-h8-dlinear-e1-s0"):
        Training(RunSpec("made", "dlinear", epochs=2, **SMALL), small_data, state=state)
    state.write_bytes(state.read_bytes()[:100])
    with pytest.raises(DataError, match="cannot be read: delete it"):
        Training(RunSpec("made", "dlinear", epochs=1, **SMALL), small_data, state=state)


def made_result(name: str = "slt", protocol: str = "released", **changes: Any) -> RunResult:
    """Three epochs whose validation is best at the second and whose test is best at the first."""
    scores = [(0.9, 0.5, 0.3), (0.8, 0.4, 0.35), (0.7, 0.45, 0.4)]
    epochs = tuple(
        Epoch(number, *(Score(value, value / 2) for value in row), seconds=float(number))
        for number, row in enumerate(scores, start=1)
    )
    return RunResult(RunSpec("made", name, protocol, epochs=3), epochs, 10, 3, WindowCounts(5, 4, 3), **changes)


def test_the_protocol_chooses_the_weights() -> None:
    assert made_result(protocol="released").chosen.number == 3
    assert made_result(protocol="field").chosen.number == 2
    assert made_result().seconds_per_epoch == 2.0
    assert made_result().within(0.5) is None
    ends = [made_result().within(seconds) for seconds in (3.5, 99.0)]
    assert [end.number for end in ends if end is not None] == [2, 3]


def test_protocols_are_those_of_the_script_and_of_the_field() -> None:
    kept = {name: (one.split, one.reach_back, one.choice, dict(one.first_columns)) for name, one in PROTOCOLS.items()}
    assert kept == {"released": ("fifths", False, "last", {"traffic": 100}), "field": ("months", True, "best", {})}
    both = {(one.epochs, one.batch, one.learning_rate, one.clip) for one in PROTOCOLS.values()}
    assert both == {(10, 32, 1e-4, 1.0)}


def test_results_come_back_as_they_were() -> None:
    result = made_result(windows_per_second=(3.0, 2.0, 4.0), machine="here", ranks={"a": [1, 2]})
    assert codec.parse(RunResult, codec.plain(result)) == result


def test_runs_refuse_what_cannot_be_run() -> None:
    with pytest.raises(OptionError, match="did you mean 'slt'"):
        RunSpec("made", "slr")
    with pytest.raises(OptionError, match="did you mean 'released'"):
        RunSpec("made", "slt", "release")
    with pytest.raises(OptionError, match="epochs must be at least 1"):
        RunSpec("made", "slt", epochs=0)
    with pytest.raises(OptionError, match="precision 'float16'"):
        RunSpec("made", "slt", precision="float16")
    assert len({RunSpec("made", "slt", seed=seed, revin=revin).id for seed in (0, 1) for revin in (False, True)}) == 4


@pytest.mark.parametrize("about", [{}, {"result": 5}, {"result": {"schema": "rankscope/lab-slt@1"}}])
def test_a_state_without_its_result(small_data: ForecastData, tmp_path: Path, about: dict[str, Any]) -> None:
    state, spec = tmp_path / "run.state", RunSpec("made", "dlinear", epochs=1, **SMALL)
    Training(spec, small_data, state=state).run()
    found = read_state(state)
    assert found is not None
    write_state(state, found[0], about)
    with pytest.raises(DataError, match=r"run\.state") as caught:
        Training(spec, small_data, state=state)
    assert "\n" not in str(caught.value)


def test_a_state_without_a_weight(small_data: ForecastData, tmp_path: Path) -> None:
    state, spec = tmp_path / "run.state", RunSpec("made", "dlinear", epochs=1, **SMALL)
    Training(spec, small_data, state=state).run()
    found = read_state(state)
    assert found is not None
    tensors, about = found
    write_state(state, {name: one for name, one in tensors.items() if not name.startswith("weight/")}, about)
    with pytest.raises(DataError, match=r"run\.state does not fit its run"):
        Training(spec, small_data, state=state)
