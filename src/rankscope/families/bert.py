"""BERT and the text encoders of its layout (RoBERTa, CamemBERT, MiniLM), with whatever head."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from rankscope.families import t5
from rankscope.families.layers import bert_layers, layers_at, matrix_shapes
from rankscope.families.loading import without_head
from rankscope.families.record import Config, Family, Shapes, has_type, positive
from rankscope.families.sites import Site

NAMES = {"q": "self.query", "k": "self.key", "v": "self.value", "o": "output.dense"}
_TABLE = "embeddings.word_embeddings.weight"


def sites(config: Config) -> tuple[Site, ...]:
    """Word embedding, then the layers."""
    return (Site(_TABLE, "encoder", None, "embedding"), *bert_layers(config, NAMES))


def expected_shapes(config: Config) -> Shapes:
    """Every attention, MLP and embedding matrix."""
    d_model, d_ff = positive(config, "hidden_size"), positive(config, "intermediate_size")
    layers = matrix_shapes(bert_layers(config, NAMES), d_model, d_ff)
    return {_TABLE: (positive(config, "vocab_size"), d_model), **layers}


def model_inputs(module: Any, series: Tensor) -> dict[str, Tensor]:
    """Token ids (axes texts, tokens), cut to the positions that the model has.

    Raises:
        DataError: the values are no token ids of the model.
    """
    config = module.config.to_dict()
    tokens = t5.token_ids(module, series)[:, : context(config)]
    return {"input_ids": tokens, "attention_mask": (tokens != int(config["pad_token_id"] or 0)).long()}


def context(config: Config) -> int:
    """Tokens that the model has positions for; RoBERTa counts them from behind the padding token."""
    unused = 0 if config["model_type"] == "bert" else int(config.get("pad_token_id") or 0) + 1
    return positive(config, "max_position_embeddings", 512) - unused


FAMILY = Family(
    name="bert",
    title="BERT",
    strategy="text",
    matches=has_type("bert", "roberta", "xlm-roberta", "camembert"),
    sites=sites,
    expected_shapes=expected_shapes,
    build=without_head("AutoModel", add_pooling_layer=False),
    embed=t5.embed,
    model_inputs=model_inputs,
    context=context,
    blocks=lambda module: {"encoder": layers_at(module, "encoder.layer")},
    vocabulary=t5.vocabulary,
    modality="text",
    prefixes=tuple(f"{name}." for name in ("bert", "roberta")),
    published_patch=1,
    hub_ids=("google-bert/bert-base-uncased", "sentence-transformers/all-MiniLM-L6-v2"),
    proxy=True,
)
