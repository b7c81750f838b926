"""Autoformer: Informer's layout, with trends taken out layer by layer and autocorrelation in place of attention."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from rankscope.families import informer
from rankscope.families._loading import load_part
from rankscope.families._record import Config


def matches(config: Config) -> bool:
    """Whether the config is an Autoformer."""
    return config.get("model_type") == "autoformer"


def build(folder: Path, dtype: torch.dtype) -> nn.Module:
    """Load AutoformerModel, without the head."""
    from transformers import AutoformerModel

    return load_part(folder, AutoformerModel, dtype)


FAMILY = replace(
    informer.FAMILY,
    name="autoformer",
    title="Autoformer",
    matches=matches,
    build=build,
    hub_ids=("huggingface/autoformer-tourism-monthly",),
    stand_in="bundled-autoformer",
)
