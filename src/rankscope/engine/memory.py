"""Memory of long work: large tensors wait in files, and what is free goes back to the system between phases."""

from __future__ import annotations

import ctypes
import sys
import tempfile
import weakref
from collections.abc import Iterator

import torch
from torch import Tensor

LEAST = 4 * 2**20
"""Bytes from which a tensor goes to a file."""
_DONTNEED = 4  # MADV_DONTNEED of Linux
_files: weakref.WeakValueDictionary[int, Tensor] = weakref.WeakValueDictionary()
"""Tensors that lie in files and are alive, by `id`."""


def on_disk(tensor: Tensor) -> Tensor:
    """The same numbers, mapped from an unnamed file in the folder for temporary files if they take `LEAST` bytes.

    The system reads them when they are used and may drop them again. Only Linux has what this takes; elsewhere, on
    other devices and where that folder is full or nothing can be mapped, the tensor is returned as it is.
    """
    if sys.platform != "linux" or tensor.device.type != "cpu" or tensor.nbytes < LEAST:
        return tensor
    numbers = tensor.detach().contiguous().view(-1)
    try:
        with tempfile.TemporaryFile() as file:
            file.write(numbers.view(torch.uint8).numpy().data)  # a full disk is an error here; in a mapping it kills
            file.flush()
            name = f"/proc/self/fd/{file.fileno()}"
            mapped = torch.from_file(name, shared=True, size=len(numbers), dtype=tensor.dtype).view(tensor.shape)
    except (OSError, RuntimeError):  # the second is torch's, where it cannot map
        return tensor
    _files[id(mapped)] = mapped
    return mapped


def unload(*tensors: Tensor) -> None:
    """Drop the pages of tensors that `on_disk` returned; they are read again when they are used. Others stay."""
    for tensor in tensors:
        if _files.get(id(tensor)) is tensor:
            _libc().madvise(ctypes.c_void_p(tensor.data_ptr()), ctypes.c_size_t(tensor.nbytes), _DONTNEED)


def give_back() -> None:
    """Return freed memory to the system, which glibc keeps, and drop the pages of all tensors that lie in files."""
    if sys.platform != "linux":
        return
    unload(*(tensor for one in _files.valuerefs() if (tensor := one()) is not None))
    if hasattr(_libc(), "malloc_trim"):
        _libc().malloc_trim(ctypes.c_size_t(0))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


class Spool:
    """Tensors that differ in their first axis alone, to be read again in the order in which they came.

    They wait in memory until they take `LEAST` bytes together, then in a file.
    """

    def __init__(self) -> None:
        self._files: list[tuple[Tensor, list[int]]] = []
        self._waiting: list[Tensor] = []

    def append(self, tensor: Tensor) -> None:
        """Add one."""
        self._waiting.append(tensor)
        if sum(one.nbytes for one in self._waiting) >= LEAST:
            self._files.append((on_disk(torch.cat(self._waiting)), [len(one) for one in self._waiting]))
            self._waiting = []

    def __iter__(self) -> Iterator[Tensor]:
        for together, lengths in self._files:
            yield from together.split(lengths)
            unload(together)
        yield from self._waiting
