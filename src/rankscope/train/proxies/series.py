"""Proxy models that forecast series, in transformers' own classes and with their own losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.train.data.mixture import Mixture, corpus_batch
from rankscope.train.proxies.recipe import Batch, Batches, ProxyOptions, Recipe

_LEARNT, _HELD = 51, 53
_LARGEST = 10.0
"""Futures are cut at so many deviations of the history from its mean: one far off would outweigh a batch."""
_MIXTURE = Mixture(kernel_share=0.0, short_share=0.0, missing_share=0.0, seasonal_share=0.25)
_DATA = (
    "generated on the fly: structured series (trend, seasonalities, noise, level, accidents), 15% TSMixup, 25% plain "
    "seasonal series; every history has mean 0 and standard deviation 1; no real series"
)


def series_batch(
    options: ProxyOptions, n: int, context: int, horizon: int, step: int, held_out: bool
) -> tuple[Float[Tensor, "series context"], Float[Tensor, "series horizon"]]:
    """Histories and futures, standardised by their histories."""
    rng = np.random.default_rng([options.seed, _HELD if held_out else _LEARNT, step])
    history, future = corpus_batch(rng, n, context, horizon, _MIXTURE, None)
    mean, spread = history.mean(1, keepdims=True), history.std(1, keepdims=True)
    spread = np.where(spread > 1e-6 * np.abs(mean) + 1e-12, spread, 1.0)
    past, ahead = (history - mean) / spread, np.clip((future - mean) / spread, -_LARGEST, _LARGEST)
    return torch.from_numpy(past), torch.from_numpy(ahead.astype(np.float32))


def timesfm(options: ProxyOptions, batch_size: int) -> Recipe:
    """TimesFM at the published patch size and horizon."""
    from transformers import TimesFmConfig, TimesFmModelForPrediction

    classes = TimesFmConfig, TimesFmModelForPrediction
    return _timesfm(options, batch_size, *classes, lambda past: {"freq": [0] * len(past)}, horizon_length=128)


def timesfm2_5(options: ProxyOptions, batch_size: int) -> Recipe:
    """TimesFM 2.5 at the published patch size."""
    from transformers import TimesFm2_5Config, TimesFm2_5ModelForPrediction

    sizes = {"horizon_length": 64, "output_quantile_len": 64, "num_key_value_heads": 4}
    return _timesfm(options, batch_size, TimesFm2_5Config, TimesFm2_5ModelForPrediction, lambda past: {}, **sizes)


def patchtst(options: ProxyOptions, batch_size: int) -> Recipe:
    """PatchTST with a linear head over all patches."""
    from transformers import PatchTSTConfig, PatchTSTForPrediction

    width, layers = options.width or 96, options.layers or 3
    config = PatchTSTConfig(
        num_input_channels=1,
        context_length=512,
        patch_length=16,
        patch_stride=16,
        prediction_length=64,
        d_model=width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        ffn_dim=2 * width,
        pooling_type=None,
    )
    batches = _batches(options, batch_size, 512, 64, lambda past: {}, channels=True)
    return _recipe(PatchTSTForPrediction(config), batches, width, layers, 16, (512, 64), "squared error")


def patchtsmixer(options: ProxyOptions, batch_size: int) -> Recipe:
    """PatchTSMixer without attention, as published."""
    from transformers import PatchTSMixerConfig, PatchTSMixerForPrediction

    width, layers = options.width or 64, options.layers or 4
    config = PatchTSMixerConfig(
        num_input_channels=1,
        context_length=512,
        patch_length=8,
        patch_stride=8,
        prediction_length=64,
        d_model=width,
        num_layers=layers,
        expansion_factor=2,
        dropout=0.0,
        head_dropout=0.0,
    )
    batches = _batches(options, batch_size, 512, 64, lambda past: {}, channels=True)
    return _recipe(PatchTSMixerForPrediction(config), batches, width, layers, 8, (512, 64), "squared error", heads=None)


def informer(options: ProxyOptions, batch_size: int) -> Recipe:
    """Informer over single observations with seven lags."""
    from transformers import InformerConfig, InformerForPrediction

    return _with_lags(options, batch_size, InformerConfig, InformerForPrediction)


def autoformer(options: ProxyOptions, batch_size: int) -> Recipe:
    """Autoformer over single observations with seven lags."""
    from transformers import AutoformerConfig, AutoformerForPrediction

    return _with_lags(options, batch_size, AutoformerConfig, AutoformerForPrediction)


def _timesfm(
    options: ProxyOptions,
    batch_size: int,
    config_class: Any,
    model_class: Any,
    further: Callable[[Tensor], dict[str, Any]],
    **sizes: int,
) -> Recipe:
    width, layers, context, horizon = options.width or 96, options.layers or 3, 512, sizes["horizon_length"]
    config = config_class(
        hidden_size=width,
        intermediate_size=width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        head_dim=width // 4,
        patch_length=32,
        context_length=context,
        **sizes,
    )
    batches = _batches(options, batch_size, context, horizon, further, listed=True)
    return _recipe(model_class(config), batches, width, layers, 32, (context, horizon), "squared error + quantiles")


def _with_lags(options: ProxyOptions, batch_size: int, config_class: Any, model_class: Any) -> Recipe:
    width, layers, context, horizon = options.width or 64, options.layers or 2, 96, 48
    config = config_class(
        prediction_length=horizon,
        context_length=context,
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=2 * width,
        decoder_ffn_dim=2 * width,
        num_time_features=1,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        encoder_layerdrop=0.0,
        decoder_layerdrop=0.0,
        scaling="std" if config_class.__name__ == "InformerConfig" else True,
    )
    past_length = context + max(config.lags_sequence)
    age = torch.arange(2.0, past_length + horizon + 2).log10()[None, :, None]

    def covariates(past: Tensor) -> Batch:
        ages = age.expand(len(past), -1, -1)
        return {
            "past_time_features": ages[:, :past_length],
            "past_observed_mask": torch.ones_like(past),
            "future_time_features": ages[:, past_length:],
        }

    batches = _batches(options, batch_size, past_length, horizon, covariates)
    loss = "negative log-likelihood of a Student t"
    return _recipe(model_class(config), batches, width, layers, 1, (context, horizon), loss, both=True)


def _batches(
    options: ProxyOptions,
    batch_size: int,
    context: int,
    horizon: int,
    further: Callable[[Tensor], dict[str, Any]],
    *,
    listed: bool = False,
    channels: bool = False,
) -> Batches:
    """Batches in the words of transformers; ``channels`` adds an axis of one channel, ``listed`` makes a list."""

    def batch(step: int, held_out: bool) -> dict[str, Any]:
        past, future = series_batch(options, batch_size, context, horizon, step, held_out)
        if channels:
            past, future = past[..., None], future[..., None]
        return {"past_values": list(past) if listed else past, "future_values": future, **further(past)}

    return batch


def _recipe(
    model: nn.Module,
    batches: Batches,
    width: int,
    layers: int,
    patch: int,
    lengths: tuple[int, int],
    loss: str,
    *,
    heads: int | None = 4,
    both: bool = False,
) -> Recipe:
    split = f", {heads} heads" if heads else ", no attention"
    notes = (
        ("width, heads, layers", f"{width}{split}, {f'{layers} + {layers}' if both else layers} layers"),
        ("patch size", str(patch)),
        ("context, horizon", f"{lengths[0]}, {lengths[1]}"),
    )
    return Recipe(model, batches, _DATA, loss, notes)
