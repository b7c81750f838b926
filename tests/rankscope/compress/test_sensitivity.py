"""Weights measured by cutting one thing alone: never below zero, zero where nothing depends on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rankscope import open_checkpoint
from rankscope.calibration import Calibration, CalibrationSet, calibrate, calibration_set
from rankscope.calibration.passes import run_pass
from rankscope.checkpoints import Checkpoint
from rankscope.compress import Allocation, Budget, compress, sensitivity
from rankscope.compress.apply import write_folder
from rankscope.compress.plan import Plan, site_plan
from rankscope.compress.prepared import CompressOptions, Prepared, prepare, read_matrices
from rankscope.compress.sensitivity import divergence, measured_weights, replaced, squared_change, weighed
from rankscope.errors import OptionError

KINDS = ("chronos-t5", "chronos-bolt", "t5")
HALF = Budget("ratio", 0.5)


def texts(seed: int = 1) -> CalibrationSet:
    tokens = torch.randint(2, 60, (16, 28), generator=torch.Generator().manual_seed(seed)).float()
    return CalibrationSet("texts", tokens[:, :20], tokens[:, 20:])


Make = Callable[..., tuple[Checkpoint, Calibration]]


@pytest.fixture
def make(tmp_path: Path, write_checkpoint: Any, tiny_config: Any, random_tensors: Any) -> Make:
    """``make("t5", {"...v.weight": 0.0})``: a random model, some of its matrices scaled, and its moments."""

    def build(kind: str, scaled: dict[str, float] | None = None) -> tuple[Checkpoint, Calibration]:
        config = tiny_config(kind, num_decoder_layers=2)
        tensors = random_tensors(config)
        for name, factor in (scaled or {}).items():
            tensors[name] = tensors[name] * factor
        checkpoint = open_checkpoint(write_checkpoint(tmp_path / kind, config, tensors))
        series = texts() if kind == "t5" else calibration_set("kernelsynth:16", context=32, horizon=8)
        watched = tuple(site for site in checkpoint.sites(["all"]) if site.role != "embedding")
        return checkpoint, calibrate(checkpoint, series, sites=watched)

    return build


def options(kind: str, moments: Calibration | None, **changes: Any) -> CompressOptions:
    probe = texts(2) if kind == "t5" else "kernelsynth:6"
    how = {"method": "joint", "allocation": "sensitivity", "calibration": moments, "probe": probe, **changes}
    return CompressOptions(**how)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_not_negative_and_shared_by_the_heads_of_a_pair(kind: str, make: Make) -> None:
    checkpoint, moments = make(kind)
    prepared = prepare(checkpoint, options(kind, moments))
    weights = measured_weights(prepared, HALF)
    assert weights.keys() == {one.name for one in prepared.flat}
    assert all(weight >= 0 for weight in weights.values())
    assert sum(weight > 0 for weight in weights.values()) >= len(weights) / 2
    by_pair: dict[str, set[float]] = {}
    for name, weight in weights.items():
        by_pair.setdefault(name.rpartition(".")[0], set()).add(weight)
    assert all(len(found) == 1 for found in by_pair.values())
    assert len({weight for found in by_pair.values() for weight in found}) > 2
    assert weights == measured_weights(prepared, HALF)


@pytest.mark.parametrize("kind", KINDS)
def test_what_nothing_depends_on_weighs_nothing(kind: str, make: Make) -> None:
    """Values of an attention are zero: neither what it writes nor what it looks at matters."""
    attention = "encoder.block.1.layer.0.SelfAttention"
    checkpoint, moments = make(kind, {f"{attention}.v.weight": 0.0})
    weights = measured_weights(prepare(checkpoint, options(kind, moments)), HALF)
    assert {weights[f"{attention}.{pair}.{head}"] for pair in ("qk", "vo") for head in range(2)} == {0.0}
    assert weights["encoder.block.0.layer.0.SelfAttention.vo.0"] > 0


def test_a_decoder_of_one_token_needs_no_queries(make: Make) -> None:
    checkpoint, moments = make("chronos-bolt")
    weights = measured_weights(prepare(checkpoint, options("chronos-bolt", moments)), HALF)
    assert weights["decoder.block.0.layer.0.SelfAttention.qk.0"] == 0.0
    assert weights["decoder.block.0.layer.0.SelfAttention.vo.0"] > 0.0


@pytest.mark.parametrize("method", ["svd", "whitened"])
@pytest.mark.parametrize("kind", [*KINDS, "chronos-2"])
def test_single_matrices_of_every_family(kind: str, method: str, make: Make) -> None:
    checkpoint, moments = make(kind)
    how = options(kind, moments if method == "whitened" else None, method=method)
    weights = measured_weights(prepare(checkpoint, how), HALF)
    assert weights.keys() == {site.name for site in checkpoint.sites()}
    assert all(weight >= 0 for weight in weights.values())
    assert any(weights.values())


def test_the_weight_is_the_loss_over_the_squared_error_that_was_cut(make: Make, tmp_path: Path) -> None:
    """Measured again by hand: one pair cut, written to a folder, and asked the same."""
    checkpoint, moments = make("chronos-t5")
    prepared = prepare(checkpoint, options("chronos-t5", moments))
    weights = measured_weights(prepared, HALF)
    energy = prepare(checkpoint, options("chronos-t5", moments, allocation="energy")).by_budget(HALF)
    pair = "decoder.block.1.layer.1.EncDecAttention.vo."
    sites, error = [], 0.0
    for one, plan in zip(prepared.flat, energy.sites, strict=True):
        mine = one.name.startswith(pair)
        sites.append(plan if mine else site_plan(one, min(one.shape)))
        error += float(one.values[plan.rank :].square().sum()) if mine else 0.0
    assert error > 0
    write_folder(prepared, Plan(None, None, tuple(sites), "energy"), tmp_path / "cut")
    series = calibration_set("kernelsynth:6", context=32, horizon=8, seed=sensitivity.PROBE_SEED)
    exact, cut = (
        run_pass(model.module(), model.family, series.context, series.future).logits.double().log_softmax(-1)
        for model in (checkpoint, open_checkpoint(tmp_path / "cut"))
    )
    loss = float((exact.exp() * (exact - cut)).sum(-1).mean())
    assert weights[f"{pair}0"] == pytest.approx(loss / error, rel=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_stand_ins_answer_as_the_written_folder_does(kind: str, make: Make, tmp_path: Path) -> None:
    """Zeros in place of what a head loses: same shapes, same answers; and afterwards all is as it was."""
    checkpoint, moments = make(kind)
    prepared = prepare(checkpoint, options(kind, moments, allocation="energy", sites=["attention", "mlp"]))
    plan = prepared.by_budget(HALF)
    write_folder(prepared, plan, tmp_path / "small")
    matrices: dict[str, Tensor] = {}
    for group, plans in zip(prepared.groups, prepared.parts(plan), strict=True):
        if any(one.changed for one in plans):
            matrices |= group.stand_ins(read_matrices(checkpoint, group), plans)
    module = checkpoint.module()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    series = texts() if kind == "t5" else calibration_set("kernelsynth:4", context=32, horizon=8)

    def answer(model: Any) -> Tensor:
        found = run_pass(model, checkpoint.family, series.context, series.future)
        return found.quantile_preds if kind == "chronos-bolt" else found.logits

    exact = answer(module)
    with replaced(module, matrices):
        torch.testing.assert_close(
            answer(module), answer(open_checkpoint(tmp_path / "small").module()), rtol=1e-4, atol=1e-4
        )
        assert not torch.allclose(answer(module), exact, rtol=1e-2)
    assert torch.equal(answer(module), exact)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())


def test_replaced_layers_keep_their_bias_and_come_back_after_errors() -> None:
    layers = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2, bias=False))
    x = torch.randn(5, 3)
    exact, other = layers(x), torch.randn(2, 3)
    with replaced(layers, {"0": other}):
        torch.testing.assert_close(layers(x), layers[1](x @ other.T + layers[0].bias))
    assert torch.equal(layers(x), exact)
    with pytest.raises(RuntimeError), replaced(layers, {"0": other}):
        layers(torch.randn(5, 4))
    assert torch.equal(layers(x), exact)


def tight(prepared: Prepared, ratio: float = 0.4) -> dict[str, int]:
    limit = Budget("ratio", ratio)
    return {site.name: site.rank for site in weighed(prepared, limit).by_budget(limit).sites}


USELESS = "encoder.block.1.layer.0.SelfAttention"
UNHEARD = {  # the last attention of the encoder writes a lot, and no cross-attention lets anything of it through
    f"{USELESS}.v.weight": 30.0,
    "decoder.block.0.layer.1.EncDecAttention.v.weight": 0.0,
    "decoder.block.1.layer.1.EncDecAttention.v.weight": 0.0,
}


def test_the_plan_moves_ranks_to_where_the_answers_suffer(make: Make) -> None:
    """What is loud and never heard is fed by energy and starved by sensitivity."""
    checkpoint, moments = make("chronos-t5", UNHEARD)
    by_energy, by_sensitivity = (
        tight(prepare(checkpoint, options("chronos-t5", moments, allocation=name)))
        for name in ("energy", "sensitivity")
    )

    def total(plan: dict[str, int], part: str) -> int:
        return sum(rank for name, rank in plan.items() if part in name)

    assert total(by_energy, f"{USELESS}.vo") > 2
    assert total(by_sensitivity, USELESS) == 4  # one for each head of each pair: the least
    assert total(by_sensitivity, "decoder.block.0.layer.0") > total(by_energy, "decoder.block.0.layer.0")


def test_compress_measures_by_itself_and_loses_less(make: Make, tmp_path: Path) -> None:
    checkpoint, moments = make("chronos-t5", UNHEARD)
    seen: set[str] = set()
    errors = {}
    series = calibration_set("kernelsynth:8", context=32, horizon=8, seed=77)

    def answer(model: Checkpoint) -> Tensor:
        return run_pass(model.module(), model.family, series.context, series.future).logits

    for name in ("energy", "sensitivity"):
        report = compress(
            checkpoint,
            out=tmp_path / name,
            ratio=0.4,
            method="joint",
            allocation=name,
            calibration=moments,
            probe="kernelsynth:8",
            progress=lambda done, total, what: seen.add(what),
        )
        assert report.allocation == name
        assert report.ratio <= 0.4
        near = answer(open_checkpoint(tmp_path / name))
        errors[name] = float(divergence(answer(checkpoint), near).mean())
    assert "sensitivity" in seen
    assert errors["sensitivity"] < 0.7 * errors["energy"]


def test_weights_that_are_given_are_not_measured(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint, moments = make("chronos-bolt")
    prepared = prepare(checkpoint, options("chronos-bolt", moments, allocation="energy"))
    monkeypatch.setattr(sensitivity, "measured_weights", lambda *_: pytest.fail("measured"))
    for rule in (Allocation("energy"), Allocation("sensitivity", {prepared.flat[0].name: 2.0})):
        assert weighed(replace(prepared, rule=rule), HALF).rule == rule
    whole = replace(prepared, rule=Allocation("sensitivity"))
    assert weighed(whole, Budget("ratio", 1.0)) is whole


def test_a_text_model_needs_tokens(make: Make) -> None:
    checkpoint, moments = make("t5")
    with pytest.raises(OptionError, match="give a probe, text:FILE") as caught:
        measured_weights(prepare(checkpoint, options("t5", moments, probe=None)), HALF)
    assert "\n" not in str(caught.value)


def test_a_budget_out_of_reach_is_said_before_anything_is_measured(make: Make) -> None:
    checkpoint, moments = make("chronos-bolt")
    with pytest.raises(OptionError, match="out of reach"):
        measured_weights(prepare(checkpoint, options("chronos-bolt", moments)), Budget("ratio", 0.01))


def test_divergence_is_that_of_distributions() -> None:
    generator = torch.Generator().manual_seed(0)
    exact, moved = (torch.randn(2, 3, 5, generator=generator) for _ in range(2))
    p, q = exact.double().softmax(-1), moved.double().softmax(-1)
    torch.testing.assert_close(divergence(exact, moved), (p * (p / q).log()).sum(-1))
    torch.testing.assert_close(divergence(exact, exact + 7), torch.zeros(2, 3).double(), rtol=0, atol=1e-6)
    assert bool((divergence(exact, moved) > 0).all())


def test_squared_change_has_no_unit_and_survives_constant_series() -> None:
    exact = torch.tensor([[[1.0, 1.0], [3.0, 5.0]]])
    moved = exact + torch.tensor([[[0.0, 3.0], [0.0, 0.0]]])
    found = squared_change(exact, moved)
    assert found[0, 0].tolist() == [0.0, 1.0]  # spread (2 + 4) / 2, and a change of 3
    torch.testing.assert_close(squared_change(1e4 * exact, 1e4 * moved), found)
    flat = torch.full((1, 2, 2), 5.0)
    assert float(squared_change(flat, flat + 0.005).max()) == pytest.approx(1.0, rel=1e-3)
    zero = torch.zeros(1, 2, 2)
    assert bool(torch.isfinite(squared_change(zero, zero)).all())
