"""Layers removed by their measured loss: what is written is what was measured, and the order is greedy."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from rankscope import open_checkpoint
from rankscope.compress import Budget, CompressOptions, compress, read_recipe
from rankscope.compress.calibration.passes import answer, questions
from rankscope.compress.calibration.sources import named_set
from rankscope.compress.depth import Layer, Layers, Losses, only_layers, remove
from rankscope.errors import OptionError

FEW = "mixture:8"


@pytest.fixture
def deep(tmp_path: Path, write_checkpoint: Any, tiny_config: Any) -> Callable[[str], Path]:
    """``deep("chronos-bolt")``: a folder with three layers in every stack."""

    def write(kind: str) -> Path:
        depths = {"num_layers": 3} if kind == "chronos-2" else {"num_layers": 3, "num_decoder_layers": 3}
        return write_checkpoint(tmp_path / "deep", tiny_config(kind, **depths))

    return write


def answers(folder: Path, kept: Sequence[Layer] | None = None) -> list[torch.Tensor]:
    source = open_checkpoint(folder)
    module = source.module()
    series = named_set(source, FEW, seed=5)
    with torch.no_grad():
        inputs = [one for one, _ in questions(source, module, series, 8)]
        if kept is None:
            return [answer(module, one) for one in inputs]
        with only_layers(module, kept):
            return [answer(module, one) for one in inputs]


def left(folder: Path) -> list[Layer]:
    """Layers that a report says are left."""
    sites = json.loads((folder / "compress.json").read_text())["sites"]
    return [(one["stack"], one["layer"]) for one in sites if one["layout"] != "removed"]


@pytest.mark.parametrize("kind", ["chronos-t5", "chronos-bolt", "chronos-2"])
@pytest.mark.parametrize("first", [None, "int8", pytest.param("joint", marks=pytest.mark.slow)])
def test_the_folder_is_the_model_without_the_layers(kind: str, first: str | None, deep: Any, tmp_path: Path) -> None:
    folder = deep(kind)
    if first is not None:
        joint = {"ratio": 0.7, "method": "joint", "calibration": FEW, "probe": "mixture:4"}
        compress(folder, CompressOptions(**({"storage": "int8"} if first == "int8" else joint)), out=tmp_path / "first")
        folder = tmp_path / "first"
    before = open_checkpoint(folder).parameters
    layers = 2 if kind == "chronos-2" else 4
    report = compress(
        folder, CompressOptions(budget=Budget("layers", layers), calibration=FEW, refine=False), out=tmp_path / "small"
    )
    small = open_checkpoint(tmp_path / "small")
    assert len(left(tmp_path / "small")) == layers
    assert small.parameters == report.parameters["after"] < report.parameters["before"] == before
    assert small.bytes == report.bytes["after"]
    for found, expected in zip(answers(tmp_path / "small"), answers(folder, left(tmp_path / "small")), strict=True):
        assert torch.allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["chronos-t5", "chronos-bolt"])
def test_position_biases_stay_when_the_first_layer_goes(kind: str, deep: Any, tmp_path: Path) -> None:
    folder = deep(kind)
    tensors = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():
        if name.startswith(("encoder.block.0.", "decoder.block.0.")) and name.endswith((".o.weight", ".wo.weight")):
            tensor.zero_()  # these layers add nothing, so they are the first to leave
        if "relative_attention_bias" in name:
            tensor.mul_(50)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    report = compress(
        folder, CompressOptions(budget=Budget("layers", 4), calibration=FEW, refine=False), out=tmp_path / "small"
    )
    assert {one.name for one in report.sites if one.layout == "removed"} == {"encoder.block.0", "decoder.block.0"}
    assert all(one.lost < 1e-9 for one in report.sites)
    for found, expected in zip(answers(tmp_path / "small"), answers(folder), strict=True):
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_dense_model_stays_a_stock_one(deep: Any, tmp_path: Path) -> None:
    folder = deep("chronos-bolt")
    compress(
        folder, CompressOptions(budget=Budget("layers", 1), sites="decoder", calibration=FEW), out=tmp_path / "small"
    )
    old, new = (json.loads((one / "config.json").read_text()) for one in (folder, tmp_path / "small"))
    assert new == {**old, "num_decoder_layers": 1}


def test_a_module_is_itself_again_afterwards(deep: Any) -> None:
    source = open_checkpoint(deep("chronos-t5"))
    module = source.module()
    names = [name for name, _ in module.named_parameters()]
    with only_layers(module, [("encoder", 1), ("encoder", 2), ("decoder", 2)]):
        assert len(module.encoder.block) == 2
    assert [name for name, _ in module.named_parameters()] == names
    assert not module.encoder.block[1].layer[0].SelfAttention.has_relative_attention_bias


def test_the_loss_is_a_plain_loop_s(deep: Any) -> None:
    for kind in ("chronos-bolt", "chronos-t5"):
        folder = deep(kind)
        source = open_checkpoint(folder)
        kept = [("encoder", 0), ("encoder", 2), ("decoder", 0), ("decoder", 1)]
        found = Losses(source, named_set(source, FEW, seed=5))(kept)
        (exact,), (small,) = answers(folder), answers(folder, kept)
        if kind == "chronos-bolt":
            spread = (exact[:, -1] - exact[:, 0]).abs().mean(dim=-1).maximum(1e-3 * exact.abs().mean(dim=(1, 2)))
            expected = float((((small - exact) / spread[:, None, None]) ** 2).mean())
        else:
            p, q = exact.softmax(-1), small.softmax(-1)
            expected = float((p * (p / q).log()).sum(-1).mean())
        assert found == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_the_order_is_that_of_measuring_every_candidate_each_time(seed: int) -> None:
    """Losses are sums over pairs that are never negative, so that what a layer adds never falls."""
    generator = torch.Generator().manual_seed(seed)
    layers: list[Layer] = [(stack, i) for stack in ("encoder", "decoder") for i in range(5)]
    weight = torch.rand(10, 10, generator=generator).square()
    cost = {layer: 1.0 + i % 3 for i, layer in enumerate(layers)}
    asked = 0

    def loss(kept: Sequence[Layer]) -> float:
        nonlocal asked
        asked += 1
        gone = [i for i, layer in enumerate(layers) if layer not in kept]
        return float(weight[gone][:, gone].sum())

    lazy = remove(layers, layers, loss, cost, lambda kept: len(kept) <= 3)
    measured, plain, kept = asked, [], list(layers)
    while len(kept) > 3:
        now = loss(kept)
        candidates = [one for one in kept if sum(other[0] == one[0] for other in kept) > 1]
        best = min(candidates, key=lambda one: (loss([x for x in kept if x != one]) - now) / cost[one])
        kept.remove(best)
        plain.append((best, loss(kept)))
    assert lazy == plain
    assert measured < asked - measured


@pytest.mark.parametrize("kind", ["chronos-t5", "chronos-bolt", "chronos-2"])
def test_the_refit_brings_the_stream_back_over_what_left(kind: str, deep: Any, tmp_path: Path) -> None:
    folder, layers = deep(kind), 2 if kind == "chronos-2" else 4
    errors = {}
    for refine in (True, False):
        how = CompressOptions(budget=Budget("layers", layers), calibration="mixture:64", refine=refine)
        report = compress(folder, how, out=tmp_path / str(refine))
        assert bool(report.refined) == refine
        pairs = zip(answers(tmp_path / str(refine)), answers(folder), strict=True)
        errors[refine] = sum(float((found - exact).square().sum()) for found, exact in pairs)
    assert errors[True] < errors[False]


def test_what_left_is_aimed_at_by_the_sublayer_before_it(deep: Any) -> None:
    layers = Layers(open_checkpoint(deep("chronos-bolt")), CompressOptions())
    kept = [("encoder", 0), ("encoder", 2), ("decoder", 1)]
    assert layers.targets(kept) == {
        "encoder.block.0.layer.0": "encoder.block.0.layer.0",
        "encoder.block.0.layer.1": "encoder.block.1.layer.1",
        "encoder.block.1.layer.0": "encoder.block.2.layer.0",
        "encoder.block.1.layer.1": "encoder.block.2.layer.1",
        "decoder.block.0.layer.0": "decoder.block.1.layer.0",
        "decoder.block.0.layer.1": "decoder.block.1.layer.1",
        "decoder.block.0.layer.2": "decoder.block.2.layer.2",
    }


def test_a_share_of_all_parameters(deep: Any, tmp_path: Path) -> None:
    folder = deep("chronos-bolt")
    report = compress(folder, CompressOptions(ratio=0.75, method="depth", calibration=FEW), out=tmp_path / "small")
    assert report.ratio <= 0.75
    last = min(one.parameters_before for one in report.sites if one.layout == "removed")
    assert report.parameters["after"] + last > 0.75 * report.parameters["before"]


def test_bytes_are_those_of_the_files(deep: Any, tmp_path: Path) -> None:
    folder = deep("chronos-bolt")
    layers = Layers(open_checkpoint(folder), CompressOptions(storage="int8"))
    kept = [("encoder", 1), ("decoder", 2)]
    how = CompressOptions(
        budget=Budget("bytes", layers.size(kept, "bytes")), method="depth", storage="int8", calibration=FEW
    )
    report = compress(folder, how, out=tmp_path / "small")
    assert report.bytes["after"] == layers.size(left(tmp_path / "small"), "bytes") <= how.budget.limit


def test_its_recipe_makes_it_again(deep: Any, tmp_path: Path) -> None:
    folder = deep("chronos-bolt")
    compress(folder, CompressOptions(budget=Budget("layers", 3), calibration=FEW, seed=3), out=tmp_path / "first")
    compress(folder, read_recipe(tmp_path / "first").options(open_checkpoint(folder)), out=tmp_path / "second")
    first, second = ((tmp_path / one / "model.safetensors").read_bytes() for one in ("first", "second"))
    assert first == second


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"budget": Budget("layers", 1)}, "one layer in the encoder and the decoder leaves 2; ask for at least that"),
        ({"ratio": 0.01, "method": "depth"}, "out of reach"),
        ({"ratio": 0.5, "method": "depth", "sites": "q"}, "encoder and decoder are all that it takes"),
        ({"attention_ratio": 0.5, "method": "depth"}, "method depth takes --layers, or a size"),
        ({"ratio": 0.5, "method": "depth", "allocation": "energy"}, "leave out allocation"),
        ({"budget": Budget("layers", 3), "probe": "mixture:4"}, "leave out probe"),
        ({"budget": Budget("layers", 3), "multiple": 8}, "leave out multiple"),
        ({"budget": Budget("layers", 9)}, "has 6 layers in the encoder and the decoder: there is nothing to remove"),
        ({"budget": Budget("layers", 3), "method": "svd"}, "layers are removed by method depth, not svd"),
        ({"budget": Budget("layers", 3), "method": "stream"}, "method stream takes a size of the whole model"),
    ],
)
def test_bad_input(options: dict[str, Any], said: str, deep: Any, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=said):
        compress(deep("chronos-bolt"), CompressOptions(**options, calibration=FEW), out=tmp_path / "small")
    assert not (tmp_path / "small").exists()


def test_chronos_2_has_no_decoder(deep: Any, tmp_path: Path) -> None:
    folder = deep("chronos-2")
    for sites, layers, said in (("decoder", 1, "has 0 layers in the decoder"), (None, 1, "")):
        how = CompressOptions(budget=Budget("layers", layers), sites=sites, calibration=FEW)
        if not said:
            compress(folder, how, out=tmp_path / "small")
            continue
        with pytest.raises(OptionError, match=said):
            compress(folder, how, out=tmp_path / "small")
    with pytest.raises(OptionError, match="one layer in the encoder leaves"):
        compress(folder, CompressOptions(ratio=0.001, method="depth", calibration=FEW), out=tmp_path / "x")


def test_a_sliced_stream_has_layers_that_fit_their_neighbours_only(deep: Any, tmp_path: Path) -> None:
    how = CompressOptions(ratio=0.9, method="stream", calibration=FEW, probe="mixture:4")
    compress(deep("chronos-bolt"), how, out=tmp_path / "sliced")
    with pytest.raises(OptionError, match="remove layers first"):
        compress(tmp_path / "sliced", CompressOptions(budget=Budget("layers", 4)), out=tmp_path / "small")


def test_an_encoder_of_tokens_stays_as_deep_as_its_decoder(deep: Any, tmp_path: Path) -> None:
    """With fewer layers transformers' ``generate`` makes too few caches for the decoder."""
    from chronos import BaseChronosPipeline

    folder = deep("chronos-t5")
    tensors = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():
        if name.startswith("encoder.block.") and name.endswith((".o.weight", ".wo.weight")):
            tensor.zero_()  # the encoder's layers cost nothing, so they would all leave first
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    compress(folder, CompressOptions(budget=Budget("layers", 4), calibration=FEW, refine=False), out=tmp_path / "small")
    kept = [stack for stack, _ in left(tmp_path / "small")]
    assert kept.count("encoder") >= kept.count("decoder")
    found = BaseChronosPipeline.from_pretrained(tmp_path / "small").predict(torch.arange(20.0), prediction_length=3)
    assert found.shape[-1] == 3
    with pytest.raises(
        OptionError, match=r"layers 2 is out of reach: the encoder has to stay as deep .* leaves 3; ask"
    ):
        compress(
            folder, CompressOptions(budget=Budget("layers", 2), sites="encoder", calibration=FEW), out=tmp_path / "no"
        )
    assert not (tmp_path / "no").exists()
