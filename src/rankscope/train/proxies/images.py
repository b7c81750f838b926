"""A stand-in that reads images: ViT, which tells the classes of generated images apart."""

from __future__ import annotations

from typing import Any

from rankscope.series.images import CLASSES, images
from rankscope.train.proxies.record import Batch, Recipe, StandInOptions

SIDE, PATCH = 32, 4
_STRIDE = 1_000_003
"""Seeds of batches are this far apart, times the run's seed, so that no two runs share images."""


def vit(options: StandInOptions, batch_size: int) -> Recipe:
    """ViT with a head for the classes of `rankscope.series.images.images`."""
    from transformers import ViTConfig, ViTForImageClassification

    width, layers = options.width or 96, options.layers or 4
    settings: dict[str, Any] = {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "intermediate_size": 2 * width,
        "image_size": SIDE,
        "patch_size": PATCH,
        "num_labels": len(CLASSES),
    }

    def batch(step: int, held_out: bool) -> Batch:
        seed = (options.seed * _STRIDE + step) * 2 + int(held_out)
        pixels, labels = images(batch_size, SIDE, seed)
        return {"pixel_values": (pixels - 0.5) / 0.5, "labels": labels}

    notes = (
        ("width, heads, layers", f"{width}, 4 × {width // 4}, {layers} layers, MLP {2 * width}"),
        ("images", f"{SIDE} × {SIDE} pixels in patches of {PATCH} × {PATCH}"),
    )
    data = f"generated images of {len(CLASSES)} classes ({', '.join(CLASSES)}); no photographs"
    return Recipe(
        ViTForImageClassification(ViTConfig(**settings)), batch, data, "cross entropy of the class, nats", notes
    )
