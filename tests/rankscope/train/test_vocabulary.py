"""The Chebyshev vocabulary: bins where the tokenizer has them, frozen in training, loadable in plain chronos."""

import json
from collections.abc import Callable

import pytest
import torch
from numpy.polynomial import chebyshev
from safetensors.torch import load_file

from rankscope import open_checkpoint
from rankscope.errors import OptionError
from rankscope.io import codec
from rankscope.numerics.embedding import random_frame
from rankscope.train import PretrainConfig, config_from_dict, pretrain
from rankscope.train.config import EmbeddingStart
from rankscope.train.models import chronos_config, new_model
from rankscope.train.vocabulary import chebyshev_vocabulary


@pytest.fixture
def run(tiny: Callable[..., PretrainConfig]) -> Callable[..., PretrainConfig]:
    """``run(frozen=False)``: a few steps with a Chebyshev vocabulary of rank 3."""

    def make(frozen: bool = True) -> PretrainConfig:
        embedding = EmbeddingStart(source="chebyshev", rank=3, frozen=frozen)
        changes = {"bank_kernels": 0, "max_steps": 4, "warmup_steps": 0, "save_steps": 2, "learning_rate": 0.01}
        return tiny("chronos-t5", embedding=embedding, **changes)

    return make


def test_every_id_has_the_row_of_the_value_it_decodes_to(run):
    from chronos import ChronosConfig

    settings = chronos_config(run())
    table = chebyshev_vocabulary(settings, 16, 3, seed=7)
    tokenizer = ChronosConfig(**settings).create_tokenizer()
    ids = torch.arange(2, 64)
    values = tokenizer.output_transform(ids.reshape(1, 1, -1), torch.ones(1))[0, 0].double()
    weights = chebyshev.chebvander(values.numpy() / 15, 3)[:, 1:]
    torch.testing.assert_close(table[2:], torch.from_numpy(weights) @ random_frame(16, 3, 7))
    seen, _, _ = tokenizer._input_transform(torch.tensor([[-15.0, 0.0, 15.0]]), torch.ones(1))
    assert values[seen[0] - 2].tolist() == [-15.0, 0.0, 15.0]


@pytest.mark.parametrize("rank", [1, 3, 16])
def test_special_tokens_are_zero_and_add_no_rank(rank, run):
    table = chebyshev_vocabulary(chronos_config(run()), 16, rank, seed=0)
    assert not table[:2].any()
    assert torch.linalg.matrix_rank(table) == rank


def test_training_leaves_a_frozen_vocabulary_and_moves_the_head(tmp_path, run):
    from chronos import BaseChronosPipeline

    torch.manual_seed(0)
    start = new_model(run())
    pretrain(run(), tmp_path / "model", device="cpu")
    stored = load_file(tmp_path / "model" / "model.safetensors")
    table = chebyshev_vocabulary(chronos_config(run()), 16, 3, seed=0).float()
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


def test_what_is_saved_computes_what_was_trained(tmp_path, run):
    from chronos import BaseChronosPipeline

    torch.manual_seed(0)
    model = new_model(run()).eval()
    model.save_pretrained(tmp_path / "model")
    again = BaseChronosPipeline.from_pretrained(tmp_path / "model").model.model
    ids = torch.arange(3, 23).reshape(2, 10)
    with torch.no_grad():
        expected, got = (m(input_ids=ids, decoder_input_ids=ids).logits for m in (model, again))
        hidden = model(input_ids=ids, decoder_input_ids=ids, output_hidden_states=True).decoder_hidden_states[-1]
    assert torch.equal(got, expected)
    # transformers 4 does not scale the decoder's output where config.json says that the head is untied
    torch.testing.assert_close(got, hidden @ model.lm_head.weight.T)


def test_a_vocabulary_that_is_not_frozen_is_trained(tmp_path, run):
    pretrain(run(frozen=False), tmp_path / "model", device="cpu")
    stored = load_file(tmp_path / "model" / "model.safetensors")
    table = chebyshev_vocabulary(chronos_config(run()), 16, 3, seed=0).float()
    assert not torch.allclose(stored["shared.weight"], table, atol=1e-3)


@pytest.mark.slow
def test_a_stopped_run_with_a_frozen_vocabulary_goes_on_exactly(tmp_path, run, same_weights):
    pretrain(run(), tmp_path / "whole", device="cpu")

    def stop(done, total, what):
        if "loss" in what and done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(run(), tmp_path / "broken", device="cpu", progress=stop)
    pretrain(run(), tmp_path / "broken", device="cpu", resume=True)
    assert same_weights(tmp_path / "broken", tmp_path / "whole")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"family": "chronos-bolt"}, "only family chronos-t5"),
        ({"embedding": {"source": "chebyshev", "rank": 17}}, r"embedding\.rank 17 is above model\.d_model 16"),
    ],
)
def test_what_has_no_such_vocabulary_is_refused(change, message, run):
    with pytest.raises(OptionError, match=message):
        config_from_dict(codec.plain(run()) | change)
