"""Runs that begin with the weights of a checkpoint."""

import dataclasses

import pytest
import torch
from safetensors.torch import load_file

from rankscope.compress import CompressOptions, compress
from rankscope.errors import OptionError
from rankscope.train import ModelShape, PretrainConfig, continue_from, pretrain
from rankscope.train.data.mixture import Mixture
from rankscope.train.models import new_model
from rankscope.train.rank_schedule import RankDesign

SHAPE = ModelShape(d_model=16, d_kv=4, d_ff=24, num_layers=1, num_decoder_layers=1, num_heads=2, n_tokens=64)
FAMILIES = ("chronos-t5", "chronos-bolt")


def run(family, **changes):
    settings = {
        "model": SHAPE, "context": 32, "horizon": 8, "bank_kernels": 0, "max_steps": 3, "batch_size": 4,
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
    config = continue_from(run(family, horizon=5), str(folder))
    assert config.model == SHAPE
    assert config.horizon == (8 if family == "chronos-bolt" else 5)


def test_a_stopped_run_goes_on_without_its_first_weights(parent, tmp_path, same_weights):
    family, folder = parent
    config = run(family, weights=str(folder), max_steps=4, schedule="constant")
    pretrain(config, tmp_path / "whole", device="cpu")
    pretrain(dataclasses.replace(config, max_steps=2), tmp_path / "half", device="cpu")
    again = run(family, weights=str(tmp_path / "half"), max_steps=2)
    pretrain(again, tmp_path / "fresh", device="cpu")
    assert not same_weights(tmp_path / "fresh", tmp_path / "whole")  # the optimiser is a fresh one


def test_series_of_a_file_are_fitted_better_than_before(tmp_path):
    """Fine-tuning on one's own series: a shape that no start knows."""
    values = [10.0 if step % 5 == 0 else float(step % 3) for step in range(200)]
    rows = "\n".join(f"a,{step},{value}" for step, value in enumerate(values))
    (tmp_path / "own.csv").write_text(f"item_id,time,value\n{rows}\n")
    mixture = Mixture(files=(str(tmp_path / "own.csv"),), file_share=1.0, kernel_share=0.0, mixup_share=0.0)
    shape = dataclasses.replace(SHAPE, start="recency")
    first = run("chronos-bolt", model=shape, max_steps=40, batch_size=16, mixture=mixture)
    before = pretrain(first, tmp_path / "first", device="cpu").loss
    second = continue_from(dataclasses.replace(first, log_steps=40), str(tmp_path / "first"))
    assert pretrain(second, tmp_path / "second", device="cpu").loss < before


def test_what_has_another_layout_is_refused(parent, tmp_path):
    family, folder = parent
    with pytest.raises(OptionError, match=r"here: leave 'model' out"):
        new_model(run(family, weights=str(folder), model=dataclasses.replace(SHAPE, d_ff=32)))
    other = next(name for name in FAMILIES if name != family)
    with pytest.raises(OptionError, match=f"is {family}, the run is {other}"):
        new_model(run(other, weights=str(folder)))
    compress(folder, CompressOptions(eps=0.5), out=tmp_path / "small")
    with pytest.raises(OptionError, match="rankscope heal"):
        new_model(run(family, weights=str(tmp_path / "small")))
    with pytest.raises(OptionError, match="have no place"):
        run(family, weights=str(folder), low_rank=RankDesign(2, 0.0))


def test_only_chronos_models_can_be_trained_on(tmp_path):
    from transformers import T5Config, T5ForConditionalGeneration

    T5ForConditionalGeneration(
        T5Config(d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, vocab_size=16)
    ).save_pretrained(tmp_path / "text")
    with pytest.raises(OptionError, match="chronos-t5 and chronos-bolt can be trained on"):
        continue_from(PretrainConfig(), str(tmp_path / "text"))
