"""Checkpoints: from a hub id, a local folder or a bundled name to tensors, one at a time."""

from __future__ import annotations

from rankscope.checkpoints.checkpoint import Checkpoint, Description, describe, open_checkpoint
from rankscope.checkpoints.sources import list_bundled, list_packaged
from rankscope.checkpoints.tensors import TensorInfo
from rankscope.checkpoints.validation import expected_shapes

__all__ = [
    "Checkpoint",
    "Description",
    "TensorInfo",
    "describe",
    "expected_shapes",
    "list_bundled",
    "list_packaged",
    "open_checkpoint",
]
