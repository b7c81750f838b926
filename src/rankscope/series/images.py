"""Image corpora: synthetic, or CIFAR-10 from the hub.

Synthetic images are textures, gradients, shapes and noise with the spectrum of natural images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankscope.choices import IMAGE_SETS
from rankscope.errors import DataError, OptionError, check_count, unknown_choice

_CIFAR = "uoft-cs/cifar10"
_SECONDS = 10.0
SMALLEST = 8
"""Minimum pixels per side; below that, classes are indistinguishable."""

Plane = Float[np.ndarray, "size size"]
Colours = Float[np.ndarray, "size size 3"]
_NATURAL = 0.06
"""Standard deviation of the 1/f noise added to every image; pixels are in [0, 1]."""


def images(n: int, size: int, seed: int, first: int = 0) -> tuple[Float[Tensor, "n 3 size size"], Int[Tensor, " n"]]:
    """Generate ``n`` colour images with class labels, indices into `CLASSES`.

    Each image has two random colours, one pattern, and weak noise with a 1/f amplitude spectrum, as in photographs
    (Field 1987). Image i does not depend on ``n``; classes alternate.

    Args:
        n: number of images.
        size: pixels per side, at least `SMALLEST`.
        seed: random seed.
        first: index of the first image.

    Returns:
        Float32 RGB pixels in [0, 1], and the labels.

    Raises:
        OptionError: ``n``, ``seed`` or ``first`` out of range, or ``size`` below `SMALLEST`.

    >>> pixels, labels = images(12, 16, 0)
    >>> pixels.shape, labels.tolist()[-3:]
    (torch.Size([12, 3, 16, 16]), [9, 0, 1])
    """
    for name, value, least in (("n", n, 1), ("size", size, SMALLEST), ("seed", seed, 0), ("first", first, 0)):
        check_count(name, value, least)
    makers = list(CLASSES.values())
    out = np.empty((n, 3, size, size), dtype=np.float32)
    for i in range(n):
        rng = np.random.default_rng((seed, first + i))
        out[i] = _paint(makers[(first + i) % len(makers)](size, rng), rng).transpose(2, 0, 1)
    return torch.from_numpy(out), torch.arange(first, first + n) % len(makers)


def image_batches(
    kind: str, n: int, size: int, seed: int = 0, batch_size: int = 64
) -> Iterator[Float[Tensor, "images 3 height width"]]:
    """Yield batches of ``n`` images with pixels in [0, 1]: synthetic of size ``size``, or CIFAR-10 (32 × 32).

    Args:
        kind: one of `IMAGE_SETS`.
        n: number of images.
        size: pixels per side of synthetic images.
        seed: random seed.
        batch_size: images per batch.

    Raises:
        OptionError: unknown kind, or ``n`` below 1.
        DataError: CIFAR-10 is not available.
    """
    if kind not in IMAGE_SETS:
        raise OptionError(unknown_choice("images", kind, IMAGE_SETS))
    check_count("n", n)
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
        HfApi().dataset_info(_CIFAR, timeout=_SECONDS)  # without a network, datasets retries for half a minute
        return load_dataset(_CIFAR, split="test")
    except Exception as error:  # any exception of the HTTP client
        first = next(iter(str(error).splitlines()), "")[:120]
        raise DataError(
            f"cannot get {_CIFAR} from the hub ({type(error).__name__}: {first}); connect to the network, or use "
            "generated images."
        ) from error


def natural_noise(size: int, rng: np.random.Generator) -> Plane:
    """Generate Gaussian noise with a 1/f amplitude spectrum, mean 0 and standard deviation 1."""
    rows, columns = np.fft.fftfreq(size)[:, None], np.fft.rfftfreq(size)[None, :]
    frequency = np.hypot(rows, columns)
    frequency[0, 0] = np.inf
    plane = np.fft.irfft2(np.fft.rfft2(rng.standard_normal((size, size))) / frequency, s=(size, size))
    return plane / plane.std()


def _paint(pattern: Plane, rng: np.random.Generator) -> Colours:
    """Blend two colours by a pattern in [0, 1] and add noise."""
    dark, light = rng.uniform(0.05, 0.65, 3), rng.uniform(0.35, 0.95, 3)
    if rng.random() < 0.5:
        dark, light = light, dark
    size = len(pattern)
    noise = _NATURAL * natural_noise(size, rng)[..., None] * rng.uniform(0.6, 1.4, 3)
    return np.clip(dark + pattern[..., None] * (light - dark) + noise, 0.0, 1.0)


def _grid(size: int, rng: np.random.Generator, shift: float = 0.15) -> tuple[Plane, Plane]:
    """Return coordinates in [−0.5, 0.5], randomly rotated and shifted."""
    line = (np.arange(size) + 0.5) / size - 0.5
    y, x = np.meshgrid(line, line, indexing="ij")
    angle = rng.uniform(0, 2 * np.pi)
    x, y = x - rng.uniform(-shift, shift), y - rng.uniform(-shift, shift)
    return np.cos(angle) * x + np.sin(angle) * y, np.cos(angle) * y - np.sin(angle) * x


def _scaled(plane: Plane) -> Plane:
    """Rescale to [0, 1]."""
    low, high = plane.min(), plane.max()
    return (plane - low) / max(high - low, 1e-12)


def _noise(size: int, rng: np.random.Generator) -> Plane:
    return _scaled(natural_noise(size, rng))


def _gradient(size: int, rng: np.random.Generator) -> Plane:
    x, y = _grid(size, rng)
    return _scaled(x if rng.random() < 0.5 else np.hypot(x, y))


def _stripes(size: int, rng: np.random.Generator) -> Plane:
    x, _ = _grid(size, rng)
    return 0.5 + 0.5 * np.sin(2 * np.pi * rng.uniform(2, size / 5) * x)


def _checks(size: int, rng: np.random.Generator) -> Plane:
    x, y = _grid(size, rng)
    cycles = rng.uniform(2, size / 6)
    return (np.sin(2 * np.pi * cycles * x) * np.sin(2 * np.pi * cycles * y) > 0).astype(float)


def _disc(size: int, rng: np.random.Generator) -> Plane:
    x, y = _grid(size, rng)
    return _edge(rng.uniform(0.15, 0.35) - np.hypot(x, y), size)


def _square(size: int, rng: np.random.Generator) -> Plane:
    x, y = _grid(size, rng)
    return _edge(rng.uniform(0.12, 0.3) - np.maximum(np.abs(x), np.abs(y)), size)


def _triangle(size: int, rng: np.random.Generator) -> Plane:
    x, y = _grid(size, rng)
    side = rng.uniform(0.1, 0.2)
    turns = 2 * np.pi * np.arange(3) / 3
    return _edge(side - np.max([np.cos(t) * x + np.sin(t) * y for t in turns], axis=0), size)


def _blobs(size: int, rng: np.random.Generator) -> Plane:
    total = np.zeros((size, size))
    for _ in range(rng.integers(3, 7)):
        x, y = _grid(size, rng, shift=0.45)
        width = rng.uniform(0.05, 0.12)
        total += np.exp(-(x**2 + y**2) / (2 * width**2))
    return _scaled(total)


def _cells(size: int, rng: np.random.Generator) -> Plane:
    """Draw Voronoi cells of random points, each with its own grey level."""
    line = (np.arange(size) + 0.5) / size
    count = rng.integers(6, 16)
    points, greys = rng.uniform(size=(count, 2)), rng.uniform(size=count)
    distance = (line[:, None, None] - points[:, 0]) ** 2 + (line[None, :, None] - points[:, 1]) ** 2
    return greys[distance.argmin(2)]


def _lines(size: int, rng: np.random.Generator) -> Plane:
    total = np.zeros((size, size))
    for _ in range(rng.integers(2, 6)):
        x, _y = _grid(size, rng, shift=0.4)
        total = np.maximum(total, _edge(rng.uniform(0.01, 0.04) - np.abs(x), size))
    return total


def _edge(inside: Plane, size: int) -> Plane:
    """Map a signed distance to 1 inside and 0 outside, with a one-pixel ramp."""
    return np.clip(0.5 + inside * size, 0.0, 1.0)


CLASSES: dict[str, Callable[[int, np.random.Generator], Plane]] = {
    "noise": _noise,
    "gradient": _gradient,
    "stripes": _stripes,
    "checks": _checks,
    "disc": _disc,
    "square": _square,
    "triangle": _triangle,
    "blobs": _blobs,
    "cells": _cells,
    "lines": _lines,
}
"""Pattern per class, in label order."""
