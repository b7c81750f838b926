"""PatchTST: an encoder over patches of one channel, embedded by one matrix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jaxtyping import Float
from torch import Tensor

from rankscope.families.layers import attention, equal_heads, layers_at, matrix_shapes
from rankscope.families.loading import output_of, without_head
from rankscope.families.record import MOST_LAYERS, Config, Family, Shapes, has_type, positive
from rankscope.families.series import channel_copies
from rankscope.families.sites import Site


def sites(config: Config) -> tuple[Site, ...]:
    """Patch embeddings (one per channel where they are not shared), then the layers."""
    return (*_embedding_sites(config), *_layer_sites(config))


def _embedding_sites(config: Config) -> Iterator[Site]:
    embedder = "encoder.embedder.input_embedding"
    if config.get("share_embedding", True):
        yield Site(f"{embedder}.weight", "encoder", None, "patch_in")
        return
    for channel in range(positive(config, "num_input_channels", 1, most=MOST_LAYERS)):
        yield Site(f"{embedder}.{channel}.weight", "encoder", None, "patch_in")


def _layer_sites(config: Config) -> Iterator[Site]:
    split = equal_heads(config, positive(config, "d_model"))
    for layer in range(positive(config, "num_hidden_layers")):
        block = f"encoder.layers.{layer}"
        yield from attention(f"{block}.self_attn", "encoder", layer, split)
        yield Site(f"{block}.ff.0.weight", "encoder", layer, "mlp_in")
        yield Site(f"{block}.ff.3.weight", "encoder", layer, "mlp_out")


def patch_size(config: Config) -> int:
    """Observations per patch."""
    return positive(config, "patch_length", 1)


def expected_shapes(config: Config) -> Shapes:
    """Every attention, MLP and embedding matrix."""
    d_model, d_ff = positive(config, "d_model"), positive(config, "ffn_dim")
    return {
        **{site.name: (d_model, patch_size(config)) for site in _embedding_sites(config)},
        **matrix_shapes(tuple(_layer_sites(config)), d_model, d_ff),
    }


def model_inputs(module: Any, series: Tensor) -> dict[str, Tensor]:
    """Series (axes series, time) at the context's length; a model of several channels reads a copy in each."""
    past, mask = channel_copies(module, series)
    return {"past_values": past, "past_observed_mask": mask}


def embed(module: Any, series: Tensor) -> Float[Tensor, "tokens d_model"]:
    """Embed every patch that holds an observation, of the first channel; positions are not added."""
    inputs = model_inputs(module, series)
    embedded = output_of(module, module.encoder.embedder, inputs)[:, 0]
    observed = module.patchifier(inputs["past_observed_mask"].to(module.dtype))[:, 0]
    return embedded[observed.sum(dim=-1) > 0]


FAMILY = Family(
    name="patchtst",
    title="PatchTST",
    strategy="continuous",
    matches=has_type("patchtst"),
    sites=sites,
    patch_size=patch_size,
    expected_shapes=expected_shapes,
    build=without_head("PatchTSTModel", do_mask_input=False),  # pretraining saves True
    embed=embed,
    model_inputs=model_inputs,
    context=lambda config: positive(config, "context_length"),
    blocks=lambda module: {"encoder": layers_at(module, "encoder.layers")},
    prefixes=("model.",),
    published_patch=16,
    hub_ids=("ibm-granite/granite-timeseries-patchtst",),
    stand_in="bundled-patchtst",
    proxy=True,
)
