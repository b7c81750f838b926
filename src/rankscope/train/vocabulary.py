"""A fixed vocabulary of chosen rank for Chronos-T5, and the output head that it then needs (Fig. 4c, App. H)."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.numerics.embedding import chebyshev_embedding
from rankscope.train.config import EmbeddingStart

HEAD = "lm_head.weight"


def chebyshev_vocabulary(
    chronos_config: dict[str, Any], d_model: int, rank: int, seed: int
) -> Float[Tensor, "tokens d_model"]:
    """Embed the centre of every bin by `rankscope.numerics.embedding.chebyshev_embedding`.

    Which id holds which centre is chronos' own tokenizer's to say: the id after the special tokens is used by no
    value and decodes to the lowest bin, so it gets that bin's row. The special tokens (padding, which also starts
    the decoder, and end of sequence) hold no number: their rows are zero, which adds nothing to the rank. At rank 1
    zero is also the row of the bin at 0, as a line has no place for a token without a value.

    Args:
        chronos_config: the ``chronos_config`` entry of config.json, with MeanScaleUniformBins as its tokenizer.
        d_model: width of the embedding.
        rank: algebraic rank of the table.
        seed: the subspace is a function of it.

    Returns:
        float64 table (tokens, d_model) of algebraic rank ``rank``.

    Raises:
        OptionError: the rank does not fit into ``d_model`` or needs more bins.
    """
    from chronos import ChronosConfig

    bins: Any = ChronosConfig(**chronos_config).create_tokenizer()
    special, tokens = bins.config.n_special_tokens, bins.config.n_tokens
    limit = float(bins.centers.abs().max())
    rows = chebyshev_embedding(bins.centers, d_model, rank, limit=limit, seed=seed)
    ids = torch.arange(special, tokens)
    table = torch.zeros(tokens, d_model, dtype=rows.dtype)
    table[ids] = rows[(ids - special - 1).clamp(0, len(rows) - 1)]
    return table


def start_from_chebyshev(model: Any, embedding: EmbeddingStart, seed: int) -> None:
    """Give a fresh Chronos-T5 the Chebyshev vocabulary that ``embedding`` asks for, and a head of its own."""
    with torch.device("cpu"):  # numbers, also where the model is a sketch without any (device meta)
        table = chebyshev_vocabulary(model.config.chronos_config, model.config.d_model, embedding.rank, seed)
    set_vocabulary(model, table, frozen=embedding.frozen)


@torch.no_grad()
def set_vocabulary(model: Any, table: Float[Tensor, "tokens d_model"], *, frozen: bool) -> None:
    """Put a table in place of the vocabulary of a T5, give the model a head of its own, and freeze the table.

    T5 reads tokens out with the vocabulary itself. A frozen table of rank k would leave k directions to tell all
    tokens apart, and training could not improve them, so the head is untied (`untie_head`) and trained.

    Args:
        model: a ``T5ForConditionalGeneration``.
        table: the vocabulary (tokens, d_model).
        frozen: whether training leaves the table as it is.
    """
    untie_head(model)
    weight = model.get_input_embeddings().weight
    weight.copy_(table)
    weight.requires_grad_(not frozen)


@torch.no_grad()
def untie_head(model: Any) -> None:
    """Give a T5 an output head of its own, drawn as transformers draws untied heads.

    The saved config says ``tie_word_embeddings: false``. transformers 4 and 5 then both keep the stored head and, as
    in T5 v1.1, no longer scale the decoder's output by d_model^−½; training here goes by the same rule.
    """
    embedding = model.get_input_embeddings().weight
    head = torch.empty_like(embedding).normal_(std=model.config.initializer_factor)
    model.lm_head.weight = nn.Parameter(head)
    tied = getattr(model, "all_tied_weights_keys", None)  # transformers 5
    if tied is not None:
        tied.pop(HEAD, None)
    model.config.tie_word_embeddings = False
    model.config.scale_decoder_outputs = False
