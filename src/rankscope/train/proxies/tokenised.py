"""Proxy models of Time-MoE, WaveToken and TOTEM, whose embeddings are not in transformers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.families.loading import write_module
from rankscope.families.models.time_moe import TimeMoe
from rankscope.families.models.totem import Totem
from rankscope.families.models.wavelets import END, PAD, WaveletTokens
from rankscope.families.series import standardised
from rankscope.series.signals import corpus
from rankscope.train.data.structured import structured_series
from rankscope.train.proxies.recipe import Batch, Batches, ProxyOptions, Recipe

DATA = (
    "generated on the fly: 80% structured series (trend, seasonalities, noise, level, accidents), 10% sinusoids, 5% "
    "exponentials, 5% white noise; each standardised; no real series"
)
SHARES = {"sine": 0.10, "exponential": 0.05, "noise": 0.05}
HISTORY = 256
"""Values over which a series is standardised before its window is cut."""
TIME_MOE_WINDOW, TOTEM_WINDOW = 96, 96
PAST, HORIZON = 128, 32
"""Values of a WaveToken window that are read, and those that follow."""
DECAY = 0.95
"""Of TOTEM's codes: by the codebook loss alone they fall behind the encoder in the few steps taken here."""
_LEARNT, _HELD = 51, 53


def windows(seed: int, step: int, held_out: bool, n: int, length: int) -> Float[Tensor, "series time"]:
    """Windows of standardised generated series, the same for the same seed and step; held-out ones have own draws."""
    rng = np.random.default_rng((seed, _HELD if held_out else _LEARNT, step))
    counts = rng.multinomial(n, [1 - sum(SHARES.values()), *SHARES.values()])
    parts = [torch.from_numpy(structured_series(rng, int(counts[0]), HISTORY)).float()] if counts[0] else []
    for kind, count in zip(SHARES, counts[1:], strict=True):
        if count:
            parts.append(corpus(kind, int(count), HISTORY, seed=int(rng.integers(2**31))))
    start = int(rng.integers(HISTORY - length + 1))
    return standardised(torch.cat(parts))[:, start : start + length]


def time_moe(options: ProxyOptions, batch_size: int) -> Recipe:
    """Gated embedding as the first layer of a small forecaster with dense MLPs."""
    width = options.width or 128
    config: dict[str, Any] = {
        "model_type": "time_moe",
        "architectures": ["TimeMoeForPrediction"],
        "input_size": 1,
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": options.layers or 2,
        "num_attention_heads": 4,
        "horizon_lengths": [1, 8],
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "use_dense": True,
    }

    def batches(step: int, held_out: bool) -> Batch:
        return {"values": windows(options.seed, step, held_out, batch_size, TIME_MOE_WINDOW)}

    return Recipe(
        TimeMoe(config),
        batches,
        DATA,
        "Huber loss of the next 1 and 8 values, in standard deviations",
        (
            ("embedding", f"swish(w x) · v x per value, d_model {width}, β = 1, as published (384 there)"),
            ("layers", f"{config['num_hidden_layers']} causal layers with dense MLPs: no experts, no router"),
        ),
        save=lambda module, folder: write_module(module, config, folder),
    )


def totem(options: ProxyOptions, batch_size: int) -> Recipe:
    """VQ-VAE at its published size; its codes start at latent vectors of other windows."""
    config: dict[str, Any] = {"model_type": "totem", "architectures": ["Totem"], "decay": DECAY}
    if options.width is not None:
        config["d_model"] = options.width
    if options.layers is not None:
        config["residual_layers"] = options.layers
    module = Totem(config)
    config = {**config, **module.config}
    with torch.no_grad():
        latent = module.encode(windows(options.seed, 2**31 - 1, False, 256, TOTEM_WINDOW)).flatten(0, 1)
    module.quantiser.start_from(latent)

    def batches(step: int, held_out: bool) -> Batch:
        return {"values": windows(options.seed, step, held_out, batch_size, TOTEM_WINDOW)}

    return Recipe(
        module,
        batches,
        DATA,
        "squared error of the rebuilt window + 0.25 × commitment loss",
        (
            (
                "codebook",
                f"{config['codes']} × {config['d_model']}, one code per {config['compression']} values; codes are "
                f"moving averages of their latents (decay {DECAY}) and start at latents; the paper's learn by a loss",
            ),
            ("encoder", f"{config['hidden']} channels, {config['residual_layers']} residual blocks, as published"),
        ),
        save=lambda model, folder: write_module(model, config, folder),
    )


def wavetoken(options: ProxyOptions, batch_size: int) -> Recipe:
    """Vocabulary of wavelet coefficients as the embedding of a small T5."""
    from transformers import T5Config, T5ForConditionalGeneration

    tokens = WaveletTokens()
    width, layers = options.width or 128, options.layers or 2
    settings: dict[str, Any] = {
        "architectures": ["T5ForConditionalGeneration"],
        "d_model": width,
        "d_kv": 16,
        "d_ff": width,
        "num_heads": 4,
        "num_layers": layers,
        "num_decoder_layers": layers,
        "vocab_size": tokens.n_tokens,
        "feed_forward_proj": "relu",
        "dropout_rate": 0.0,
        "initializer_factor": 0.05,
        "pad_token_id": PAD,
        "eos_token_id": END,
        "decoder_start_token_id": PAD,
        "wavetoken": {**asdict(tokens), "context_length": 512, "prediction_length": HORIZON},
    }
    return Recipe(
        T5ForConditionalGeneration(T5Config(**settings)),
        _coefficients(options.seed, batch_size, tokens),
        DATA,
        f"cross-entropy of the {HORIZON} coefficients of the next {HORIZON} values",
        (
            (
                "tokens",
                f"{tokens.n_tokens}: 2 special, uniform bins on ±{tokens.limit:g} for the coefficients of "
                f"{tokens.wavelet}, level {tokens.level}; no threshold",
            ),
            ("layers", f"a T5 of {layers} + {layers} layers, d_model {width}, 4 heads of 16"),
        ),
    )


def _coefficients(seed: int, batch_size: int, tokens: WaveletTokens) -> Batches:
    """Batches of a window's past as input and its future as labels, both in the past's units."""

    def ids(part: Tensor) -> Tensor:
        rows = torch.from_numpy(np.stack([tokens.encode(row) for row in part.double().numpy()]))
        return torch.cat([rows, torch.full((len(rows), 1), END)], 1)

    def batches(step: int, held_out: bool) -> Batch:
        x = windows(seed, step, held_out, batch_size, PAST + HORIZON)
        past = x[:, :PAST]
        spread = past.std(1, correction=0, keepdim=True)
        x = (x - past.mean(1, keepdim=True)) / torch.where(spread > 1e-3, spread, 1.0)
        return {"input_ids": ids(x[:, :PAST]), "labels": ids(x[:, PAST:])}

    return batches
