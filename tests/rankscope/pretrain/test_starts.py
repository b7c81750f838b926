"""Starts of a network: the scales they promise, for stock and by-design networks."""

import dataclasses

import pytest
import torch

from rankscope.design import RankDesign
from rankscope.pretrain import ModelShape, PretrainConfig
from rankscope.pretrain.models import new_model
from rankscope.pretrain.starts import FEED_FORWARD_SCALE, FLATTEST, STEEPEST, nearest_offsets

SHAPE = ModelShape(d_model=64, d_kv=16, d_ff=128, num_layers=2, num_decoder_layers=2, num_heads=4, n_tokens=500)


def build(start: str, family: str = "chronos-bolt", **changes):
    torch.manual_seed(0)
    shape = dataclasses.replace(SHAPE, start=start)
    return new_model(PretrainConfig(family=family, model=shape, context=64, horizon=16, **changes))


@pytest.mark.parametrize("bidirectional", [True, False])
def test_nearest_offsets_are_those_of_a_plain_loop(bidirectional):
    from transformers.models.t5.modeling_t5 import T5Attention

    config = build("published").config
    found = nearest_offsets(config, bidirectional=bidirectional)
    expected = [float("inf")] * config.relative_attention_num_buckets
    for offset in range(-600, 601):
        bucket = int(
            T5Attention._relative_position_bucket(
                torch.tensor([offset]),
                bidirectional=bidirectional,
                num_buckets=config.relative_attention_num_buckets,
                max_distance=config.relative_attention_max_distance,
            )
        )
        expected[bucket] = min(expected[bucket], abs(offset))
    assert found.tolist() == [0.0 if value == float("inf") else value for value in expected]


def test_heads_look_back_further_and_further():
    bias = build("recency").encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight.detach()
    nearest = nearest_offsets(build("published").config, bidirectional=True)
    # Least squares of each head's bias on distance: its slope, up to the noise of 32 buckets.
    slopes = -(bias * nearest[:, None]).sum(0) / nearest.square().sum()
    expected = torch.logspace(torch.log10(torch.tensor(FLATTEST)), torch.log10(torch.tensor(STEEPEST)), 4)
    assert torch.allclose(slopes, expected, atol=4 * 0.5 / float(nearest.square().sum()) ** 0.5)


@pytest.mark.parametrize("family", ["chronos-t5", "chronos-bolt"])
@pytest.mark.parametrize(
    "low_rank",
    [None, RankDesign(r0=5.0, alpha=0.3), RankDesign(r0=5.0, alpha=0.3, layout="factored")],
    ids=["stock", "head-width", "factored"],
)
def test_values_and_outputs_have_the_scale_of_factor_one_and_scores_stay_small(family, low_rank):
    model = build("recency", family, low_rank=low_rank)
    attention = model.encoder.block[1].layer[0].SelfAttention
    norms = {role: _dense(getattr(attention, role)).square().mean().sqrt() for role in "qkvo"}
    published = build("published", family, low_rank=low_rank).encoder.block[1].layer[0].SelfAttention
    before = {role: _dense(getattr(published, role)).square().mean().sqrt() for role in "qkvo"}
    for role in "qk":
        assert float(norms[role]) == pytest.approx(float(before[role]), rel=0.15)
    for role in "vo":
        assert float(norms[role]) == pytest.approx(float(before[role]) / 0.05, rel=0.15)
    feed = model.encoder.block[1].layer[1].DenseReluDense.wi.weight.detach().square().mean().sqrt()
    assert float(feed) == pytest.approx(FEED_FORWARD_SCALE * 64**-0.5, rel=0.1)


def test_the_vocabulary_has_unit_variance_and_patch_blocks_that_of_their_fan_in():
    t5 = build("broad", "chronos-t5")
    assert float(t5.shared.weight.detach().std()) == pytest.approx(1.0, rel=0.05)
    bolt = build("broad")
    assert float(bolt.input_patch_embedding.hidden_layer.weight.detach().std()) == pytest.approx(32**-0.5, rel=0.1)
    assert float(bolt.output_patch_embedding.output_layer.weight.detach().std()) == pytest.approx(
        0.1 * 128**-0.5, rel=0.1
    )


def _dense(module):
    weight = module.dense() if hasattr(module, "dense") else module.weight
    return weight.detach()
