"""Weights that training begins with: drawn, or a checkpoint's."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from safetensors.torch import load_file

from rankscope.compress import CompressOptions, compress
from rankscope.errors import OptionError
from rankscope.train import ModelShape, PretrainConfig, continue_from, pretrain
from rankscope.train.data.mixture import Mixture
from rankscope.train.models import new_model
from rankscope.train.rank_schedule import RankDesign
from rankscope.train.starts import (
    FEED_FORWARD_SCALE,
    OWN_TOKEN,
    SCORE_SCALE,
    SLOPES,
    VALUE_FREQUENCIES,
    VALUE_NOISE,
    nearest_offsets,
)

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


@pytest.mark.parametrize(("family", "token"), [("chronos-t5", "observation"), ("chronos-bolt", "patch")])
def test_heads_look_back_further_and_further(family, token):
    bias = build("recency", family).encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight.detach()
    assert (bias[0] == OWN_TOKEN).all()
    nearest = nearest_offsets(build("published", family).config, bidirectional=True)
    # Least squares of each head's bias on distance: its slope, up to the noise of the buckets.
    slopes = -(bias * nearest[:, None]).sum(0) / nearest.square().sum()
    steepest, flattest = SLOPES[token]
    expected = torch.logspace(math.log10(flattest), math.log10(steepest), 4)
    assert torch.allclose(slopes, expected, atol=4 * 0.5 / float(nearest.square().sum()) ** 0.5)


def phase_in_decoder(model) -> float:
    """Share of the energy of the decoder's last state that the phase of a sine explains, over random phases."""
    generator = torch.Generator().manual_seed(0)
    phase = 2 * math.pi * torch.rand(256, 1, generator=generator)
    series = torch.cos(2 * math.pi * torch.arange(64.0)[None] / 12 + phase) + 5
    states = []
    hook = model.decoder.final_layer_norm.register_forward_hook(lambda module, args, out: states.append(out))
    with hook, torch.no_grad():
        model.eval()(context=series)
    state = states[0].reshape(256, -1).double()
    signal = torch.cat([phase.cos(), phase.sin()], 1).double()
    fitted = signal @ torch.linalg.lstsq(signal, state - state.mean(0)).solution
    return float(fitted.square().sum() / state.square().sum())


def test_the_phase_of_a_season_reaches_the_decoder_from_the_start():
    recency, published = phase_in_decoder(build("recency")), phase_in_decoder(build("published"))
    assert recency > 0.003
    assert recency > 100 * published


@pytest.mark.parametrize("family", ["chronos-t5", "chronos-bolt", "chronos-2"])
def test_every_matrix_has_the_rank_of_the_published_start(family):
    """Slopes of position biases and gains have no rank to speak of; matrices do, and it says nothing but their size."""
    published, recency = build("published", family), build("recency", family)
    for (name, before), (_, after) in zip(published.named_parameters(), recency.named_parameters(), strict=True):
        if before.ndim == 2 and min(before.shape) > 4:
            assert abs(epsilon_rank(after, 0.1) - epsilon_rank(before, 0.1)) <= 0.1 * min(before.shape), name


def test_bins_start_as_strangers():
    table = torch.nn.functional.normalize(build("recency", "chronos-t5").shared.weight.detach()[2:], dim=1)
    assert abs(float((table[:-1] * table[1:]).sum(1).mean())) < 0.05


@pytest.mark.parametrize("family", ["chronos-t5", "chronos-bolt"])
@pytest.mark.parametrize(
    "low_rank",
    [None, RankDesign(r0=5.0, alpha=0.3), RankDesign(r0=5.0, alpha=0.3, layout="factored")],
    ids=["stock", "head-width", "factored"],
)
def test_every_matrix_has_the_scale_that_its_start_promises(family, low_rank):
    model = build("recency", family, low_rank=low_rank)
    attention = model.encoder.block[1].layer[0].SelfAttention
    norms = {role: _dense(getattr(attention, role)).square().mean().sqrt() for role in "qkvo"}
    published = build("published", family, low_rank=low_rank).encoder.block[1].layer[0].SelfAttention
    before = {role: _dense(getattr(published, role)).square().mean().sqrt() for role in "qkvo"}
    assert (model.encoder.block[1].layer[0].layer_norm.weight == 1).all()
    for role in "qk":
        assert float(norms[role]) == pytest.approx(SCORE_SCALE / 0.05 * float(before[role]), rel=0.15)
    for role in "vo":
        assert float(norms[role]) == pytest.approx(float(before[role]) / 0.05, rel=0.15)
    feed = model.encoder.block[1].layer[1].DenseReluDense.wi.weight.detach().square().mean().sqrt()
    assert float(feed) == pytest.approx(FEED_FORWARD_SCALE * 64**-0.5, rel=0.1)


@pytest.mark.parametrize("low_rank", [None, RankDesign(r0=5.0, alpha=0.3, layout="factored")])
@pytest.mark.parametrize(("start", "factor"), [("published", 0.05), ("recency", 1.0)])
def test_chronos_2_starts_by_the_law_of_t5(start, factor, low_rank):
    """Variances of Mesh TensorFlow's T5, which Chronos-2 was published with, under any release of transformers."""
    model = build(start, "chronos-2", low_rank=low_rank)
    block = model.encoder.block[1].layer
    for attention in (block[0].self_attention, block[1].self_attention):
        for role, std in (("q", (64 * 16) ** -0.5), ("k", 64**-0.5), ("v", 64**-0.5), ("o", 64**-0.5)):
            found = _dense(getattr(attention, role)).square().mean().sqrt()
            assert float(found) == pytest.approx(factor * std, rel=0.15), role
    feed = factor if start == "published" else FEED_FORWARD_SCALE
    assert float(block[2].mlp.wi.weight.detach().std()) == pytest.approx(feed * 64**-0.5, rel=0.1)
    assert float(block[2].mlp.wo.weight.detach().std()) == pytest.approx(feed * 128**-0.5, rel=0.1)
    assert (block[0].layer_norm.weight == factor).all()


def test_the_vocabulary_has_unit_variance_and_patch_blocks_that_of_their_fan_in():
    t5 = build("broad", "chronos-t5")
    assert float(t5.shared.weight.detach().std()) == pytest.approx(1.0, rel=0.05)
    bolt = build("broad")
    assert float(bolt.input_patch_embedding.hidden_layer.weight.detach().std()) == pytest.approx(32**-0.5, rel=0.1)
    assert float(bolt.output_patch_embedding.output_layer.weight.detach().std()) == pytest.approx(
        0.1 * 128**-0.5, rel=0.1
    )


def test_the_vocabulary_knows_the_order_of_its_bins():
    """Bins are as alike as random Fourier features of their centres: the mean of cos(frequency times distance)."""
    torch.manual_seed(0)
    wide = dataclasses.replace(SHAPE, d_model=1024, num_layers=1, num_decoder_layers=1, start="ordered")
    table = new_model(PretrainConfig(model=wide, context=64, horizon=16)).shared.weight.detach()
    bins = torch.nn.functional.normalize(table[2:], dim=1)
    assert float(table.std()) == pytest.approx(1.0, rel=0.05)
    lowest, highest = (math.log(frequency) for frequency in VALUE_FREQUENCIES)
    frequencies = torch.linspace(lowest, highest, 1000).exp()
    for gap in (1, 5, 250):
        alike = float((bins[:-gap] * bins[gap:]).sum(1).mean())
        waves = float((frequencies * gap * 30 / (len(bins) - 1)).cos().mean())  # limits are -15 and 15
        assert alike == pytest.approx(waves / (1 + VALUE_NOISE**2), abs=0.1)
    strangers = torch.nn.functional.normalize(build("broad", "chronos-t5").shared.weight.detach()[2:], dim=1)
    assert abs(float((strangers[:-1] * strangers[1:]).sum(1).mean())) < 0.05


def epsilon_rank(weight, eps):
    values = torch.linalg.svdvals(weight.detach())
    return int((values > eps * values[0]).sum())


def _dense(module):
    weight = module.dense() if hasattr(module, "dense") else module.weight
    return weight.detach()


@pytest.mark.parametrize("family", ["chronos-t5", "chronos-bolt", "chronos-2"])
def test_a_network_can_be_counted_without_being_drawn(family):
    with torch.device("meta"):
        assert all(weight.is_meta for weight in build("recency", family).parameters())


TINY = ModelShape(
    d_model=16, d_kv=4, d_ff=24, num_layers=1, num_decoder_layers=1, num_heads=2, n_tokens=64, patch_size=4
)
FAMILIES = ("chronos-t5", "chronos-bolt", "chronos-2")


def run(family, **changes):
    settings = {
        "model": TINY, "context": 32, "horizon": 8, "bank_kernels": 0, "max_steps": 3, "batch_size": 4,
        "warmup_steps": 0, "save_steps": 2, "log_steps": 1, "learning_rate": 0.01, "precision": "fp32",
    }  # fmt: skip
    return PretrainConfig(family=family, **{**settings, **changes})


@pytest.fixture(params=FAMILIES)
def parent(request, tmp_path):
    """A family, and an untrained checkpoint of it."""
    torch.manual_seed(5)
    model = new_model(run(request.param))
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.1)
    model.save_pretrained(tmp_path / "parent")
    return request.param, tmp_path / "parent"


def test_a_run_begins_with_the_weights_takes_the_shape_and_leaves_them(parent, tmp_path):
    family, folder = parent
    own_shape = PretrainConfig(context=32, horizon=8, bank_kernels=0, max_steps=1, warmup_steps=0)
    config = continue_from(own_shape, str(folder))
    assert (config.family, config.model.d_model, config.weights) == (family, 16, str(folder))
    given = load_file(folder / "model.safetensors")
    network = dict(new_model(config).named_parameters())
    assert all(torch.equal(network[name], given[name]) for name in network)
    still = run(family, weights=str(folder), learning_rate=0.0, weight_decay=0.0)
    pretrain(still, tmp_path / "still", device="cpu")
    moved = run(family, weights=str(folder))
    pretrain(moved, tmp_path / "moved", device="cpu")
    for name, same in (("still", True), ("moved", False)):
        found = load_file(tmp_path / name / "model.safetensors")
        assert all(torch.equal(found[key], given[key]) for key in given) == same


def test_the_config_keeps_its_own_shape_and_bolt_its_horizon(parent):
    family, folder = parent
    config = continue_from(run(family, horizon=12), str(folder))
    assert config.model == TINY
    assert config.horizon == (8 if family == "chronos-bolt" else 12)


def test_times_mean_to_a_longer_context_what_they_meant_to_the_weights(tmp_path):
    new_model(run("chronos-2")).save_pretrained(tmp_path / "parent")
    longer = new_model(run("chronos-2", weights=str(tmp_path / "parent"), context=64))
    assert longer.chronos_config.time_encoding_scale == 32
    assert longer.chronos_config.context_length == 64


def test_a_stopped_run_goes_on_without_its_first_weights(parent, tmp_path, same_weights):
    family, folder = parent
    config = run(family, weights=str(folder), max_steps=4, schedule="constant")
    pretrain(config, tmp_path / "whole", device="cpu")
    pretrain(dataclasses.replace(config, max_steps=2), tmp_path / "half", device="cpu")
    again = run(family, weights=str(tmp_path / "half"), max_steps=2)
    pretrain(again, tmp_path / "fresh", device="cpu")
    assert not same_weights(tmp_path / "fresh", tmp_path / "whole")  # the optimiser is a fresh one


@pytest.mark.slow
def test_series_of_a_file_are_fitted_better_than_before(tmp_path):
    """Fine-tuning on one's own series: a shape that no start knows."""
    values = [10.0 if step % 5 == 0 else float(step % 3) for step in range(200)]
    rows = "\n".join(f"a,{step},{value}" for step, value in enumerate(values))
    (tmp_path / "own.csv").write_text(f"item_id,time,value\n{rows}\n")
    mixture = Mixture(files=(str(tmp_path / "own.csv"),), file_share=1.0, kernel_share=0.0, mixup_share=0.0)
    shape = dataclasses.replace(TINY, start="recency")
    first = run("chronos-bolt", model=shape, max_steps=40, batch_size=16, mixture=mixture)
    before = pretrain(first, tmp_path / "first", device="cpu").loss
    second = continue_from(dataclasses.replace(first, log_steps=40), str(tmp_path / "first"))
    assert pretrain(second, tmp_path / "second", device="cpu").loss < before


def test_what_has_another_layout_is_refused(parent, tmp_path):
    family, folder = parent
    with pytest.raises(OptionError, match=r"here: leave 'model' out"):
        new_model(run(family, weights=str(folder), model=dataclasses.replace(TINY, d_ff=32)))
    other = next(name for name in FAMILIES if name != family)
    with pytest.raises(OptionError, match=f"is {family}, the run is {other}"):
        new_model(run(other, weights=str(folder)))
    compress(folder, CompressOptions(eps=0.5), out=tmp_path / "small")
    with pytest.raises(OptionError, match="rankscope heal"):
        new_model(run(family, weights=str(tmp_path / "small")))
    new_model(run(family, low_rank=RankDesign(1, 0.0, layout="factored"))).save_pretrained(tmp_path / "designed")
    with pytest.raises(OptionError, match="is low-rank by design: only weights of stock networks"):
        new_model(run(family, weights=str(tmp_path / "designed")))
    with pytest.raises(OptionError, match="have no place"):
        run(family, weights=str(folder), low_rank=RankDesign(2, 0.0))


@pytest.mark.parametrize(
    ("family", "field", "there", "here"),
    [
        ("chronos-t5", "num_layers", 2, 1),
        ("chronos-bolt", "num_decoder_layers", 2, 1),
        ("chronos-t5", "tie_word_embeddings", False, True),
        ("chronos-2", "feed_forward_proj", "gelu", "relu"),
        ("chronos-t5", "relative_attention_max_distance", 64, 128),
        ("chronos-2", "layer_norm_epsilon", 0.001, 1e-06),
    ],
)
def test_weights_that_fit_but_are_another_network_s_are_refused(family, field, there, here, tmp_path):
    given = dataclasses.replace(TINY, **{field: there})
    new_model(run(family, model=given)).save_pretrained(tmp_path / "given")
    with pytest.raises(OptionError, match=rf"{field} is {there} there and {here} here: leave 'model' out"):
        new_model(run(family, weights=str(tmp_path / "given")))
    free = dataclasses.replace(given, dropout_rate=0.1, initializer_factor=1.0, start="broad")
    new_model(run(family, weights=str(tmp_path / "given"), model=free))


def test_heads_of_another_width_are_refused_in_chronos_2(tmp_path):
    new_model(run("chronos-2", model=dataclasses.replace(TINY, d_kv=2, num_heads=4))).save_pretrained(
        tmp_path / "given"
    )
    with pytest.raises(OptionError, match="d_kv is 2 there and 4 here"):
        new_model(run("chronos-2", weights=str(tmp_path / "given")))


def test_only_chronos_models_can_be_trained_on(tmp_path):
    from transformers import T5Config, T5ForConditionalGeneration

    T5ForConditionalGeneration(
        T5Config(d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, vocab_size=16)
    ).save_pretrained(tmp_path / "text")
    with pytest.raises(OptionError, match="chronos-t5, chronos-bolt, chronos-2 can be trained on"):
        continue_from(PretrainConfig(), str(tmp_path / "text"))
