"""Random-weight checkpoints in published shapes, dense or low rank, for time and memory measurements only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SIZES = {
    "tiny": {"d_model": 256, "d_ff": 1024, "num_layers": 4, "num_heads": 4},
    "mini": {"d_model": 384, "d_ff": 1536, "num_layers": 4, "num_heads": 8},
    "small": {"d_model": 512, "d_ff": 2048, "num_layers": 6, "num_heads": 8},
    "base": {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
    "large": {"d_model": 1024, "d_ff": 4096, "num_layers": 24, "num_heads": 16},
}
"""Shapes of the published Chronos-T5 and Chronos-Bolt checkpoints (which have no large Bolt); heads are 64 wide."""
D_KV, CONTEXT, HORIZON, PATCH = 64, 512, 64, 16
LAYOUTS = ("dense", "head-width", "factored")


def write_shape(
    folder: Path,
    family: str,
    size: str,
    layout: str = "dense",
    ratio: float = 1.0,
    *,
    layers: int | None = None,
    context: int = CONTEXT,
    horizon: int = HORIZON,
) -> Path:
    """Write a random-weight checkpoint.

    Args:
        folder: output folder.
        family: ``chronos-t5`` or ``chronos-bolt``.
        size: a key of `SIZES`.
        layout: ``dense``, ``head-width`` or ``factored``.
        ratio: fraction of parameters kept in every attention matrix.
        layers: layers per stack (default: published).
        context: maximum context length.
        horizon: prediction length of one pass.
    """
    import torch

    from rankscope.train import ModelShape, PretrainConfig
    from rankscope.train.models import new_model
    from rankscope.train.rank_schedule import RankDesign

    numbers: dict[str, Any] = dict(SIZES[size])
    depth = layers or numbers.pop("num_layers")
    numbers["num_layers"] = depth
    design = None
    if layout == "head-width":
        design = RankDesign(max(1, round(ratio * D_KV)), 0.0)
    elif layout == "factored":
        d_in, d_out = numbers["d_model"], numbers["num_heads"] * D_KV
        rank = max(1, round(ratio * d_in * d_out / (d_in + d_out)))
        design = RankDesign(rank, 0.0, layout="factored", sketch="shared")
    shape = ModelShape(**numbers, d_kv=D_KV, num_decoder_layers=depth, patch_size=PATCH, n_tokens=4096)
    torch.manual_seed(0)
    config = PretrainConfig(family=family, model=shape, low_rank=design, context=context, horizon=horizon)
    new_model(config).save_pretrained(folder)
    return folder
