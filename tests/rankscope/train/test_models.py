"""Embeddings of fresh networks: inherited, frozen, or a Chebyshev vocabulary; parts that alone are trained."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from numpy.polynomial import chebyshev
from safetensors.torch import load_file

from rankscope import open_checkpoint
from rankscope.compress import CompressOptions, compress
from rankscope.errors import OptionError
from rankscope.io import codec
from rankscope.numerics.embedding import random_frame
from rankscope.train import ModelShape, PretrainConfig, config_from_dict, pretrain
from rankscope.train.config import EmbeddingStart
from rankscope.train.models import chebyshev_vocabulary, chronos_config, new_model
from rankscope.train.rank_schedule import RankDesign

TINY = ModelShape(
    d_model=16, d_kv=4, d_ff=24, num_layers=1, num_decoder_layers=1, num_heads=2, n_tokens=64, patch_size=4
)
FAMILIES = ("chronos-t5", "chronos-bolt", "chronos-2")
HEAD_WIDTHS, FACTORS = RankDesign(2, 0.3), RankDesign(1, 0.3, layout="factored", mlp=True)


def run(family: str, **changes: Any) -> PretrainConfig:
    settings = {
        "model": TINY, "context": 32, "horizon": 8, "bank_kernels": 0, "max_steps": 3, "batch_size": 4,
        "warmup_steps": 0, "save_steps": 3, "log_steps": 1, "learning_rate": 0.05, "weight_decay": 0.5,
    }  # fmt: skip
    return PretrainConfig(family=family, **{**settings, **changes})


@pytest.fixture(scope="module")
def parents(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """``parents("chronos-t5", d_model=32)``: an untrained checkpoint to inherit from."""
    root = tmp_path_factory.mktemp("parents")

    def folder(family: str, **changes: Any) -> str:
        target = root / f"{family}{changes}"
        if not target.exists():
            torch.manual_seed(7)
            model = new_model(run(family, model=dataclasses.replace(TINY, **changes)))
            with torch.no_grad():
                for weight in model.parameters():
                    weight.normal_()
            model.save_pretrained(target)
        return str(target)

    return folder


def of(family: str, design: RankDesign | None) -> RankDesign | None:
    """The design, factored where rotary positions fix the width of heads."""
    return dataclasses.replace(design, layout="factored") if design and family == "chronos-2" else design


def inherited(name: str) -> bool:
    return name == "shared.weight" or name.startswith("input_patch_embedding.")


@pytest.mark.parametrize(
    ("frozen", "design"),
    [(True, None), (False, RankDesign(2, 0.0)), (True, RankDesign(1, 0.0, layout="factored", mlp=True))],
)
@pytest.mark.parametrize("family", FAMILIES)
def test_inherited_embeddings_are_frozen_or_tuned(
    family: str, frozen: bool, design: RankDesign | None, parents: Callable[..., str], tmp_path: Path
) -> None:
    """Frozen ones keep every bit, though the weight decay would shrink them by 2.5 % a step."""
    config = run(
        family, embedding=EmbeddingStart("inherit", parents(family), frozen=frozen), low_rank=of(family, design)
    )
    theirs = load_file(Path(parents(family)) / "model.safetensors")
    start = new_model(config).state_dict()
    names = [name for name in theirs if inherited(name)]
    assert len(names) == (1 if family == "chronos-t5" else 7)
    assert all(torch.equal(start[name], theirs[name]) for name in names)
    pretrain(config, tmp_path / "trained", device="cpu")
    trained = load_file(tmp_path / "trained" / "model.safetensors")
    assert all(torch.equal(trained[name], theirs[name]) == frozen for name in names)
    moved = [name for name in trained if name not in names and "embed_tokens" not in name and name in start]
    assert moved
    assert not any(torch.equal(trained[name], start[name]) for name in moved)


def test_a_frozen_tied_vocabulary_is_also_the_read_out(parents: Callable[..., str], tmp_path: Path) -> None:
    family = "chronos-t5"
    config = run(family, embedding=EmbeddingStart("inherit", parents(family), frozen=True))
    model = new_model(config)
    assert model.lm_head.weight is model.shared.weight
    assert not model.lm_head.weight.requires_grad
    untied = run(family, model=dataclasses.replace(TINY, tie_word_embeddings=False), embedding=config.embedding)
    model = new_model(untied)
    assert model.lm_head.weight.requires_grad
    assert not model.shared.weight.requires_grad
    pretrain(untied, tmp_path / "untied", device="cpu")
    stored = load_file(tmp_path / "untied" / "model.safetensors")
    assert torch.equal(stored["shared.weight"], model.shared.weight)
    assert not torch.allclose(stored["lm_head.weight"], stored["shared.weight"], atol=0.1)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_random_embedding_can_be_frozen_too(family: str) -> None:
    model = new_model(run(family, embedding=EmbeddingStart(frozen=True)))
    still = {name for name, weight in model.named_parameters() if not weight.requires_grad}
    assert still == {name for name, _ in model.named_parameters() if inherited(name)}


def test_a_factored_patch_block_is_multiplied_out(parents: Callable[..., str], tmp_path: Path) -> None:
    compress(parents("chronos-bolt"), CompressOptions(eps=0.9, sites="embedding"), out=tmp_path / "small")
    stored = load_file(tmp_path / "small" / "model.safetensors")
    block = "input_patch_embedding.hidden_layer"
    assert f"{block}.up.weight" in stored
    model = new_model(run("chronos-bolt", embedding=EmbeddingStart("inherit", str(tmp_path / "small"))))
    product = stored[f"{block}.up.weight"] @ stored[f"{block}.down.weight"]
    torch.testing.assert_close(model.get_parameter(f"{block}.weight"), torch.nn.Parameter(product))
    assert torch.equal(model.get_parameter(f"{block}.bias"), stored[f"{block}.up.bias"])


@pytest.mark.parametrize(
    ("family", "parent", "changes", "message"),
    [
        ("chronos-t5", "chronos-t5", {"d_model": 32}, r"shared\.weight is 64×32 there and 64×16 here"),
        ("chronos-t5", "chronos-t5", {"n_tokens": 32}, r"n_tokens is 32 there and 64 here"),
        ("chronos-bolt", "chronos-bolt", {"patch_size": 8}, r"hidden_layer\.weight is 24×16 there and 24×8 here"),
        (
            "chronos-bolt",
            "chronos-bolt",
            {"feed_forward_proj": "gelu"},
            r"feed_forward_proj is 'gelu' there and 'relu'",
        ),
        ("chronos-bolt", "chronos-t5", {}, r"is chronos-t5, the run is chronos-bolt"),
    ],
)
def test_embeddings_that_do_not_fit_are_refused(
    family: str, parent: str, changes: dict[str, Any], message: str, parents: Callable[..., str], tmp_path: Path
) -> None:
    config = run(family, embedding=EmbeddingStart("inherit", parents(parent, **changes)))
    with pytest.raises(OptionError, match=message) as caught:
        pretrain(config, tmp_path / "out", device="cpu")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("family", "design"),
    [
        ("chronos-t5", HEAD_WIDTHS),
        *(pytest.param(family, HEAD_WIDTHS, marks=pytest.mark.slow) for family in FAMILIES[1:]),
        *(pytest.param(family, FACTORS, marks=pytest.mark.slow) for family in FAMILIES),
    ],
)
def test_a_stopped_run_by_design_goes_on_exactly(family: str, design: RankDesign, tmp_path: Path) -> None:
    config = run(family, low_rank=of(family, design), max_steps=4, save_steps=2, learning_rate=0.01)
    pretrain(config, tmp_path / "whole", device="cpu")

    def stop(done: int, total: int, what: str) -> None:
        if "loss" in what and done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(config, tmp_path / "broken", device="cpu", progress=stop)
    pretrain(config, tmp_path / "broken", device="cpu", resume=True)
    whole, again = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "broken"))
    assert whole.keys() == again.keys()
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_shapes_reach_the_network() -> None:
    changes = {
        "feed_forward_proj": "gated-gelu", "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20,
        "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False,
    }  # fmt: skip
    for design in (None, RankDesign(2, 0.0, mlp=True)):
        config = new_model(run("chronos-t5", model=dataclasses.replace(TINY, **changes), low_rank=design)).config
        assert {key: getattr(config, key) for key in changes} == changes
    with pytest.raises(OptionError, match="did you mean 'gated-gelu'"):
        config_from_dict({"model": {"feed_forward_proj": "gated-gelo"}})


@pytest.fixture
def fixed(tiny: Callable[..., PretrainConfig]) -> Callable[..., PretrainConfig]:
    """``fixed(frozen=False)``: a few steps with a Chebyshev vocabulary of rank 3."""

    def make(frozen: bool = True) -> PretrainConfig:
        embedding = EmbeddingStart(source="chebyshev", rank=3, frozen=frozen)
        changes = {"bank_kernels": 0, "max_steps": 4, "warmup_steps": 0, "save_steps": 2, "learning_rate": 0.01}
        return tiny("chronos-t5", embedding=embedding, **changes)

    return make


def test_every_id_has_the_row_of_the_value_it_decodes_to(fixed):
    from chronos import ChronosConfig

    settings = chronos_config(fixed())
    table = chebyshev_vocabulary(settings, 16, 3, seed=7)
    tokenizer = ChronosConfig(**settings).create_tokenizer()
    ids = torch.arange(2, 64)
    values = tokenizer.output_transform(ids.reshape(1, 1, -1), torch.ones(1))[0, 0].double()
    weights = chebyshev.chebvander(values.numpy() / 15, 3)[:, 1:]
    torch.testing.assert_close(table[2:], torch.from_numpy(weights) @ random_frame(16, 3, 7))
    seen, _, _ = tokenizer._input_transform(torch.tensor([[-15.0, 0.0, 15.0]]), torch.ones(1))
    assert values[seen[0] - 2].tolist() == [-15.0, 0.0, 15.0]


@pytest.mark.parametrize("rank", [1, 3, 16])
def test_special_tokens_are_zero_and_add_no_rank(rank, fixed):
    table = chebyshev_vocabulary(chronos_config(fixed()), 16, rank, seed=0)
    assert not table[:2].any()
    assert torch.linalg.matrix_rank(table) == rank


def test_training_leaves_a_frozen_vocabulary_and_moves_the_head(tmp_path, fixed):
    from chronos import BaseChronosPipeline

    torch.manual_seed(0)
    start = new_model(fixed())
    pretrain(fixed(), tmp_path / "model", device="cpu")
    stored = load_file(tmp_path / "model" / "model.safetensors")
    table = chebyshev_vocabulary(chronos_config(fixed()), 16, 3, seed=0).float()
    assert torch.equal(stored["shared.weight"], table)
    assert not torch.allclose(stored["lm_head.weight"], start.lm_head.weight, atol=1e-3)
    assert json.loads((tmp_path / "model" / "config.json").read_text())["tie_word_embeddings"] is False
    pipeline = BaseChronosPipeline.from_pretrained(tmp_path / "model")
    inner = pipeline.model.model
    assert torch.equal(inner.lm_head.weight, stored["lm_head.weight"])
    assert torch.equal(inner.encoder.embed_tokens.weight, table)
    assert torch.equal(inner.decoder.embed_tokens.weight, table)
    forecast = pipeline.predict(torch.arange(40.0).sin(), prediction_length=8)
    assert torch.isfinite(forecast).all()
    assert open_checkpoint(str(tmp_path / "model")).parameters == sum(t.numel() for t in stored.values())


def test_what_is_saved_computes_what_was_trained(tmp_path, fixed):
    from chronos import BaseChronosPipeline

    torch.manual_seed(0)
    model = new_model(fixed()).eval()
    model.save_pretrained(tmp_path / "model")
    again = BaseChronosPipeline.from_pretrained(tmp_path / "model").model.model
    ids = torch.arange(3, 23).reshape(2, 10)
    with torch.no_grad():
        expected, got = (m(input_ids=ids, decoder_input_ids=ids).logits for m in (model, again))
        hidden = model(input_ids=ids, decoder_input_ids=ids, output_hidden_states=True).decoder_hidden_states[-1]
    assert torch.equal(got, expected)
    # transformers 4 does not scale the decoder's output where config.json says that the head is untied
    torch.testing.assert_close(got, hidden @ model.lm_head.weight.T)


def test_a_vocabulary_that_is_not_frozen_is_trained(tmp_path, fixed):
    pretrain(fixed(frozen=False), tmp_path / "model", device="cpu")
    stored = load_file(tmp_path / "model" / "model.safetensors")
    table = chebyshev_vocabulary(chronos_config(fixed()), 16, 3, seed=0).float()
    assert not torch.allclose(stored["shared.weight"], table, atol=1e-3)


@pytest.mark.slow
def test_a_stopped_run_with_a_frozen_vocabulary_goes_on_exactly(tmp_path, fixed, same_weights):
    pretrain(fixed(), tmp_path / "whole", device="cpu")

    def stop(done, total, what):
        if "loss" in what and done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(fixed(), tmp_path / "broken", device="cpu", progress=stop)
    pretrain(fixed(), tmp_path / "broken", device="cpu", resume=True)
    assert same_weights(tmp_path / "broken", tmp_path / "whole")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"family": "chronos-bolt"}, "only family chronos-t5"),
        ({"embedding": {"source": "chebyshev", "rank": 17}}, r"embedding\.rank 17 is above model\.d_model 16"),
    ],
)
def test_what_has_no_such_vocabulary_is_refused(change, message, fixed):
    with pytest.raises(OptionError, match=message):
        config_from_dict(codec.plain(fixed()) | change)


@pytest.mark.parametrize(("family", "part"), [("chronos-bolt", "SelfAttention.q"), ("chronos-2", "layer.1.")])
def test_only_the_parts_that_are_named_are_trained(family, part, tmp_path):
    """Gradients flow through the other weights, and weight decay leaves them alone, too."""
    config = run(family, trainable=(part,), keep_steps=(0,))
    pretrain(config, tmp_path / "out", device="cpu")
    before = load_file(tmp_path / "out/kept/step-0/model.safetensors")
    after = load_file(tmp_path / "out/model.safetensors")
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if part in name}


def test_a_part_that_is_in_no_name_is_refused(tmp_path):
    with pytest.raises(OptionError, match=r"trainable has 'attention\.x', which is in no weight's name; one is "):
        pretrain(run("chronos-bolt", trainable=("attention.x",)), tmp_path / "out", device="cpu")
    assert list(tmp_path.iterdir()) == []
