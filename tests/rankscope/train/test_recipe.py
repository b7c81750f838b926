"""The folder of a design: a run that trains the network that config.json describes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from rankscope import load_pipeline
from rankscope.checkpoints import describe
from rankscope.errors import FamilyError, OptionError, OutputError
from rankscope.io import codec
from rankscope.train import ModelShape, PretrainConfig, config_from_dict, pretrain, read_config
from rankscope.train.config import EmbeddingStart, Teacher
from rankscope.train.models import new_model
from rankscope.train.rank_schedule import RankDesign
from rankscope.train.recipe import stock_run, to_yaml, write_design

Make = Callable[..., Any]
DESIGN = RankDesign(1, 0.5)


@pytest.mark.parametrize("kind", ["chronos-t5", "chronos-bolt"])
def test_the_folder_trains_the_network_it_describes(
    kind: str, tmp_path: Path, write_checkpoint: Make, tiny_config: Make
) -> None:
    """The trained config.json is the designed one; nothing of the model's own shape is lost."""
    config = tiny_config(kind, relative_attention_num_buckets=8, layer_norm_epsilon=1e-5, num_decoder_layers=2)
    source = describe(write_checkpoint(tmp_path / "stock", config))
    report = write_design(source, DESIGN, tmp_path / "low")
    assert report.not_kept == ()
    assert report.recipe == "chronos"
    run = read_config(tmp_path / "low" / "pretrain.yaml")
    assert (run.low_rank, run.context, run.horizon) == (DESIGN, 32, 8)
    assert (run.max_steps, run.batch_size, run.learning_rate, run.schedule) == (200_000, 32, 1e-3, "linear")
    assert (run.weight_decay, run.warmup_steps, run.mixture.kernel_share) == (0.0, 0, 0.1)
    short = dataclasses.replace(run, max_steps=2, batch_size=4, bank_kernels=0)
    pretrain(short, tmp_path / "trained", device="cpu")
    designed, trained = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("low", "trained"))
    varying = ("dtype", "torch_dtype", "transformers_version", "_name_or_path", "use_cache")
    assert {k: v for k, v in trained.items() if k not in varying} == {
        k: v for k, v in designed.items() if k not in varying
    }
    theirs = {k: config[k] for k in config.keys() & trained.keys() - {"model_type", "architectures"} - {*varying}}
    assert {k: trained[k] for k in theirs if k != "chronos_pipeline_class"} == {
        k: v for k, v in theirs.items() if k != "chronos_pipeline_class"
    }
    stored = load_file(tmp_path / "trained" / "model.safetensors")
    assert report.parameters["after"] == sum(v.numel() for k, v in stored.items() if "embed_tokens" not in k)
    assert json.loads((tmp_path / "low" / "design.json").read_text()) == codec.plain(report)
    assert load_pipeline(tmp_path / "trained").predict(torch.ones(1, 20), prediction_length=8).isfinite().all()


@pytest.mark.parametrize("start", ["weights", "teacher"])
def test_a_tuned_or_taught_model_is_designed_from_scratch(start: str, tmp_path: Path, tiny: Make) -> None:
    new_model(tiny()).save_pretrained(tmp_path / "first")
    tuned = {"weights": str(tmp_path / "first"), "trainable": ("SelfAttention.q",)}
    own = tiny(**(tuned if start == "weights" else {"teacher": Teacher("first", series=8)}))
    new_model(tiny()).save_pretrained(tmp_path / "stock")
    codec.write(tmp_path / "stock" / "pretrain.json", {"config": own})
    write_design(describe(tmp_path / "stock"), DESIGN, tmp_path / "low")
    run = read_config(tmp_path / "low" / "pretrain.yaml")
    assert run == dataclasses.replace(own, low_rank=DESIGN, weights="", trainable=(), teacher=Teacher())


def test_a_model_trained_here_keeps_its_own_run(tmp_path: Path) -> None:
    shape = ModelShape(d_model=16, d_kv=4, d_ff=16, num_layers=1, num_decoder_layers=1, num_heads=2, n_tokens=64)
    own = PretrainConfig(
        model=shape, context=32, horizon=8, bank_kernels=0, max_steps=2, batch_size=4, warmup_steps=0, seed=3
    )
    pretrain(own, tmp_path / "stock", device="cpu")
    assert stock_run(describe(tmp_path / "stock")) == (own, "pretrain.json")
    embedding = EmbeddingStart("inherit", str(tmp_path / "stock"), frozen=True)
    report = write_design(
        describe(tmp_path / "stock"), DESIGN, tmp_path / "low", embedding=embedding, seed=9, precision="bf16"
    )
    assert report.recipe == "pretrain.json"
    wanted = dataclasses.replace(own, low_rank=DESIGN, embedding=embedding, seed=9, precision="bf16")
    assert read_config(tmp_path / "low" / "pretrain.yaml") == wanted
    record = json.loads((tmp_path / "stock" / "pretrain.json").read_text())
    record["config"]["model"]["num_heads"] = 4  # of another network
    (tmp_path / "stock" / "pretrain.json").write_text(json.dumps(record))
    assert stock_run(describe(tmp_path / "stock"))[1] == "chronos"


def test_yaml_holds_every_field() -> None:
    for config in (PretrainConfig(), PretrainConfig(low_rank=RankDesign(1.5, 0.1, mlp=True), family="chronos-bolt")):
        assert config_from_dict(yaml.safe_load(to_yaml(config))) == config


def test_what_a_run_cannot_keep_is_named(tmp_path: Path, write_checkpoint: Make, tiny_config: Make) -> None:
    config = tiny_config("chronos-t5", num_decoder_layers=2)
    config["chronos_config"]["tokenizer_kwargs"] = {"low_limit": -5.0, "high_limit": 5.0}
    report = write_design(describe(write_checkpoint(tmp_path / "stock", config)), DESIGN, tmp_path / "low")
    assert len(report.not_kept) == 1
    assert report.not_kept[0].startswith("chronos_config.tokenizer_kwargs: {'low_limit': -5.0")


def test_a_bolt_has_no_head_to_tie(tmp_path: Path, write_checkpoint: Make, tiny_config: Make) -> None:
    config = tiny_config("chronos-bolt", tie_word_embeddings=False)
    report = write_design(describe(write_checkpoint(tmp_path / "stock", config)), DESIGN, tmp_path / "low")
    assert report.not_kept == ()
    assert read_config(tmp_path / "low" / "pretrain.yaml").model.tie_word_embeddings


def test_chronos_2_by_design_trains_and_forecasts(tmp_path: Path, write_checkpoint: Make, tiny_config: Make) -> None:
    source = describe(write_checkpoint(tmp_path / "stock", tiny_config("chronos-2", dropout_rate=0.0)))
    write_design(source, RankDesign(1, 0.0, layout="factored"), tmp_path / "low")
    run = read_config(tmp_path / "low" / "pretrain.yaml")
    assert (run.context, run.horizon) == (64, 16)
    mixture = dataclasses.replace(run.mixture, group_share=0.5)
    pretrain(dataclasses.replace(run, max_steps=2, bank_kernels=0, mixture=mixture), tmp_path / "trained", device="cpu")
    designed, trained = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("low", "trained"))
    assert trained["rankscope"] == designed["rankscope"]
    (forecast,) = load_pipeline(tmp_path / "trained").predict(torch.ones(1, 1, 20), prediction_length=8)
    assert forecast.isfinite().all()


@pytest.mark.parametrize("tied", [None, False, True])
def test_an_untied_head_is_kept(tied: bool | None, tmp_path: Path, write_checkpoint: Make, tiny_config: Make) -> None:
    config = tiny_config("chronos-t5", num_decoder_layers=2, feed_forward_proj="gated-gelu")
    if tied is not None:
        config["tie_word_embeddings"] = tied
    source = describe(write_checkpoint(tmp_path / "stock", config))
    report = write_design(source, DESIGN, tmp_path / "low")
    model = new_model(read_config(tmp_path / "low" / "pretrain.yaml"))
    assert (model.lm_head.weight is model.shared.weight) == (tied is not False)
    assert report.parameters["after"] == sum(p.numel() for p in model.parameters())


def test_only_the_config_is_read(tmp_path: Path, tiny_config: Make) -> None:
    folder = tmp_path / "no weights"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(tiny_config("chronos-bolt")))
    assert write_design(describe(folder), DESIGN, tmp_path / "low").family == "chronos-bolt"


def test_what_cannot_be_designed_leaves_nothing(tmp_path: Path, write_checkpoint: Make, tiny_config: Make) -> None:
    stock = describe(write_checkpoint(tmp_path / "stock", tiny_config("chronos-t5")))
    with pytest.raises(OptionError, match="above the head width 4"):
        write_design(stock, RankDesign(5, 0.0), tmp_path / "low")
    with pytest.raises(FamilyError, match=r"Chronos-2 turns queries and keys by rotary positions"):
        write_design(describe(write_checkpoint(tmp_path / "c2", tiny_config("chronos-2"))), DESIGN, tmp_path / "low")
    assert not (tmp_path / "low").exists()
    write_design(stock, DESIGN, tmp_path / "low")
    before = (tmp_path / "low" / "pretrain.yaml").read_bytes()
    with pytest.raises(OutputError, match="exists already"):
        write_design(stock, RankDesign(2, 0.0), tmp_path / "low")
    assert (tmp_path / "low" / "pretrain.yaml").read_bytes() == before
    with pytest.raises(FamilyError, match="low-rank already"):
        write_design(describe(tmp_path / "low"), DESIGN, tmp_path / "lower")
