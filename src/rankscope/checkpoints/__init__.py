"""Checkpoints: from a hub id, a local folder or a bundled name to tensors, one at a time."""

from __future__ import annotations

from rankscope.checkpoints._checkpoint import Checkpoint, Description, describe, open_checkpoint
from rankscope.checkpoints._safetensors import TensorInfo
from rankscope.checkpoints._sources import list_bundled, list_packaged
from rankscope.checkpoints._validation import expected_shapes, factored_ranks

__all__ = [
    "Checkpoint",
    "Description",
    "TensorInfo",
    "describe",
    "expected_shapes",
    "factored_ranks",
    "list_bundled",
    "list_packaged",
    "open_checkpoint",
]
