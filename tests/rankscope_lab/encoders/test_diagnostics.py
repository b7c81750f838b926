"""Diagnostics of trained models: probes and answers beside slow loops and constructed models."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import random_split

from rankscope_lab.data.channels import channel_benchmark
from rankscope_lab.encoders.data import Part, RunData
from rankscope_lab.encoders.diagnostics import (
    diagnose,
    mask_channels,
    position_scores,
    probe_data,
    probe_streams,
    r_squared,
    ridge_weights,
    without_prefix,
)
from rankscope_lab.encoders.models import build
from rankscope_lab.encoders.run_spec import MSE, RunSpec, etth1_spec
from rankscope_lab.encoders.training import score


def test_ridge_equals_least_squares_on_rows_that_pull_to_zero() -> None:
    generator = torch.Generator().manual_seed(0)
    h, x = torch.randn(50, 6, generator=generator), torch.randn(50, 2, generator=generator) + 3
    augmented = np.vstack((h.double().numpy(), np.sqrt(0.7) * np.eye(6)))
    target = np.vstack((x.double().numpy(), np.zeros((6, 2))))
    expected, *_ = np.linalg.lstsq(augmented, target, rcond=None)
    np.testing.assert_allclose(ridge_weights(h, x, 0.7).numpy(), expected, rtol=1e-9)


def test_r_squared_equals_a_loop() -> None:
    generator = torch.Generator().manual_seed(4)
    predicted = torch.randn(9, 3, generator=generator, dtype=torch.float64)
    actual = torch.randn(9, 3, generator=generator, dtype=torch.float64) + 2
    for k in range(3):
        mean = sum(float(row[k]) for row in actual) / 9
        residual = sum((float(a[k]) - float(p[k])) ** 2 for a, p in zip(actual, predicted, strict=True))
        total = sum((float(a[k]) - mean) ** 2 for a in actual)
        assert float(r_squared(predicted, actual)[k]) == pytest.approx(1 - residual / total, rel=1e-12)


def test_the_probe_set_is_split_as_torch_splits() -> None:
    fit, held_out = probe_data(4)
    series = torch.from_numpy(channel_benchmark(4, 256, 99).inputs)
    first, second = random_split(range(256), [205, 51], generator=torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    assert torch.equal(fit, series[list(first.indices)])
    assert torch.equal(held_out, series[list(second.indices)])


def test_separate_directions_are_read_and_a_sum_is_not() -> None:
    fit, held_out = probe_data(4)
    directions = torch.randn(4, 16, generator=torch.Generator().manual_seed(0))
    shared = torch.ones(4, 1) * directions[:1]

    def streams(x: Tensor) -> list[Tensor]:
        return [x @ directions, x @ shared]

    apart, summed = probe_streams(streams, fit, held_out)
    assert apart == pytest.approx([1.0] * 4, abs=1e-6)
    # of independent channels of variance 1 their sum explains 1/C
    assert summed == pytest.approx([0.25] * 4, abs=0.06)


_SERIES, _TIME, _CHANNELS, _BINS = 70, 12, 3, 5
_DRAW = torch.Generator().manual_seed(0)
_INPUTS = torch.randn(_SERIES, _TIME, _CHANNELS, generator=_DRAW)
_LABELS = torch.randint(_BINS, (_SERIES, _TIME), generator=_DRAW)
_MAP = torch.randn(_CHANNELS, _BINS, generator=_DRAW)


def linear_model(x: Tensor) -> Tensor:
    return x @ _MAP


def test_scores_equal_a_loop_over_positions() -> None:
    nll, right = position_scores(linear_model, _INPUTS, _LABELS)
    assert nll.shape == (_SERIES, _TIME - 1)
    for series in (0, 31, 32, 69):  # on both sides of a batch's edge
        for t in range(_TIME - 1):
            logits = [float(v) for v in _INPUTS[series, t].double() @ _MAP.double()]
            label = int(_LABELS[series, t + 1])
            log_sum = math.log(sum(math.exp(v) for v in logits))
            assert float(nll[series, t]) == pytest.approx(log_sum - logits[label], rel=1e-5)
            assert bool(right[series, t]) == (max(range(_BINS), key=logits.__getitem__) == label)


def test_a_mask_hits_only_the_channel_that_a_model_looks_at() -> None:
    labels = (_INPUTS[..., 1] > 0).long().roll(1, dims=1)  # bin of the next step: sign of channel 1 now

    def sees_one(x: Tensor) -> Tensor:
        return torch.stack((torch.zeros_like(x[..., 1]), x[..., 1]), -1)

    found = mask_channels(sees_one, _INPUTS, labels)
    assert found["none"] == 1.0
    assert found["masked"][0] == found["masked"][2] == 1.0
    assert found["masked"][1] == pytest.approx(float((labels[:, 1:] == 0).double().mean()), abs=1e-9)
    assert float(_INPUTS.abs().min()) > 0  # the inputs are left as they were


def test_leaving_out_the_prefix_is_the_mean_over_the_rest() -> None:
    nll, hits = position_scores(linear_model, _INPUTS, _LABELS)
    found = without_prefix(nll, hits, lead=7)
    # targets t = 1..11 are scored; t = 1..6 lie in the constant start, t = 7..11 do not
    real = [float(nll[s, t - 1]) for s in range(_SERIES) for t in range(7, _TIME)]
    start = [float(nll[s, t - 1]) for s in range(_SERIES) for t in range(1, 7)]
    assert found["free_nll"] == pytest.approx(sum(real) / len(real), rel=1e-6)
    assert found["nll"] == pytest.approx((sum(real) + sum(start)) / (_SERIES * 11), rel=1e-6)
    right = [float(hits[s, t - 1]) for s in range(_SERIES) for t in range(7, _TIME)]
    assert found["free_accuracy"] == pytest.approx(sum(right) / len(right), rel=1e-6)


GEOMETRY = {"gram", "norms", "variance_shares", "position"}
EXPECTED = {"sum": set(), "ci": set(), "cat": set(), "mlp": {"gram", "norms"}, "concat": {"norms", "variance_shares"}}


def part(spec: RunSpec, series: int = 3) -> Part:
    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(series, 160, spec.channels, generator=draw)
    if spec.objective == MSE:
        return Part(inputs, inputs[..., 0].clone())
    return Part(inputs, torch.randint(32, (series, 160), generator=draw))


def data(spec: RunSpec) -> RunData:
    return RunData(part(spec), part(spec))


@pytest.mark.parametrize("encoder", ["linear", "linear-ppe", "linear-nobias", *EXPECTED])
def test_which_diagnostics_a_run_has(encoder: str) -> None:
    torch.manual_seed(0)
    spec = RunSpec(encoder)
    model = build(spec).train()
    found = diagnose(spec, model, data(spec))
    expected = EXPECTED.get(encoder, GEOMETRY) | {"mask", "prefix"}
    assert set(found) == (expected if encoder in ("ci", "cat") else expected | {"probe"})
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert model.training
    if "probe" in found:
        assert [len(depth) for depth in found["probe"]] == [4] * 4
    if encoder in ("linear", "linear-ppe", "mlp"):  # the encoder writes every channel where a probe can read it
        assert found["probe"][0] == pytest.approx([1.0] * 4, abs=2e-3)


def test_accuracy_and_loss_are_those_of_the_validation() -> None:
    torch.manual_seed(0)
    spec = RunSpec("linear")
    model, both = build(spec), data(spec)
    found, point = diagnose(spec, model, both), score(model, both.validation, spec, 1, 0.0)
    assert found["mask"]["none"] == pytest.approx(point.accuracy, abs=1e-9)
    assert found["prefix"]["nll"] == pytest.approx(point.loss, rel=1e-5)


def test_positions_are_what_the_stream_gets_when_inputs_are_zero() -> None:
    torch.manual_seed(0)
    spec = RunSpec("linear-ppe")
    model = build(spec)
    with torch.no_grad():
        model.encoder.bias.normal_()
    found = diagnose(spec, model, data(spec))["position"]
    with torch.no_grad():
        stream = model.hidden(torch.zeros(1, 160, 4))[0][0] - model.encoder.bias.sum(0)
    assert found["energy"] == pytest.approx(float(stream.double().square().sum()), rel=1e-5)
    assert found["sigma"][0] == pytest.approx(float(torch.linalg.matrix_norm(stream.double(), 2)), rel=1e-5)


def test_orthogonal_channels_and_a_larger_one_are_seen() -> None:
    torch.manual_seed(0)
    spec = RunSpec("linear")
    model = build(spec)
    with torch.no_grad():
        model.encoder.weight.copy_(torch.eye(64)[:4] * torch.tensor([3.0, 1.0, 1.0, 1.0])[:, None])
    found = diagnose(spec, model, data(spec))
    assert found["gram"] == {"mean": 0.0, "max": 0.0}
    assert found["norms"] == [3.0, 1.0, 1.0, 1.0]
    assert found["variance_shares"][0] == pytest.approx(9 / 12, abs=0.03)


def test_of_mlp_the_columns_of_the_first_layer_are_measured() -> None:
    torch.manual_seed(0)
    spec = RunSpec("mlp")
    model = build(spec)
    with torch.no_grad():
        model.encoder.inner.weight.copy_(torch.eye(64)[:, :4] * torch.tensor([3.0, 1.0, 1.0, 2.0]))
    found = diagnose(spec, model, data(spec))
    assert found["norms"] == [3.0, 1.0, 1.0, 2.0]
    assert found["gram"] == {"mean": 0.0, "max": 0.0}


def test_on_etth1_there_is_no_probe_and_under_mse_no_mask() -> None:
    torch.manual_seed(0)
    spec = etth1_spec("linear", 0)
    found = diagnose(spec, build(spec), data(spec))
    assert set(found) == GEOMETRY | {"mask"}
    assert len(found["mask"]["masked"]) == 7
    spec = RunSpec("linear", objective=MSE)
    assert set(diagnose(spec, build(spec), data(spec))) == GEOMETRY | {"probe"}


def test_weights_that_are_not_finite_have_no_diagnostics() -> None:
    spec = RunSpec("linear")
    model = build(spec)
    with torch.no_grad():
        model.head.bias[0] = math.nan
    assert diagnose(spec, model, data(spec)) == {}
