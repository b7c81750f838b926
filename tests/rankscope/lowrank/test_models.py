"""The three model classes: built from scratch, saved, reloaded, in float32 and bfloat16."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rankscope import lowrank
from rankscope.families import FAMILIES, Factored
from rankscope.families.weight_layout import low_rank_config
from rankscope.lowrank import FactoredLinear
from rankscope.lowrank.models import stock_std

KINDS = {
    "chronos-t5": ("chronos-t5", "LowRankT5Config", "LowRankT5ForConditionalGeneration"),
    "t5-gated": ("t5", "LowRankT5Config", "LowRankT5ForConditionalGeneration"),
    "chronos-bolt": ("chronos-bolt", "LowRankBoltConfig", "LowRankBoltModel"),
    "chronos-2": ("chronos-2", "LowRankChronos2Config", "LowRankChronos2Model"),
}


def build(
    kind: str, tiny_config: Callable[..., dict[str, Any]], rank: int = 3, storage: str = "float", **changes: Any
) -> Any:
    family, config_name, model_name = KINDS[kind]
    stock = tiny_config(kind, **changes)
    modules = [site.module for site in FAMILIES[family].sites(stock) if site.role != "embedding"]
    config = low_rank_config(stock, FAMILIES[family], dict.fromkeys(modules, Factored(rank)), "design", storage)
    torch.manual_seed(0)
    return getattr(lowrank, model_name)(getattr(lowrank, config_name).from_dict(config)).eval()


def forward(model: Any, kind: str) -> torch.Tensor:
    if kind in ("chronos-t5", "t5-gated"):
        tokens = torch.arange(2, 22).reshape(2, 10)
        with torch.no_grad():
            return model(input_ids=tokens, decoder_input_ids=tokens[:, :4]).logits
    series = torch.sin(torch.arange(40.0)).reshape(2, 20)
    with torch.no_grad():
        return model(context=series).quantile_preds


def densified(model: Any) -> Any:
    """Put in place of every factored layer the dense layer of its product."""
    for name, layer in list(model.named_modules()):
        if isinstance(layer, FactoredLinear):
            dense = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None)
            with torch.no_grad():
                dense.weight.copy_(layer.dense())
                if layer.bias is not None:
                    dense.bias.copy_(layer.bias)
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, dense)
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_forward_equals_the_dense_model_of_the_products(kind: str, tiny_config: Any) -> None:
    model = build(kind, tiny_config, initializer_factor=0.4)
    factored = forward(model, kind)
    assert any(isinstance(layer, FactoredLinear) for layer in model.modules())
    dense = forward(densified(model), kind)
    assert not any(isinstance(layer, FactoredLinear) for layer in model.modules())
    torch.testing.assert_close(factored, dense, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_save_and_reload_is_exact(kind: str, tiny_config: Any, tmp_path: Path) -> None:
    model = build(kind, tiny_config)
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path).eval()
    state, restored = model.state_dict(), again.state_dict()
    assert state.keys() == restored.keys()
    assert all(torch.equal(state[name], restored[name]) for name in state)
    assert again.config.rankscope == model.config.rankscope
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == type(model).config_class.model_type
    assert torch.equal(forward(model, kind), forward(again, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_saves_and_loads_exactly(kind: str, tiny_config: Any, tmp_path: Path) -> None:
    model = build(kind, tiny_config)
    model.save_pretrained(tmp_path / "wide")
    half = type(model).from_pretrained(tmp_path / "wide", torch_dtype=torch.bfloat16)
    assert {p.dtype for p in half.parameters()} == {torch.bfloat16}
    for name, value in half.state_dict().items():
        assert torch.equal(value, model.state_dict()[name].to(torch.bfloat16)), name
    half.save_pretrained(tmp_path / "half")
    again = type(model).from_pretrained(tmp_path / "half", torch_dtype="auto")
    assert {p.dtype for p in again.parameters()} == {torch.bfloat16}
    assert all(torch.equal(v, again.state_dict()[name]) for name, v in half.state_dict().items())


@pytest.mark.parametrize("kind", KINDS)
def test_from_scratch_gives_every_site_its_stock_variance(kind: str, tiny_config: Any) -> None:
    model = build(kind, tiny_config, rank=8, d_model=64, d_ff=96, d_kv=16, num_heads=4, initializer_factor=0.5)
    layers = {name: m for name, m in model.named_modules() if isinstance(m, FactoredLinear)}
    assert layers
    ratios = []
    for name, layer in layers.items():
        std = stock_std(name, layer.in_features, 16, 0.5)
        assert layer.init_std == std
        ratios.append(layer.dense().std().item() / std)
    assert sum(ratios) / len(ratios) == pytest.approx(1.0, abs=0.06)
    assert max(abs(ratio - 1) for ratio in ratios) < 0.4


@pytest.mark.parametrize("kind", ["chronos-t5", "chronos-bolt", "chronos-2"])
def test_gradients_reach_both_factors(kind: str, tiny_config: Any) -> None:
    model = build(kind, tiny_config).train()
    if kind == "chronos-t5":
        tokens = torch.arange(2, 22).reshape(2, 10)
        loss = model(input_ids=tokens, labels=tokens[:, :4].contiguous()).loss
    elif kind == "chronos-bolt":
        loss = model(context=torch.randn(2, 20), target=torch.randn(2, 8)).loss
    else:
        loss = model(context=torch.randn(2, 20), future_target=torch.randn(2, 4), num_output_patches=1).loss
    loss.backward()
    for name, layer in model.named_modules():
        if isinstance(layer, FactoredLinear) and "output_patch" not in name:
            alone = kind != "chronos-t5" and name.endswith((".q", ".k"))  # one key: the scores make no difference
            for factor in (layer.up, layer.down):
                assert factor.weight.grad.isfinite().all(), name
                assert alone or factor.weight.grad.abs().sum() > 0, name


@pytest.mark.parametrize("storage", ["float", "int8"])
def test_chronos_2_is_fine_tuned_in_its_own_layout(storage: str, tiny_config: Any, tmp_path: Path) -> None:
    pipeline = lowrank.LowRankChronos2Pipeline(build("chronos-2", tiny_config, storage=storage))
    before = {name: value.clone() for name, value in pipeline.model.state_dict().items()}
    series = torch.sin(torch.arange(240.0)).reshape(4, 60)
    tuned = pipeline.fit(list(series), 4, num_steps=2, batch_size=4, learning_rate=1e-3, output_dir=tmp_path)
    assert type(tuned) is lowrank.LowRankChronos2Pipeline
    changed = {name for name, value in tuned.model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed
    assert not any(value.dtype == torch.int8 for name, value in before.items() if name in changed)
    assert all(torch.equal(value, before[name]) for name, value in pipeline.model.state_dict().items())
    tuned.model.eval()
    again = lowrank.LowRankChronos2Pipeline.from_pretrained(tmp_path / "finetuned-ckpt")
    found, expected = (one.predict([series[0]], prediction_length=4)[0] for one in (again, tuned))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("storage", ["float", "int8"])
@pytest.mark.parametrize(
    ("kind", "stock"),
    [("chronos-t5", "ChronosPipeline"), ("chronos-bolt", "ChronosBoltPipeline"), ("chronos-2", "Chronos2Pipeline")],
)
def test_the_stock_pipelines_class_loads_the_stored_layout(
    kind: str, stock: str, storage: str, tiny_config: Any, tmp_path: Path
) -> None:
    import chronos

    model = build(kind, tiny_config, storage=storage)
    model.save_pretrained(tmp_path)
    found = getattr(chronos, stock).from_pretrained(tmp_path).inner_model
    assert type(found) is type(model)
    assert {name: value.dtype for name, value in found.state_dict().items()} == {
        name: value.dtype for name, value in model.state_dict().items()
    }
    for name, value in model.state_dict().items():
        assert torch.equal(found.state_dict()[name], value), name
