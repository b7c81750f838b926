"""What a pass shows a model: the tokens that chronos' own tokenizer makes, one place later in the decoder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import chronos
import pytest
import torch

from rankscope import open_checkpoint
from rankscope.checkpoints import Checkpoint
from rankscope.compress.calibration.passes import pass_inputs

HORIZON = 5


@pytest.fixture
def make(tmp_path: Path, write_checkpoint: Any, tiny_config: Any) -> Callable[[str], Checkpoint]:
    def build(kind: str) -> Checkpoint:
        return open_checkpoint(write_checkpoint(tmp_path / kind, tiny_config(kind, num_decoder_layers=2)))

    return build


def walks() -> tuple[torch.Tensor, torch.Tensor]:
    walk = torch.randn(3, 20 + HORIZON, generator=torch.Generator().manual_seed(0)).cumsum(dim=1)
    walk[0, :4] = torch.nan
    return walk[:, :20], walk[:, 20:]


def test_the_decoder_of_chronos_t5_reads_what_followed(make: Callable[[str], Checkpoint]) -> None:
    checkpoint, (context, future) = make("chronos-t5"), walks()
    module = checkpoint.module()
    inputs = pass_inputs(module, checkpoint.family, context, future)
    bins = chronos.ChronosConfig(**checkpoint.config["chronos_config"]).create_tokenizer()
    tokens, mask, scale = bins.context_input_transform(context)
    assert torch.equal(inputs["input_ids"], tokens)
    assert torch.equal(inputs["attention_mask"], mask)
    bins.config.prediction_length = HORIZON
    labels, _ = bins.label_input_transform(future, scale)
    labels = labels[:, :HORIZON]  # without the end token
    assert inputs["decoder_input_ids"][:, 0].tolist() == [0, 0, 0]
    assert torch.equal(inputs["decoder_input_ids"][:, 1:], labels[:, :-1])
    assert "decoder_attention_mask" not in inputs
    assert module(**pass_inputs(module, checkpoint.family, context, future)).logits.shape == (3, HORIZON, 64)


def test_missing_values_of_the_horizon_are_masked(make: Callable[[str], Checkpoint]) -> None:
    checkpoint, (context, future) = make("chronos-t5"), walks()
    future[1, 2] = torch.nan
    future[2, -1] = torch.nan  # the last value is read by nobody
    inputs = pass_inputs(checkpoint.module(), checkpoint.family, context, future)
    mask = torch.ones(3, HORIZON, dtype=torch.long)
    mask[1, 3] = 0
    assert torch.equal(inputs["decoder_attention_mask"], mask)


def test_sampled_paths_begin_with_the_start_and_hold_the_horizon(make: Callable[[str], Checkpoint]) -> None:
    checkpoint, (context, future) = make("chronos-t5"), walks()
    module = checkpoint.module()
    torch.manual_seed(0)
    drawn = pass_inputs(module, checkpoint.family, context, future, "sampled")["decoder_input_ids"]
    teacher = pass_inputs(module, checkpoint.family, context, future)["decoder_input_ids"]
    assert drawn.shape == teacher.shape == (3, HORIZON)
    assert drawn[:, 0].tolist() == [0, 0, 0]
    assert not torch.equal(drawn, teacher)
    assert bool((drawn[:, 1:] > 1).all())  # bins, neither padding nor end


def test_texts_are_shifted(make: Callable[[str], Checkpoint]) -> None:
    checkpoint = make("t5")
    tokens = torch.randint(2, 60, (2, 12), generator=torch.Generator().manual_seed(0)).float()
    inputs = pass_inputs(checkpoint.module(), checkpoint.family, tokens[:, :8], tokens[:, 8:])
    assert torch.equal(inputs["input_ids"], tokens[:, :8].long())
    assert torch.equal(inputs["decoder_input_ids"], torch.cat([torch.zeros(2, 1), tokens[:, 8:-1]], dim=1).long())


@pytest.mark.parametrize(("horizon", "patches"), [(1, 1), (4, 1), (5, 2), (400, 4)])
def test_chronos_2_has_a_place_for_every_patch_of_the_horizon(
    make: Callable[[str], Checkpoint], horizon: int, patches: int
) -> None:
    checkpoint, (context, _) = make("chronos-2"), walks()
    module = checkpoint.module()
    future = torch.zeros(3, horizon)
    assert pass_inputs(module, checkpoint.family, context, future)["num_output_patches"] == patches
    assert module(**pass_inputs(module, checkpoint.family, context, future)).quantile_preds.shape == (3, 9, 4 * patches)
