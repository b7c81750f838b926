"""All diagnostics of a model: which there are, and that they see what was put into its weights."""

from __future__ import annotations

import json
import math

import pytest
import torch

from rankscope_lab.encoders.cell import MSE, Cell, etth1_cell
from rankscope_lab.encoders.data import CellData, Part
from rankscope_lab.encoders.diagnostics import diagnose
from rankscope_lab.encoders.models import build
from rankscope_lab.encoders.training import score

GEOMETRY = {"gram", "norms", "variance_shares", "position"}
EXPECTED = {"sum": set(), "ci": set(), "cat": set(), "mlp": {"gram", "norms"}, "concat": {"norms", "variance_shares"}}


def part(cell: Cell, series: int = 3) -> Part:
    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(series, 160, cell.channels, generator=draw)
    if cell.objective == MSE:
        return Part(inputs, inputs[..., 0].clone())
    return Part(inputs, torch.randint(32, (series, 160), generator=draw))


def data(cell: Cell) -> CellData:
    return CellData(part(cell), part(cell))


@pytest.mark.parametrize("encoder", ["linear", "linear-ppe", "linear-nobias", *EXPECTED])
def test_which_diagnostics_a_cell_has(encoder: str) -> None:
    torch.manual_seed(0)
    cell = Cell(encoder)
    model = build(cell).train()
    found = diagnose(cell, model, data(cell))
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
    cell = Cell("linear")
    model, both = build(cell), data(cell)
    found, point = diagnose(cell, model, both), score(model, both.validation, cell, 1, 0.0)
    assert found["mask"]["none"] == pytest.approx(point.accuracy, abs=1e-9)
    assert found["prefix"]["nll"] == pytest.approx(point.loss, rel=1e-5)


def test_positions_are_what_the_stream_gets_when_inputs_are_zero() -> None:
    torch.manual_seed(0)
    cell = Cell("linear-ppe")
    model = build(cell)
    with torch.no_grad():
        model.encoder.bias.normal_()
    found = diagnose(cell, model, data(cell))["position"]
    with torch.no_grad():
        stream = model.hidden(torch.zeros(1, 160, 4))[0][0] - model.encoder.bias.sum(0)
    assert found["energy"] == pytest.approx(float(stream.double().square().sum()), rel=1e-5)
    assert found["sigma"][0] == pytest.approx(float(torch.linalg.matrix_norm(stream.double(), 2)), rel=1e-5)


def test_orthogonal_channels_and_a_larger_one_are_seen() -> None:
    torch.manual_seed(0)
    cell = Cell("linear")
    model = build(cell)
    with torch.no_grad():
        model.encoder.weight.copy_(torch.eye(64)[:4] * torch.tensor([3.0, 1.0, 1.0, 1.0])[:, None])
    found = diagnose(cell, model, data(cell))
    assert found["gram"] == {"mean": 0.0, "max": 0.0}
    assert found["norms"] == [3.0, 1.0, 1.0, 1.0]
    assert found["variance_shares"][0] == pytest.approx(9 / 12, abs=0.03)


def test_of_mlp_the_columns_of_the_first_layer_are_measured() -> None:
    torch.manual_seed(0)
    cell = Cell("mlp")
    model = build(cell)
    with torch.no_grad():
        model.encoder.inner.weight.copy_(torch.eye(64)[:, :4] * torch.tensor([3.0, 1.0, 1.0, 2.0]))
    found = diagnose(cell, model, data(cell))
    assert found["norms"] == [3.0, 1.0, 1.0, 2.0]
    assert found["gram"] == {"mean": 0.0, "max": 0.0}


def test_on_etth1_there_is_no_probe_and_under_mse_no_mask() -> None:
    torch.manual_seed(0)
    cell = etth1_cell("linear", 0)
    found = diagnose(cell, build(cell), data(cell))
    assert set(found) == GEOMETRY | {"mask"}
    assert len(found["mask"]["masked"]) == 7
    cell = Cell("linear", objective=MSE)
    assert set(diagnose(cell, build(cell), data(cell))) == GEOMETRY | {"probe"}


def test_weights_that_are_not_finite_have_no_diagnostics() -> None:
    cell = Cell("linear")
    model = build(cell)
    with torch.no_grad():
        model.head.bias[0] = math.nan
    assert diagnose(cell, model, data(cell)) == {}
