"""Random-weight checkpoints in published shapes, dense or with narrow heads, for time and memory measurements only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankscope.train.rank_schedule import RankDesign

SIZES = {
    "tiny": {"d_model": 256, "d_ff": 1024, "num_layers": 4, "num_heads": 4},
    "mini": {"d_model": 384, "d_ff": 1536, "num_layers": 4, "num_heads": 8},
    "small": {"d_model": 512, "d_ff": 2048, "num_layers": 6, "num_heads": 8},
    "base": {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
    "large": {"d_model": 1024, "d_ff": 4096, "num_layers": 24, "num_heads": 16},
}
"""Shapes of the published Chronos-T5 and Chronos-Bolt checkpoints (which have no large Bolt); heads are 64 wide."""
D_KV, CONTEXT, HORIZON, PATCH = 64, 512, 64, 16


def write_shape(
    folder: Path,
    family: str,
    size: str,
    *,
    design: RankDesign | None = None,
    layers: int | None = None,
    context: int = CONTEXT,
    horizon: int = HORIZON,
) -> Path:
    """Write a random-weight checkpoint.

    Args:
        folder: output folder.
        family: ``chronos-t5`` or ``chronos-bolt``.
        size: a key of `SIZES`.
        design: widths of the heads (default: full).
        layers: layers per stack (default: published).
        context: maximum context length.
        horizon: prediction length of one pass.
    """
    import torch

    from rankscope.train import ModelShape, PretrainConfig
    from rankscope.train.models import new_model

    numbers: dict[str, Any] = dict(SIZES[size])
    depth = layers or numbers.pop("num_layers")
    numbers["num_layers"] = depth
    shape = ModelShape(**numbers, d_kv=D_KV, num_decoder_layers=depth, patch_size=PATCH, n_tokens=4096)
    torch.manual_seed(0)
    config = PretrainConfig(family=family, model=shape, low_rank=design, context=context, horizon=horizon)
    new_model(config).save_pretrained(folder)
    return folder
