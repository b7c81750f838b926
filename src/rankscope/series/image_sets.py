"""Images as a corpus: generated ones, or CIFAR-10 from the hub."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.choices import IMAGE_SETS
from rankscope.errors import DataError, OptionError, unknown_choice
from rankscope.series.images import images

_CIFAR = "uoft-cs/cifar10"
_SECONDS = 10.0


def image_batches(
    kind: str, n: int, size: int, seed: int = 0, batch_size: int = 64
) -> Iterator[Float[Tensor, "images 3 height width"]]:
    """Batches of ``n`` images with pixels from 0 to 1: generated at ``size``, or CIFAR-10 at its own 32.

    Args:
        kind: one of `IMAGE_SETS`.
        n: number of images.
        size: pixels per side of generated images.
        seed: of every random choice.
        batch_size: images per batch.

    Raises:
        OptionError: unknown kind, or ``n`` below 1.
        DataError: CIFAR-10 cannot be had.
    """
    if kind not in IMAGE_SETS:
        raise OptionError(unknown_choice("images", kind, IMAGE_SETS))
    if n < 1:
        raise OptionError(f"the number of images must be at least 1, got {n}.")
    if kind == "cifar10":
        rows = _cifar10()
        picked = np.sort(np.random.default_rng(seed).choice(len(rows), min(n, len(rows)), replace=False))
        for start in range(0, len(picked), batch_size):
            pictures = [np.asarray(rows[int(i)]["img"].convert("RGB")) for i in picked[start : start + batch_size]]
            yield torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 255
        return
    for start in range(0, n, batch_size):
        yield images(min(batch_size, n - start), size, seed, first=start)[0]


def _cifar10() -> Any:
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise DataError(
            "images 'cifar10' need the package datasets: pip install 'rankscope[hub]', or use generated images."
        ) from error
    from huggingface_hub import HfApi

    try:
        HfApi().dataset_info(_CIFAR, timeout=_SECONDS)  # without a network datasets retries for half a minute
        return load_dataset(_CIFAR, split="test")
    except Exception as error:  # whatever the HTTP client raises without a network
        first = next(iter(str(error).splitlines()), "")[:120]
        raise DataError(
            f"cannot get {_CIFAR} from the hub ({type(error).__name__}: {first}); connect to the network, or use "
            "generated images."
        ) from error
