"""Embedding matrices, inputs and layers against slow loops and what the real modules do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.errors import CheckpointError, DataError
from rankscope.families.chronos_t5 import tokenizer

FORECASTERS = ["chronos-t5", "chronos-bolt", "chronos-2"]
KINDS = [*FORECASTERS, "t5", "t5-gated"]


@pytest.fixture
def opened(tmp_path: Path, write_checkpoint: Callable[..., Path], tiny_config: Callable[..., Any]) -> Any:
    def make(kind: str) -> tuple[Checkpoint, nn.Module]:
        checkpoint = open_checkpoint(write_checkpoint(tmp_path / kind, tiny_config(kind)))
        return checkpoint, checkpoint.module()

    return make


def walk(seed: int = 0, series: int = 3, time: int = 22) -> Tensor:
    """Random walks, the first with a left pad and a hole."""
    values = torch.randn(series, time, generator=torch.Generator().manual_seed(seed)).cumsum(dim=1)
    values[0, :9] = float("nan")
    values[1, 15] = float("nan")
    return values


def first_inputs(module: nn.Module, block: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    """What a block receives while the module runs on ``inputs``."""
    seen: list[Tensor] = []
    handle = block.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    with torch.no_grad():
        module(**inputs)
    handle.remove()
    return seen[0]


def corpus(kind: str) -> Tensor:
    if kind in FORECASTERS:
        return walk()
    tokens = torch.randint(1, 64, (3, 9), generator=torch.Generator().manual_seed(1))
    tokens[2, 6:] = 0
    return tokens


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_inputs_of_the_first_layer(kind: str, opened: Any) -> None:
    """The encoder's first input holds the embedded tokens, and besides only padding and special tokens."""
    checkpoint, module = opened(kind)
    family, values = checkpoint.family, corpus(kind)
    rows = family.embed(module, values)
    seen = first_inputs(module, family.blocks(module)["encoder"][0], family.model_inputs(module, values))
    size = family.patch_size(checkpoint.config)
    observed = values != 0 if kind.startswith("t5") else ~values.isnan()
    if observed.shape[1] % size:
        left = torch.zeros(len(values), size - observed.shape[1] % size, dtype=torch.bool)
        observed = torch.cat([left, observed], dim=1)
    kept = observed.unfold(1, size, size).any(dim=2)
    torch.testing.assert_close(rows, seen[:, : kept.shape[1]][kept])
    assert len(rows) == kept.sum()


def test_chronos_t5_rows_by_a_slow_loop(opened: Any) -> None:
    checkpoint, module = opened("chronos-t5")
    inner, values = checkpoint.config["chronos_config"], walk()
    bins = inner["n_tokens"] - inner["n_special_tokens"] - 1
    centres = [-15 + 30 * step / (bins - 1) for step in range(bins)]
    table = checkpoint.tensor("shared.weight")
    rows = []
    for series in values.tolist():
        numbers = [value for value in series if value == value]
        scale = sum(map(abs, numbers)) / len(numbers)
        for value in numbers:
            nearest = min(range(bins), key=lambda step: abs(centres[step] - value / scale))
            rows.append(table[nearest + inner["n_special_tokens"] + 1])
    torch.testing.assert_close(checkpoint.family.embed(module, values), torch.stack(rows))


@pytest.mark.parametrize("kind", FORECASTERS)
def test_only_the_last_context_is_read(kind: str, opened: Any) -> None:
    checkpoint, module = opened(kind)
    length = checkpoint.config["chronos_config"]["context_length"]
    values = walk(time=length + 13)[1:]
    values = values.nan_to_num(nan=0.5)
    torch.testing.assert_close(
        checkpoint.family.embed(module, values), checkpoint.family.embed(module, values[:, -length:])
    )
    assert len(checkpoint.family.embed(module, values)) == 2 * length // checkpoint.family.patch_size(checkpoint.config)


@pytest.mark.parametrize(("kind", "shift"), [("chronos-t5", 0.0), ("chronos-bolt", 3.0), ("chronos-2", 3.0)])
def test_scaling_leaves_embeddings(kind: str, shift: float, opened: Any) -> None:
    checkpoint, module = opened(kind)
    values = walk(seed=5)
    torch.testing.assert_close(
        checkpoint.family.embed(module, 8 * values + shift),
        checkpoint.family.embed(module, values),
        rtol=1e-3,
        atol=1e-4,
    )


@pytest.mark.parametrize("kind", FORECASTERS)
def test_constant_series_are_finite(kind: str, opened: Any) -> None:
    checkpoint, module = opened(kind)
    for level in (0.0, 7.0):
        assert checkpoint.family.embed(module, torch.full((2, 12), level)).isfinite().all()


@pytest.mark.parametrize("kind", FORECASTERS)
def test_series_without_a_value_are_refused(kind: str, opened: Any) -> None:
    checkpoint, module = opened(kind)
    for values, message in [
        (torch.full((2, 8), float("nan")), "no observation"),
        (torch.zeros(8), r"two non-empty axes.*\(8,\)"),
        (torch.zeros(2, 0), "two non-empty axes"),
    ]:
        for function in (checkpoint.family.embed, checkpoint.family.model_inputs):
            with pytest.raises(DataError, match=message):
                function(module, values)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (torch.tensor([[1.5]]), "whole token ids"),
        (torch.tensor([1, 2]), "whole token ids"),
        (torch.tensor([[64]]), "token ids must lie in 0…63, found 64…64"),
        (torch.tensor([[-1, 3]]), "token ids must lie in"),
    ],
)
def test_text_models_read_token_ids(tokens: Tensor, message: str, opened: Any) -> None:
    checkpoint, module = opened("t5")
    with pytest.raises(DataError, match=message):
        checkpoint.family.embed(module, tokens)


@pytest.mark.parametrize("kind", KINDS)
def test_every_layer_runs_once(kind: str, opened: Any) -> None:
    checkpoint, module = opened(kind)
    family = checkpoint.family
    assert not module.training
    blocks = family.blocks(module)
    depth = {"encoder": 2} if kind == "chronos-2" else {"encoder": 2, "decoder": 3}
    assert {stack: len(layers) for stack, layers in blocks.items()} == depth
    runs = {id(layer): 0 for layers in blocks.values() for layer in layers}

    def count(layer: nn.Module, args: Any) -> None:
        assert args[0].shape[-1] == 16
        runs[id(layer)] += 1

    handles = [layer.register_forward_pre_hook(count) for layers in blocks.values() for layer in layers]
    with torch.no_grad():
        module(**family.model_inputs(module, corpus(kind)))
    for handle in handles:
        handle.remove()
    assert set(runs.values()) == {1}


def test_the_decoder_reads_the_shifted_context(opened: Any) -> None:
    checkpoint, module = opened("chronos-t5")
    inputs = checkpoint.family.model_inputs(module, walk())
    assert torch.equal(inputs["decoder_input_ids"], module._shift_right(inputs["input_ids"]))


@torch.no_grad()
@pytest.mark.parametrize("kind", ["chronos-t5", "t5"])
def test_a_pass_keeps_no_keys_and_values(kind: str, opened: Any) -> None:
    checkpoint, module = opened(kind)
    assert module.config.use_cache
    inputs = checkpoint.family.model_inputs(module, corpus(kind))
    assert module(**inputs).past_key_values is None
    assert module(**{**inputs, "use_cache": True}).past_key_values is not None


@pytest.mark.parametrize("kind", ["chronos-t5", "t5", "t5-gated"])
def test_vocabulary_is_the_table(kind: str, opened: Any) -> None:
    checkpoint, module = opened(kind)
    assert checkpoint.family.vocabulary is not None
    torch.testing.assert_close(checkpoint.family.vocabulary(module), checkpoint.tensor("shared.weight"))


@pytest.mark.parametrize("kind", KINDS)
def test_build_loads_every_stored_tensor(kind: str, opened: Any) -> None:
    checkpoint, module = opened(kind)
    state = module.state_dict()
    for name in checkpoint.index:
        torch.testing.assert_close(state[name], checkpoint.tensor(name), msg=name)


def test_the_untied_head_stays_untied(opened: Any) -> None:
    _, module = opened("t5-gated")
    assert not torch.equal(module.lm_head.weight, module.shared.weight)


@pytest.mark.parametrize("kind", ["chronos-t5", "chronos-2"])
def test_heads_split_along_the_stated_axis(kind: str, opened: Any) -> None:
    """Silencing a head in v's rows and in o's columns does the same to the output."""
    checkpoint, module = opened(kind)
    inputs = checkpoint.family.model_inputs(module, walk())
    sites = {site.role: site for site in checkpoint.sites("self,encoder") if site.layer == 0}

    def silenced(role: str) -> Tensor:
        site = sites[role]
        weight = module.get_parameter(site.name)
        kept = weight.detach().clone()
        with torch.no_grad():
            weight.unflatten(site.head_axis, (site.heads, site.head_width)).select(site.head_axis, 1).zero_()
            output = module(**inputs)
            weight.copy_(kept)
        return output.quantile_preds if kind == "chronos-2" else output.logits

    torch.testing.assert_close(silenced("self.v"), silenced("self.o"), rtol=1e-4, atol=1e-5)


def test_other_tokenizers_are_refused(tiny_config: Callable[..., Any]) -> None:
    config = tiny_config("chronos-t5")
    config["chronos_config"]["tokenizer_class"] = "BaseChronosPipeline"
    with pytest.raises(
        CheckpointError, match=r"tokenizer_class 'BaseChronosPipeline' is not known.*MeanScaleUniformBins"
    ):
        tokenizer(config)
    config = tiny_config("chronos-t5")
    del config["chronos_config"]["n_tokens"]
    with pytest.raises(CheckpointError, match=r"does not describe a tokenizer.*n_tokens"):
        tokenizer(config)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_build_in_other_number_formats(dtype: torch.dtype, bolt_folder: Path) -> None:
    checkpoint = open_checkpoint(bolt_folder)
    rows = checkpoint.family.embed(checkpoint.module(dtype), walk())
    assert rows.dtype == dtype
    torch.testing.assert_close(rows.float(), checkpoint.family.embed(checkpoint.module(), walk()), rtol=0.1, atol=0.1)
