"""Buffers that a thread keeps from one matrix to the next."""

from __future__ import annotations

import threading

import torch
from torch import Tensor


class Workspace(threading.local):
    """Named float tensors, one set per thread, allocated again only when the shape or device changes.

    Allocators return blocks of several MB to the system at once, and touching them afresh costs page faults
    worth a third of a matrix product of that size.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def take(
        self, name: str, shape: tuple[int, ...], device: torch.device, dtype: torch.dtype = torch.float64
    ) -> Tensor:
        """The buffer called ``name``, with whatever it held before."""
        held = self._buffers.get(name)
        if held is None or held.shape != shape or held.device != device or held.dtype != dtype:
            held = torch.empty(shape, dtype=dtype, device=device)
            self._buffers[name] = held
        return held
