"""Machine description, matmul precision and memory settings of a run."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import platform
import sys
from collections.abc import Iterator

import torch

from rankscope.engine.pool import available_cores


def describe(device: str | torch.device, *notes: str) -> str:
    """Name the GPU, or the processor and how many of its cores a run had, and torch's version.

    Args:
        device: of the run.
        notes: what else the times of a run depend on; empty ones are left out.
    """
    where = torch.device(device)
    if where.type == "cuda":
        parts = [torch.cuda.get_device_name(where)]
    else:
        parts = [platform.machine(), f"{torch.get_num_threads()} of {available_cores()} threads"]
    return ", ".join((*parts, f"torch {torch.__version__}", *filter(None, notes)))


FLOAT32, BFLOAT16 = "float32", "bfloat16"
PRECISIONS = (FLOAT32, BFLOAT16)
"""bfloat16: factors of matrix products are rounded; sums, weights and losses stay in float32."""


@contextlib.contextmanager
def products(device: str | torch.device, precision: str) -> Iterator[None]:
    """Compute matrix products in one of `PRECISIONS`; forward and backward passes belong inside.

    On a GPU this is autocast. On a CPU tensors stay in float32 and oneDNN rounds what it multiplies, which needs no
    second copy of anything; on processors where it does not (those without AMX), it is autocast, too.
    """
    kind = torch.device(device).type
    if precision == FLOAT32:
        yield
    elif kind == "cpu" and rounding_products():
        with _medium():
            yield
    else:
        with torch.autocast(kind, torch.bfloat16):
            yield


@functools.cache
def rounding_products() -> bool:
    """Return True if oneDNN rounds float32 factors to bfloat16 where it may; seen in a product, not asked for.

    Processors with bfloat16 instructions but without AMX say that they support it, and multiply in float32.
    """
    factor = torch.full((64, 64), 1 + 2**-12)  # rounds to 1
    with torch.no_grad(), _medium():
        return bool(((factor @ factor) == 64).all())


@contextlib.contextmanager
def _medium() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def keep_memory() -> None:
    """Configure glibc's allocator to keep large blocks, avoiding page faults."""
    if not sys.platform.startswith("linux"):
        return
    trim, mapped = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(mapped, 1 << 30)
        libc.mallopt(trim, (1 << 31) - 1)
