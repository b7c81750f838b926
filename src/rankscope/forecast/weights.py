"""Weights in memory of their own: what a loader maps from a file stays resident as long as one tensor refers to it."""

from __future__ import annotations

from itertools import chain

from torch import nn

from rankscope.checkpoints import Checkpoint


def own_weights(module: nn.Module, checkpoint: Checkpoint) -> None:
    """Replace the tensors of a module, which may be parts of a mapped file, by ones that were read into own memory.

    A map is dropped with the last of them. Nothing of it is touched, so no weight is in memory twice, not even when
    the runtime lays several together.

    Args:
        module: loaded from the checkpoint, on a CPU.
        checkpoint: its files.
    """
    for name, tensor in chain(module.named_parameters(), module.named_buffers()):
        info, kind = checkpoint.index.get(name), (tensor.dtype, tuple(tensor.shape))
        if info is not None and tensor.device.type == "cpu" and kind == (info.dtype, info.shape):
            tensor.data = checkpoint.raw(name)
