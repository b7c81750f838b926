"""Streams through the layers of a model, watched by hooks that a ``with`` block removes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.measure.hooks import Triangle
from rankscope_lab.measure.record import BETWEEN, INPUT, OUTPUT
from rankscope_lab.measure.sites import Layer

Place = tuple[str, str]
"""Path of a layer, and ``input``, ``between`` or ``output``."""


class CentredTriangle:
    """Triangular factors of all rows, as they are and less their mean, in float64 and d_model² numbers.

    In the R of [1 X] the first row belongs to the mean: without its column R is a factor of X, without its row too one
    of X − 1·mean.
    """

    def __init__(self) -> None:
        self._triangle = Triangle()

    def add(self, rows: Float[Tensor, "tokens d_model"]) -> None:
        """Fold the rows in."""
        self._triangle.add(torch.cat([torch.ones_like(rows[:, :1]), rows], dim=1))

    @property
    def tokens(self) -> int:
        """Rows so far."""
        return self._triangle.tokens

    @property
    def plain(self) -> Float[Tensor, "k d_model"]:
        """A factor with the singular values of the rows."""
        return self._triangle.r[:, 1:]

    @property
    def centred(self) -> Float[Tensor, "k d_model"]:
        """A factor with those of the rows less their mean."""
        return self._triangle.r[1:, 1:]


@contextlib.contextmanager
def watch_layers(layers: Sequence[Layer]) -> Iterator[dict[Place, CentredTriangle]]:
    """Watch every layer's input, what its feed-forward half reads, and the output of the last layer of each stack.

    `rankscope.measure.hooks.watch` is not used because it takes a block's second argument for a mask of padding; the
    blocks of the lab take masks of pairs there.
    """
    sinks: dict[Place, CentredTriangle] = {}
    handles = []
    last = {layer.stack: layer.name for layer in layers}
    try:
        for layer in layers:
            sink = sinks[layer.name, INPUT] = CentredTriangle()
            handles.append(layer.module.register_forward_pre_hook(_reads(sink)))
            half = layer.feed_forward
            if half is not None:
                sink = sinks[layer.name, BETWEEN] = CentredTriangle()
                handles.append(half.register_forward_pre_hook(_reads(sink)))
            if last[layer.stack] == layer.name:
                sink = sinks[layer.name, OUTPUT] = CentredTriangle()
                handles.append(layer.module.register_forward_hook(_writes(sink)))
        yield sinks
    finally:
        for handle in handles:
            handle.remove()


def _reads(sink: CentredTriangle) -> Callable[[nn.Module, tuple[Any, ...]], None]:
    def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
        sink.add(args[0].detach().flatten(0, -2))

    return hook


def _writes(sink: CentredTriangle) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
    def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        sink.add(output.detach().flatten(0, -2))

    return hook
