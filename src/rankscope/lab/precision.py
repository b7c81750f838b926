"""The number format of matrix products."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

FLOAT32, BFLOAT16 = "float32", "bfloat16"
PRECISIONS = (FLOAT32, BFLOAT16)
"""bfloat16: factors of matrix products are rounded; sums, weights and losses stay in float32."""


@contextlib.contextmanager
def products(device: str | torch.device, precision: str) -> Iterator[None]:
    """Compute matrix products in one of `PRECISIONS`; forward and backward passes belong inside.

    On a GPU this is autocast. On a CPU tensors stay in float32 and oneDNN rounds what it multiplies, which needs no
    second copy of anything; where the processor has no such products it is autocast, too.
    """
    kind = torch.device(device).type
    if precision == FLOAT32:
        yield
    elif kind == "cpu" and torch.ops.mkldnn._is_mkldnn_bf16_supported():
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("medium")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
    else:
        with torch.autocast(kind, torch.bfloat16):
            yield
