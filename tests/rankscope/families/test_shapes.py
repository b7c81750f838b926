"""Tensor names and shapes against the real modules, published sizes and published files."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import pytest
import torch

from rankscope.checkpoints import open_checkpoint
from rankscope.errors import CheckpointError, FamilyError
from rankscope.families import FAMILIES, family_of

KINDS = ["chronos-t5", "chronos-bolt", "chronos-2", "t5", "t5-gated"]
BASE = {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_heads": 12, "num_layers": 12, "num_decoder_layers": 12}


def stock_module(config: dict[str, Any]) -> torch.nn.Module:
    """Build the real module of a config without memory for its weights."""
    from transformers import T5Config, T5ForConditionalGeneration

    name = family_of(config).name
    with torch.device("meta"):
        if name == "chronos-bolt":
            from chronos.chronos_bolt import ChronosBoltModelForForecasting

            return ChronosBoltModelForForecasting(T5Config(**config))
        if name == "chronos-2":
            from chronos.chronos2.config import Chronos2CoreConfig
            from chronos.chronos2.model import Chronos2Model

            return Chronos2Model(Chronos2CoreConfig(**config))
        return T5ForConditionalGeneration(T5Config(**config))


@pytest.mark.parametrize("kind", KINDS)
def test_names_and_shapes_are_those_of_the_real_module(kind: str, tiny_config: Callable[..., Any]) -> None:
    config = tiny_config(kind)
    family = family_of(config)
    real = {name: tuple(tensor.shape) for name, tensor in stock_module(config).state_dict().items()}
    assert {**family.expected_shapes(config), **family.tied_shapes(config)} == real


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("changes", [{"num_heads": 3, "d_kv": 5}, {"num_decoder_layers": None}, {"num_layers": 1}])
def test_odd_configs_match_too(kind: str, changes: dict[str, Any], tiny_config: Callable[..., Any]) -> None:
    if kind == "chronos-2" and "d_kv" in changes:
        changes = {**changes, "d_kv": 6}  # rotary halves
    config = tiny_config(kind, **changes)
    family = family_of(config)
    real = {name: tuple(tensor.shape) for name, tensor in stock_module(config).state_dict().items()}
    assert {**family.expected_shapes(config), **family.tied_shapes(config)} == real


def test_no_register_token_means_one_special_token(tiny_config: Callable[..., Any]) -> None:
    config = tiny_config("chronos-bolt")
    config["chronos_config"]["use_reg_token"] = False
    shared = stock_module(config).state_dict()["shared.weight"]
    assert family_of(config).expected_shapes(config)["shared.weight"] == tuple(shared.shape) == (1, 16)


def test_encoder_only_t5(tiny_config: Callable[..., Any]) -> None:
    from transformers import T5Config, T5EncoderModel

    config = tiny_config("t5", architectures=["T5EncoderModel"], is_encoder_decoder=False)
    family = family_of(config)
    with torch.device("meta"):
        real = T5EncoderModel(T5Config(**config)).state_dict()
    assert {**family.expected_shapes(config), **family.tied_shapes(config)} == {
        name: tuple(tensor.shape) for name, tensor in real.items()
    }
    assert {site.stack for site in family.sites(config)} == {"encoder"}


@pytest.mark.parametrize(
    ("kind", "changes", "parameters"),
    [
        ("t5", {**BASE, "vocab_size": 32128}, 222_903_552),  # google-t5/t5-base
        ("t5-gated", {**BASE, "d_ff": 2048, "vocab_size": 32128}, 247_577_856),  # google/t5-v1_1-base
        ("chronos-t5", {**BASE, "vocab_size": 4096}, 201_374_976),  # amazon/chronos-t5-base, "201M"
    ],
)
def test_published_sizes(kind: str, changes: dict[str, int], parameters: int, tiny_config: Callable[..., Any]) -> None:
    config = tiny_config(kind, relative_attention_num_buckets=32, **changes)
    family = family_of(config)
    assert sum(map(prod, family.expected_shapes(config).values())) == parameters
    attention = [site for site in family.sites(config) if site.kind == "attention"]
    assert len(attention) == 144


@pytest.mark.parametrize("folder", ["dummy-chronos-model", "dummy-chronos-bolt-model", "dummy-chronos2-model"])
def test_published_files(folder: str, shared_folder: Any) -> None:
    checkpoint = open_checkpoint(shared_folder / "models" / folder)
    expected = checkpoint.family.expected_shapes(checkpoint.config)
    allowed = {**checkpoint.family.tied_shapes(checkpoint.config), **expected}
    assert {name: info.shape for name, info in checkpoint.index.items()}.items() <= allowed.items()
    assert expected.keys() <= checkpoint.index.keys()
    for site in checkpoint.sites("all"):
        assert tuple(checkpoint.matrix(site).shape) == checkpoint.shape(site) == expected[site.name]


@pytest.mark.parametrize("kind", KINDS)
def test_sites_are_all_matrices_of_the_layers(kind: str, tiny_config: Callable[..., Any]) -> None:
    config = tiny_config(kind)
    family = family_of(config)
    shapes = family.expected_shapes(config)
    sites = family.sites(config)
    in_layers = {name for name, shape in shapes.items() if ".block." in name and len(shape) == 2 and "bias" not in name}
    assert {site.name for site in sites if site.layer is not None} == in_layers
    assert len({site.name for site in sites}) == len(sites)
    for site in sites:
        assert f".{site.layer}." in site.name or site.layer is None
        assert site.name.startswith(site.stack) or site.kind in ("embedding", "head")
        if site.kind == "attention":
            assert site.name.endswith(f".{site.role[-1]}.weight")
            assert shapes[site.name][site.head_axis] == site.heads * site.head_width
        else:
            assert site.heads is site.head_width is site.head_axis is None


def test_roles_follow_the_modules(tiny_config: Callable[..., Any]) -> None:
    roles = {site.name: site.role for kind in KINDS for site in sites_of(tiny_config(kind))}
    assert roles["decoder.block.1.layer.1.EncDecAttention.o.weight"] == "cross.o"
    assert roles["decoder.block.1.layer.0.SelfAttention.q.weight"] == "self.q"
    assert roles["encoder.block.1.layer.1.self_attention.v.weight"] == "group.v"
    assert roles["encoder.block.1.layer.0.self_attention.v.weight"] == "self.v"
    assert roles["encoder.block.0.layer.1.DenseReluDense.wi_0.weight"] == "mlp_gate"
    assert roles["encoder.block.0.layer.1.DenseReluDense.wi_1.weight"] == "mlp_in"
    assert roles["encoder.block.0.layer.2.mlp.wo.weight"] == "mlp_out"
    assert roles["input_patch_embedding.residual_layer.weight"] == "patch_residual"
    assert roles["shared.weight"] == "embedding"


def sites_of(config: dict[str, Any]) -> Any:
    return family_of(config).sites(config)


def test_patch_sizes(tiny_config: Callable[..., Any]) -> None:
    sizes = {kind: family_of(tiny_config(kind)).patch_size(tiny_config(kind)) for kind in KINDS}
    assert sizes == {"chronos-t5": 1, "chronos-bolt": 4, "chronos-2": 4, "t5": 1, "t5-gated": 1}


def test_one_family_matches_each_config(tiny_config: Callable[..., Any]) -> None:
    for kind in KINDS:
        found = [family.name for family in FAMILIES.values() if family.matches(tiny_config(kind))]
        assert found == [kind.removesuffix("-gated")]


@pytest.mark.parametrize("config", [{}, {"model_type": "llama"}, {"model_type": 3}, {"architectures": "T5"}])
def test_unknown_family_lists_the_known(config: dict[str, Any]) -> None:
    with pytest.raises(FamilyError) as caught:
        family_of(config)
    assert all(name in str(caught.value) for name in FAMILIES)
    assert "\n" not in str(caught.value)


def test_compressed_configs_name_their_family(tiny_config: Callable[..., Any]) -> None:
    for model_type, name in [
        ("rankscope-t5", "t5"),
        ("rankscope-bolt", "chronos-bolt"),
        ("rankscope-t5", "chronos-t5"),
    ]:
        config = tiny_config(name, model_type=model_type, rankscope={"family": name})
        assert family_of(config) is FAMILIES[name]
    with pytest.raises(CheckpointError, match=r"family 'chronos-bold' is not known.*chronos-bolt"):
        family_of({"model_type": "rankscope-bolt", "rankscope": {"family": "chronos-bold"}})
    with pytest.raises(CheckpointError, match="family None"):
        family_of({"model_type": "rankscope-t5"})
    with pytest.raises(FamilyError, match=r"rankscope-t6.*Update rankscope"):
        family_of({"model_type": "rankscope-t6"})


@pytest.mark.parametrize("value", [None, 0, -1, 2.5, "16", True, 10**30])
@pytest.mark.parametrize("key", ["d_model", "num_layers", "num_heads"])
def test_absurd_sizes_are_refused(key: str, value: object, tiny_config: Callable[..., Any]) -> None:
    config = tiny_config("t5", **{key: value})
    with pytest.raises(CheckpointError, match=rf"config\.json: {key} must be a whole number.*found"):
        family_of(config).expected_shapes(config)


def test_a_million_layers_are_refused_at_once(tiny_config: Callable[..., Any]) -> None:
    config = tiny_config("t5", num_layers=1_000_000)
    with pytest.raises(CheckpointError, match="num_layers must be a whole number from 1 to 10000"):
        family_of(config).sites(config)


@pytest.mark.parametrize("inner", [None, [], "x", {"quantiles": []}, {"quantiles": None}])
def test_broken_chronos_config(inner: Any, tiny_config: Callable[..., Any]) -> None:
    config = tiny_config("chronos-bolt", chronos_config=inner)
    with pytest.raises(CheckpointError, match="chronos_config"):
        family_of(config).expected_shapes(config)


@pytest.mark.parametrize("family", ["chronos-bolt", "chronos-2"])
@pytest.mark.parametrize(
    ("key", "value"), [("context_length", None), ("context_length", "512 steps"), ("input_patch_stride", "x")]
)
def test_a_context_or_stride_that_is_no_number_is_refused(
    family: str, key: str, value: object, tiny_config: Callable[..., Any]
) -> None:
    inner = {**tiny_config(family)["chronos_config"], key: value}
    config = tiny_config(family, chronos_config=inner)
    with pytest.raises(CheckpointError, match=rf"{key} must be a whole number from 1.*found {value!r}"):
        family_of(config).expected_shapes(config)


def test_no_gradient_reaches_what_a_family_calls_untrained(bolt_folder: Path) -> None:
    checkpoint = open_checkpoint(bolt_folder)
    module = checkpoint.module(torch.float32)
    rng = torch.Generator().manual_seed(0)
    history, future = torch.rand(3, 32, generator=rng), torch.rand(3, 8, generator=rng)
    module(context=history, target=future).loss.backward()
    idle = {
        (site.stack, site.role)
        for site in checkpoint.sites(["attention"])
        if not bool(dict(module.named_parameters())[site.name].grad.any())
    }
    assert idle == set(checkpoint.family.untrained) != set()
