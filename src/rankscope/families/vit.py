"""ViT: an encoder over square patches of an image, embedded by one matrix; the contrast to series."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.errors import DataError
from rankscope.families.layers import bert_layers, layers_at, matrix_shapes
from rankscope.families.loading import output_of, without_head
from rankscope.families.record import Config, Family, Shapes, has_type, positive
from rankscope.families.sites import Site

NAMES = {"q": "attention.query", "k": "attention.key", "v": "attention.value", "o": "output.dense"}
_PATCHES = "embeddings.patch_embeddings.projection.weight"


def sites(config: Config) -> tuple[Site, ...]:
    """Patch embedding, then the layers."""
    return (Site(_PATCHES, "encoder", None, "patch_in"), *bert_layers(config, NAMES))


def patch_size(config: Config) -> int:
    """Pixels per side of a patch, times itself, times the channels: numbers per token."""
    return positive(config, "patch_size", 16) ** 2 * positive(config, "num_channels", 3)


def expected_shapes(config: Config) -> Shapes:
    """Every attention, MLP and embedding matrix; the latter is stored as a convolution."""
    d_model, side = positive(config, "hidden_size"), positive(config, "patch_size", 16)
    return {
        _PATCHES: (d_model, positive(config, "num_channels", 3), side, side),
        **matrix_shapes(bert_layers(config, NAMES), d_model, positive(config, "intermediate_size")),
    }


def model_inputs(module: Any, series: Tensor) -> dict[str, Tensor]:
    """Images (axes images, 3, size, size; values from 0 to 1), scaled to the model's size and to −1 … 1.

    Raises:
        DataError: other axes, or values outside 0 … 1.
    """
    channels, size = int(module.config.num_channels), module.config.image_size
    if series.ndim != 4 or series.shape[1] != channels or series.numel() == 0:
        raise DataError(
            f"an image model reads images with axes (images, {channels}, size, size), found {tuple(series.shape)}; "
            "see rankscope.series.images."
        )
    low, high = series.aminmax()
    if not (low >= 0 and high <= 1):
        raise DataError(f"images must have values from 0 to 1, found {low:g}…{high:g}: divide bytes by 255.")
    target = (size, size) if isinstance(size, int) else tuple(size)
    pixels = series.float()
    if tuple(pixels.shape[-2:]) != target:
        pixels = torch.nn.functional.interpolate(pixels, size=target, mode="bilinear", antialias=True)
    return {"pixel_values": ((pixels - 0.5) / 0.5).to(module.device, module.dtype)}


def embed(module: Any, series: Tensor) -> Float[Tensor, "tokens d_model"]:
    """Embed every patch of a corpus of images; positions and the class token are not added."""
    patches = output_of(module, module.embeddings.patch_embeddings, model_inputs(module, series))
    return patches.flatten(0, 1)


FAMILY = Family(
    name="vit",
    title="ViT",
    strategy="continuous",
    matches=has_type("vit"),
    sites=sites,
    patch_size=patch_size,
    expected_shapes=expected_shapes,
    build=without_head("ViTModel", add_pooling_layer=False),
    embed=embed,
    model_inputs=model_inputs,
    blocks=lambda module: {"encoder": layers_at(module, "encoder.layer", "layers", "encoder.layers")},
    modality="image",
    prefixes=("vit.",),
    published_patch=16 * 16 * 3,
    hub_ids=("google/vit-base-patch16-224",),
    stand_in="bundled-vit",
    proxy=True,
)
