"""WaveToken: a T5 over wavelet coefficients in uniform bins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.errors import CheckpointError
from rankscope.families import t5
from rankscope.families.layers import stack_blocks, teacher_forced
from rankscope.families.record import Config, Family, Shapes, positive
from rankscope.families.series import standardised, unpadded

if TYPE_CHECKING:
    from rankscope.families.models.wavelets import WaveletTokens

CONTEXT = 512


def matches(config: Config) -> bool:
    """Return True if the config is a T5 with a wavelet tokenizer."""
    return config.get("model_type") == "t5" and "wavetoken" in config


def tokens_of(config: Config) -> WaveletTokens:
    """Read the settings of the tokenizer.

    Raises:
        CheckpointError: they are missing or out of range, or PyWavelets is not installed.
    """
    from rankscope.families.models.wavelets import WaveletTokens

    return WaveletTokens.of(config.get("wavetoken"))


def expected_shapes(config: Config) -> Shapes:
    """Every tensor of the T5; its table holds one row per token of the tokenizer."""
    part = config.get("wavetoken")
    known = part.get("n_tokens", 1024) if isinstance(part, dict) else None
    if known != positive(config, "vocab_size"):
        raise CheckpointError(
            f"config.json: vocab_size {config.get('vocab_size')!r} and wavetoken.n_tokens {known!r} must agree."
        )
    return t5.expected_shapes(config)


def rows_of(config: Config, series: Tensor) -> list[Tensor]:
    """Token ids of each series (axes series, time), cut to the context; without padding and end token."""
    tokens = tokens_of(config)
    length = positive(config["wavetoken"], "context_length", CONTEXT)
    rows = unpadded(standardised(series[:, -length:]), length)
    return [torch.from_numpy(tokens.encode(row.numpy())) for row in rows]


def model_inputs(module: Any, series: Tensor) -> dict[str, Any]:
    """Tokenise series (axes series, time) for one pass in which the decoder reads the shifted context."""
    from rankscope.families.models.wavelets import END, PAD

    rows = [torch.cat([row, torch.tensor([END])]) for row in rows_of(module.config.to_dict(), series)]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD).to(module.device)
    return teacher_forced(ids, (ids != PAD).long(), int(module.config.decoder_start_token_id or PAD))


def embed(module: Any, series: Tensor) -> Float[Tensor, "tokens d_model"]:
    """Look up the token of every coefficient of a corpus (axes series, time): per series the coarse ones first."""
    ids = torch.cat(rows_of(module.config.to_dict(), series)).to(module.device)
    with torch.no_grad():
        return module.get_input_embeddings()(ids)


FAMILY = Family(
    name="wavetoken",
    title="WaveToken",
    strategy="quantisation",
    matches=matches,
    sites=t5.sites,
    expected_shapes=expected_shapes,
    tied_shapes=t5.tied_shapes,
    build=t5.FAMILY.build,
    embed=embed,
    model_inputs=model_inputs,
    context=lambda config: positive(config["wavetoken"], "context_length", CONTEXT),
    blocks=stack_blocks,
    vocabulary=t5.vocabulary,
    aliases=t5.ALIASES,
    published_patch=1,
    stand_in="bundled-wavetoken",
    in_time=False,
    decoding="tokens",
    proxy=True,
)
