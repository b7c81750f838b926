"""In which numbers the tensors of a written folder are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rankscope.checkpoints import Checkpoint
from rankscope.choices import Storage
from rankscope.compress.write import TensorSpec
from rankscope.families import Layout
from rankscope.families.storage import linear_layers, scale_name
from rankscope.numerics.quantise import SCALE_DTYPE, quantise


@dataclass(frozen=True)
class Encoding:
    """Number formats of a folder that is to be written.

    Attributes:
        rounded: names of the weights that become whole numbers with a scale per row.
        dtype: format of everything else, None where each tensor keeps its own.
        own: format of the model, for what was whole numbers and is to be so no more.
    """

    rounded: frozenset[str] = field(repr=False)
    dtype: torch.dtype | None
    own: torch.dtype

    def specs(self, name: str, shape: tuple[int, ...], stored: torch.dtype) -> tuple[TensorSpec, ...]:
        """What is written of a tensor: itself, or its whole numbers and then their scales.

        Args:
            name: what it will be called.
            shape: its axes.
            stored: format that it has, or that what it is made of has.
        """
        if name in self.rounded:
            scale = TensorSpec(scale_name(name), shape[:1], SCALE_DTYPE)
            return TensorSpec(name, shape, torch.int8), scale
        kept = stored if stored.is_floating_point else self.own
        return (TensorSpec(name, shape, self.dtype or kept),)


def encoding_of(
    source: Checkpoint, layouts: Mapping[str, Layout], storage: Storage, dtype: torch.dtype | None
) -> Encoding:
    """Formats of a folder with other layouts than its source's, in a storage and, where one is given, a format."""
    layers = linear_layers(source.sites(["all"]), layouts) if storage == "int8" else ()
    return Encoding(frozenset(f"{layer}.weight" for layer in layers), dtype, source.dtype)


def encoded(tensors: Mapping[str, Tensor], specs: Sequence[TensorSpec]) -> list[Tensor]:
    """The tensors that ``specs`` announce, in that order.

    Raises:
        DataError: a row of a weight cannot be rounded, because it is not finite.
    """
    found: list[Tensor] = []
    for spec in specs:
        if spec.dtype == torch.int8:
            rounded = quantise(tensors[spec.name], spec.name)
            found += [rounded.values, rounded.scale]
        elif spec.name in tensors:
            found.append(tensors[spec.name].to(spec.dtype).contiguous())
    return found
