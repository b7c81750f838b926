"""Informer and Autoformer: encoder-decoders whose tokens are single observations with their lags."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.errors import CheckpointError
from rankscope.families.layers import attention, equal_heads, layers_at, matrix_shapes
from rankscope.families.loading import output_of, without_head
from rankscope.families.record import Config, Family, Shapes, has_type, positive
from rankscope.families.series import fixed_length
from rankscope.families.sites import Site, Stack

_STACKS: tuple[Stack, ...] = ("encoder", "decoder")
_LAGS = [1, 2, 3, 4, 5, 6, 7]


def sites(config: Config) -> tuple[Site, ...]:
    """Per stack the embedding of observations, then the layers."""
    return tuple(_sites(config))


def _sites(config: Config) -> Iterator[Site]:
    d_model = positive(config, "d_model")
    for stack in _STACKS:
        yield Site(f"{stack}.value_embedding.value_projection.weight", stack, None, "patch_in")
        split = equal_heads(config, d_model, f"{stack}_attention_heads")
        for layer in range(positive(config, f"{stack}_layers")):
            block = f"{stack}.layers.{layer}"
            yield from attention(f"{block}.self_attn", stack, layer, split)
            if stack == "decoder":
                yield from attention(f"{block}.encoder_attn", stack, layer, split, "cross")
            yield Site(f"{block}.fc1.weight", stack, layer, "mlp_in")
            yield Site(f"{block}.fc2.weight", stack, layer, "mlp_out")


def lags(config: Config) -> list[int]:
    """Lags that come with every observation.

    Raises:
        CheckpointError: the config lists none.
    """
    found = config.get("lags_sequence", _LAGS)
    if not isinstance(found, list) or not found or not all(type(lag) is int and lag >= 0 for lag in found):
        raise CheckpointError(
            f"config.json: lags_sequence must list whole numbers ≥ 0, found {found!r}; "
            f"use the config.json that was saved with the weights."
        )
    return found


def features(config: Config) -> int:
    """Numbers that are embedded with an observation: lags, covariates, and level and scale of the series.

    Raises:
        CheckpointError: a field that counts them is not a whole number.
    """
    if isinstance(config.get("feature_size"), int):
        return positive(config, "feature_size")
    names = ("num_time_features", "num_dynamic_real_features", "num_static_real_features")
    dimensions = config.get("embedding_dimension") or []
    numbers = {name: config.get(name) or 0 for name in names}
    if not isinstance(dimensions, list) or not all(type(one) is int and one >= 0 for one in dimensions):
        raise CheckpointError(
            f"config.json: embedding_dimension must list whole numbers ≥ 0, found {dimensions!r}; "
            f"use the config.json that was saved with the weights."
        )
    for name, number in numbers.items():
        if type(number) is not int or number < 0:
            raise CheckpointError(
                f"config.json: {name} must be a whole number ≥ 0, found {number!r}; "
                f"use the config.json that was saved with the weights."
            )
    channels = positive(config, "input_size", 1)
    return channels * (len(lags(config)) + 2) + sum(dimensions) + sum(numbers.values())


def expected_shapes(config: Config) -> Shapes:
    """Every attention, MLP and embedding matrix."""
    d_model, found = positive(config, "d_model"), sites(config)
    shapes: Shapes = {}
    for stack in _STACKS:
        shapes[f"{stack}.value_embedding.value_projection.weight"] = (d_model, features(config))
        mine = tuple(site for site in found if site.stack == stack)
        shapes |= matrix_shapes(mine, d_model, positive(config, f"{stack}_ffn_dim"))
    return shapes


def model_inputs(module: Any, series: Tensor) -> dict[str, Tensor]:
    """Series (axes series, time): context and lags for the encoder, the last observations for the decoder.

    The only covariate is the age of an observation; the others are 0, and a model of several channels reads a copy in
    each.
    """
    config = module.config
    horizon = int(config.prediction_length)
    past = int(config.context_length) + max(config.lags_sequence)
    values, observed = fixed_length(series, past + horizon)
    count, channels = len(values), int(config.input_size)
    if channels > 1:
        values, observed = (x[..., None].expand(-1, -1, channels) for x in (values, observed))
    features = torch.zeros(count, past + horizon, config.num_time_features + config.num_dynamic_real_features)
    features[..., : config.num_time_features] = torch.arange(2.0, past + horizon + 2).log10()[None, :, None]
    inputs = {
        "past_values": values[:, :past],
        "past_time_features": features[:, :past],
        "past_observed_mask": observed[:, :past].float(),
        "future_values": values[:, past:],
        "future_time_features": features[:, past:],
    }
    if config.num_static_categorical_features:
        inputs["static_categorical_features"] = torch.zeros(count, config.num_static_categorical_features).long()
    if config.num_static_real_features:
        inputs["static_real_features"] = torch.zeros(count, config.num_static_real_features)
    return {name: x.to(module.device) for name, x in inputs.items()}


def embed(module: Any, series: Tensor) -> Float[Tensor, "tokens d_model"]:
    """Embed every observation of the context with its lags and covariates; positions are not added."""
    inputs = model_inputs(module, series)
    embedded = output_of(module, module.encoder.value_embedding, inputs)
    observed = inputs["past_observed_mask"][:, -int(module.config.context_length) :] > 0
    return embedded[observed if observed.ndim == 2 else observed[..., 0]]


def context(config: Config) -> int:
    """Observations that encoder and decoder read."""
    horizon = positive(config, "prediction_length")
    return positive(config, "context_length", horizon) + max(lags(config)) + horizon


def blocks(module: Any) -> dict[str, list[nn.Module]]:
    """Layers of both stacks."""
    return {stack: layers_at(module, f"{stack}.layers") for stack in _STACKS}


FAMILY = Family(
    name="informer",
    title="Informer",
    strategy="continuous",
    matches=has_type("informer"),
    sites=sites,
    expected_shapes=expected_shapes,
    build=without_head("InformerModel"),
    embed=embed,
    model_inputs=model_inputs,
    context=context,
    blocks=blocks,
    prefixes=("model.",),
    published_patch=1,
    hub_ids=("huggingface/informer-tourism-monthly",),
    stand_in="bundled-informer",
    proxy=True,
)


AUTOFORMER = replace(
    FAMILY,
    name="autoformer",
    title="Autoformer",
    matches=has_type("autoformer"),
    build=without_head("AutoformerModel"),
    hub_ids=("huggingface/autoformer-tourism-monthly",),
    stand_in="bundled-autoformer",
)
"""Informer's layout, with trends taken out layer by layer and autocorrelation in place of attention."""
