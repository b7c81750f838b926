"""PatchTSMixer: MLPs that mix features, patches and channels; attention over patches where the config asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jaxtyping import Float
from torch import Tensor

from rankscope.families.layers import attention, equal_heads, layers_at, matrix_shapes
from rankscope.families.loading import output_of, without_head
from rankscope.families.record import Config, Family, Shapes, has_type, positive
from rankscope.families.series import channel_copies
from rankscope.families.sites import Site

_PARTS = {"mlp.fc1": "mlp_in", "gating_block.attn_layer": "mlp_gate", "mlp.fc2": "mlp_out"}


def sites(config: Config) -> tuple[Site, ...]:
    """Patch embedding, then per layer the MLPs over channels, patches and features."""
    return (Site("encoder.patcher.weight", "encoder", None, "patch_in"), *_layer_sites(config))


def _layer_sites(config: Config) -> Iterator[Site]:
    for layer in range(positive(config, "num_layers")):
        block = f"encoder.mlp_mixer_encoder.mixers.{layer}"
        for mixer, kind in _mixers(config).items():
            for name, role in _PARTS.items():
                if role != "mlp_gate" or config.get("gated_attn", True):
                    yield Site(f"{block}.{mixer}.{name}.weight", "encoder", layer, f"{kind}{role}")
            if mixer == "patch_mixer" and config.get("self_attn"):
                split = equal_heads(config, positive(config, "d_model"), "self_attn_heads")
                yield from attention(f"{block}.{mixer}.self_attn_layer", "encoder", layer, split)


def _mixers(config: Config) -> dict[str, str]:
    """Mixers of a layer in the order of computation, and what their roles begin with."""
    channels = {"channel_feature_mixer": "channel_"} if config.get("mode") == "mix_channel" else {}
    return {**channels, "patch_mixer": "patch_", "feature_mixer": ""}


def patch_size(config: Config) -> int:
    """Observations per patch."""
    return positive(config, "patch_length", 8)


def patches(config: Config) -> int:
    """Patches of a context."""
    length, size = positive(config, "context_length", 32), patch_size(config)
    return (max(length, size) - size) // positive(config, "patch_stride", 8) + 1


def expected_shapes(config: Config) -> Shapes:
    """Every MLP and embedding matrix, and those of attention where there is one."""
    d_model, factor = positive(config, "d_model", 8), positive(config, "expansion_factor", 2)
    widths = {
        "": d_model,
        "patch_": patches(config),
        "channel_": positive(config, "num_input_channels", 1),
    }
    found = tuple(_layer_sites(config))
    shapes: Shapes = {"encoder.patcher.weight": (d_model, patch_size(config))}
    shapes |= matrix_shapes(tuple(site for site in found if site.kind == "attention"), d_model, d_model)
    for site in found:
        if site.kind == "mlp":
            kind, _, part = site.role.rpartition("mlp_")
            width = widths[kind]
            inner = width if part == "gate" else factor * width
            shapes[site.name] = (width, inner) if part == "out" else (inner, width)
    return shapes


def model_inputs(module: Any, series: Tensor) -> dict[str, Tensor]:
    """Series (axes series, time) at the context's length; a model of several channels reads a copy in each."""
    past, mask = channel_copies(module, series)
    return {"past_values": past, "observed_mask": mask.to(module.dtype)}


def embed(module: Any, series: Tensor) -> Float[Tensor, "tokens d_model"]:
    """Embed every patch that holds an observation, of the first channel; positions are not added."""
    inputs = model_inputs(module, series)
    embedded = output_of(module, module.encoder.patcher, inputs)[:, 0]
    observed = module.patching(inputs["observed_mask"])[:, 0]
    return embedded[observed.sum(dim=-1) > 0]


FAMILY = Family(
    name="patchtsmixer",
    title="PatchTSMixer",
    strategy="continuous",
    matches=has_type("patchtsmixer"),
    sites=sites,
    patch_size=patch_size,
    expected_shapes=expected_shapes,
    build=without_head("PatchTSMixerModel"),
    embed=embed,
    model_inputs=model_inputs,
    context=lambda config: positive(config, "context_length"),
    blocks=lambda module: {"encoder": layers_at(module, "encoder.mlp_mixer_encoder.mixers")},
    prefixes=("model.",),
    published_patch=8,
    hub_ids=("ibm-granite/granite-timeseries-patchtsmixer",),
    stand_in="bundled-patchtsmixer",
    proxy=True,
)
