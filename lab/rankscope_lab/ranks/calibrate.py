"""Moments of what enters the matrices of a model that is made of the lab's blocks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from rankscope.compress.calibration import InputMoments
from rankscope.compress.calibration.moments import MomentSink
from rankscope.errors import DataError
from rankscope_lab.blocks import MultiHeadAttention

SOURCE = ".source"
"""Added to an attention's path: what its keys and values are made of."""


def model_moments(model: nn.Module, batches: Iterable[Tensor | tuple[Tensor, ...]]) -> dict[str, InputMoments]:
    """Run a model on batches and sum up what enters its linear maps and attentions.

    Args:
        model: run in eval mode, without gradients; its mode is restored.
        batches: what it is called with.

    Returns:
        Moments by path of a ``Linear`` or an attention; with `SOURCE` after it, of the attention's keys and values.

    Raises:
        DataError: there is no batch, or what runs through the model is not finite.
    """
    training = model.training
    model.eval()
    try:
        with torch.no_grad(), _watched(model) as sinks:
            for batch in batches:
                model(*(batch if isinstance(batch, tuple) else (batch,)))
    finally:
        model.train(training)
    found = {name: sink.moments for name, sink in sinks.items() if sink.moments is not None}
    if not found:
        raise DataError("no batch ran through the model: give at least one to calibrate on.")
    return found


def centred(moments: InputMoments) -> InputMoments:
    """Moments of the rows less their mean, which a bias can stand for."""
    mean = moments.total / moments.tokens
    outer = moments.outer - moments.tokens * torch.outer(mean, mean)
    return replace(moments, total=torch.zeros_like(mean), inside=outer, between=torch.zeros_like(outer))


@contextlib.contextmanager
def _watched(model: nn.Module) -> Iterator[dict[str, MomentSink]]:
    sinks: dict[str, MomentSink] = {}
    handles = []
    try:
        for name, module in model.named_modules():
            if isinstance(module, MultiHeadAttention):
                sinks[name], sinks[name + SOURCE] = MomentSink(), MomentSink()
                hook = _attention(sinks[name], sinks[name + SOURCE])
            elif isinstance(module, nn.Linear):
                sinks[name] = MomentSink()
                hook = _linear(sinks[name])
            else:
                continue
            handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))
        yield sinks
    finally:
        for handle in handles:
            handle.remove()


Hook = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]


def _linear(sink: MomentSink) -> Hook:
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        sink.add(_sequences(args[0]), None)

    return hook


def _attention(queries: MomentSink, keys: MomentSink) -> Hook:
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        source = args[1] if len(args) > 1 else kwargs.get("source")
        queries.add(_sequences(args[0]), None)
        keys.add(_sequences(args[0] if source is None else source), None)

    return hook


def _sequences(x: Tensor) -> Tensor:
    """As (series, tokens, d) in float64, so that a mean can be taken off; without tokens all rows are one series."""
    return (x[None] if x.ndim == 2 else x.flatten(0, -3)).double()
