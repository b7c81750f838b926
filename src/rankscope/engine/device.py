"""Names of devices and number formats, as people type them, to what torch calls them."""

from __future__ import annotations

import contextlib
import os

import torch

from rankscope.choices import DTYPES, known_device
from rankscope.errors import OptionError, unknown_choice

_TORCH = {name: getattr(torch, name) for name in DTYPES}


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
    """Return the torch dtype of a name; None stays None and means the stored format.

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
    # torch names them in private functions alone; a release without them gets float32
    known = (getattr(torch.cpu, f"_is_{name}_supported", None) for name in ("avx512_bf16", "amx_tile"))
    return device == "cpu" and width >= WIDE and any(found() for found in known if found is not None)
