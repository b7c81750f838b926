"""Layers of whole numbers: what they compute, alone, in factors and in whole models, and the way back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rankscope import lowrank
from rankscope.families import FAMILIES, Factored, HeadWidth
from rankscope.families.weight_layout import linear_layers, low_rank_config
from rankscope.lowrank import FactoredLinear, Int8Linear
from rankscope.lowrank.models import restore_layers, round_layers
from rankscope.numerics.quantise import quantise

KINDS = {
    "chronos-t5": ("chronos-t5", "LowRankT5Config", "LowRankT5ForConditionalGeneration"),
    "t5-gated": ("t5", "LowRankT5Config", "LowRankT5ForConditionalGeneration"),
    "chronos-bolt": ("chronos-bolt", "LowRankBoltConfig", "LowRankBoltModel"),
    "chronos-2": ("chronos-2", "LowRankChronos2Config", "LowRankChronos2Model"),
}


def layouts(kind: str, stock: dict[str, Any]) -> dict[str, Any]:
    """Every layout that the kind knows, side by side: dense, both kinds of factors, narrow heads."""
    sites = [site for site in FAMILIES[KINDS[kind][0]].sites(stock) if site.kind == "attention"]
    found: dict[str, Any] = {sites[0].module: Factored(3), sites[1].module: Factored(2, heads=2)}
    if kind != "chronos-2":
        found[sites[4].module.rpartition(".")[0]] = HeadWidth((2, 3), (1, 4))
    return found


def build(kind: str, tiny_config: Callable[..., dict[str, Any]]) -> Any:
    family, config_name, model_name = KINDS[kind]
    stock = tiny_config(kind, initializer_factor=0.4)
    config = low_rank_config(stock, FAMILIES[family], layouts(kind, stock), "design", "int8")
    torch.manual_seed(0)
    return getattr(lowrank, model_name)(getattr(lowrank, config_name).from_dict(config)).eval()


def forward(model: Any, kind: str) -> torch.Tensor:
    with torch.no_grad():
        if kind in ("chronos-t5", "t5-gated"):
            tokens = torch.arange(2, 22).reshape(2, 10)
            return model(input_ids=tokens, decoder_input_ids=tokens[:, :4]).logits
        return model(context=torch.sin(torch.arange(40.0)).reshape(2, 20)).quantile_preds


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-5), ("bfloat16", 3e-2), ("float16", 3e-3)]
)
def test_it_applies_the_rounded_matrix(dtype: str, tolerance: float, bias: bool) -> None:
    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    linear = nn.Linear(40, 30, bias=bias, dtype=kind)
    layer, x = Int8Linear(linear), torch.randn(2, 5, 40, dtype=kind)
    exact = x.double() @ quantise(linear.weight).dense(torch.float64).T + (linear.bias.double() if bias else 0.0)
    assert layer(x).dtype == kind
    torch.testing.assert_close(layer(x).double(), exact, rtol=tolerance, atol=tolerance)


def test_float16_stays_in_its_range() -> None:
    linear = nn.Linear(2048, 4, bias=False, dtype=torch.float16)
    nn.init.constant_(linear.weight, 0.5)
    assert bool(Int8Linear(linear)(torch.ones(1, 2048, dtype=torch.float16)).isfinite().all())


@pytest.mark.parametrize("half", [lambda layer: layer.half(), lambda layer: layer.float().to(torch.float16)])
@pytest.mark.parametrize("built", [torch.float32, torch.float16])
def test_small_rows_keep_their_scales_in_float16(built: torch.dtype, half: Callable[[Any], Any]) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(40, 30, bias=False, dtype=built)
    nn.init.uniform_(linear.weight, -1e-5, 1e-5)
    layer, exact = half(Int8Linear(linear)), quantise(linear.weight).dense()
    assert torch.equal(layer.dense(), exact.half())
    assert (layer.dtype, layer(torch.ones(1, 40)).dtype) == (torch.float16,) * 2
    assert torch.equal(layer.float().dense(), exact)


@pytest.mark.parametrize(("heads", "axis"), [(None, 0), (2, 0), (2, 1)])
def test_factors_in_whole_numbers_apply_their_product(heads: int | None, axis: int) -> None:
    torch.manual_seed(0)
    layer = FactoredLinear(8, 6, 2, heads=heads, axis=axis, bias=True)
    round_layers(layer, ["up", "down"])
    x = torch.randn(3, 8)
    assert isinstance(layer.up, Int8Linear)
    assert isinstance(layer.down, Int8Linear)
    torch.testing.assert_close(layer(x), x @ layer.dense().T + layer.bias, rtol=1e-5, atol=1e-6)
    assert layer.weight.dtype == torch.float32


@pytest.mark.parametrize("kind", KINDS)
def test_all_linear_layers_and_nothing_else(kind: str, tiny_config: Any) -> None:
    model = build(kind, tiny_config)
    family, stock = FAMILIES[KINDS[kind][0]], tiny_config(kind)
    named = linear_layers(family.sites(stock), layouts(kind, stock))
    assert {name for name, layer in model.named_modules() if isinstance(layer, Int8Linear)} == named
    left = {name.partition(".")[0] for name, layer in model.named_modules() if type(layer) is nn.Linear}
    assert left == ({"lm_head"} if "t5" in kind else set())


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_answers_as_the_one_of_the_rounded_matrices(kind: str, tiny_config: Any) -> None:
    model = build(kind, tiny_config)
    whole = forward(model, kind)
    restore_layers(model)
    assert not any(isinstance(layer, Int8Linear) for layer in model.modules())
    assert "storage" not in model.config.rankscope
    torch.testing.assert_close(whole, forward(model, kind), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_save_and_reload_is_exact(kind: str, tiny_config: Any, tmp_path: Path) -> None:
    model = build(kind, tiny_config)
    for layer in model.modules():  # scales as a folder has them
        if isinstance(layer, Int8Linear):
            assert torch.equal(layer.weight_scale, layer.weight_scale.bfloat16().float())
    model.save_pretrained(tmp_path)
    assert [file.name for file in tmp_path.glob("model*")] == ["model.safetensors"]
    again = type(model).from_pretrained(tmp_path).eval()
    state, restored = model.state_dict(), again.state_dict()
    assert state.keys() == restored.keys()
    assert all(torch.equal(state[name], restored[name]) for name in state)
    assert torch.equal(forward(model, kind), forward(again, kind))
    half = type(model).from_pretrained(tmp_path, torch_dtype=torch.bfloat16)
    assert {p.dtype for p in half.parameters()} == {torch.bfloat16, torch.int8}
    for name, value in half.state_dict().items():
        assert torch.equal(value, state[name].to(value.dtype)), name


def test_restored_layers_can_be_trained(tiny_config: Any) -> None:
    model = build("chronos-bolt", tiny_config).train()
    assert not any(p.requires_grad for p in model.parameters() if p.dtype == torch.int8)
    restore_layers(model)
    model(context=torch.randn(2, 20), target=torch.randn(2, 8)).loss.backward()
    assert all(p.grad is not None for name, p in model.named_parameters() if "Attention" in name)
