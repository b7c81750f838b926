"""Names of devices and number formats, as people type them, to what torch calls them."""

from __future__ import annotations

import contextlib
import os

import torch

from rankscope.choices import DTYPES, known_device
from rankscope.errors import OptionError, unknown_choice

_TORCH = {name: getattr(torch, name) for name in DTYPES}
_INSTRUCTIONS = {torch.bfloat16: ("avx512_bf16", "amx_tile"), torch.float16: ("amx_fp16",)}
"""Instructions of CPUs that multiply numbers of a half-precision format, any of which will do."""


def resolve_device(device: str | torch.device) -> str:
    """Return ``cpu`` or ``cuda`` (or ``cuda:N``); ``auto`` takes the GPU if torch sees one.

    >>> resolve_device("cpu")
    'cpu'

    Raises:
        OptionError: an unknown name, or a GPU where there is none.
    """
    device = known_device(str(device))
    kind, _, number = device.partition(":")
    if kind == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise OptionError(f"device {device!r} asks for a GPU that torch does not see: use device 'cpu' or 'auto'.")
    return device


def resolve_dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    """Return the torch dtype of a name; None stays None and means a default.

    >>> resolve_dtype("bfloat16")
    torch.bfloat16

    Raises:
        OptionError: an unknown or non-floating format.
    """
    if dtype is None:
        return None
    name = str(dtype).removeprefix("torch.")
    if name not in _TORCH:
        raise OptionError(unknown_choice("dtype", name, DTYPES))
    return _TORCH[name]


def computing_dtype(device: str, stored: torch.dtype) -> torch.dtype:
    """Return the format that a model computes in where none is asked for: as it is stored, or float32.

    A CPU without instructions for a half-precision format emulates it, and takes several times as long as in float32.
    The processor decides and no measurement, so that a machine always computes in the same format.

    >>> computing_dtype("cuda", torch.bfloat16), computing_dtype("cpu", torch.float32)
    (torch.bfloat16, torch.float32)

    Args:
        device: as `resolve_device` gives it.
        stored: format of the checkpoint.
    """
    return torch.float32 if device == "cpu" and not _has_products(stored) else stored


def _has_products(dtype: torch.dtype) -> bool:
    """True if the processor has instructions for products of numbers in this format."""
    # torch tells in private functions, and of x86 alone; elsewhere, and in a release without them, float32 is taken
    known = (getattr(torch.cpu, f"_is_{name}_supported", None) for name in _INSTRUCTIONS.get(dtype, ()))
    return dtype not in _INSTRUCTIONS or any(found() for found in known if found is not None)


def visible_gpus() -> tuple[str, ...]:
    """Names by which CUDA_VISIBLE_DEVICES can ask for the GPUs that this process may use."""
    count = torch.cuda.device_count()
    listed = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return tuple(listed[:count]) if listed else tuple(str(index) for index in range(count))


WIDE = 512
"""Width from which on matrix products take most of a forward pass."""


def fast_products(device: str, width: int) -> contextlib.AbstractContextManager[object]:
    """Products of wide models in bfloat16, sums in float32, on processors that have instructions for it.

    Narrow models, and other processors, keep float32: nothing would be won.

    Args:
        device: as `resolve_device` gives it.
        width: of the model.
    """
    if in_bfloat16(device, width):
        # each weight is used once a pass: copies that are kept for a second time would only take memory
        return torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False)
    return contextlib.nullcontext()


def in_bfloat16(device: str, width: int) -> bool:
    """True if `fast_products` rounds."""
    return device == "cpu" and width >= WIDE and _has_products(torch.bfloat16)
