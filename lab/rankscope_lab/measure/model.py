"""Ranks of a model's weights and of its activations on a batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.errors import DataError
from rankscope.families import Site
from rankscope.io import codec
from rankscope.measure.hooks import Triangle
from rankscope.measure.spectrum import DEFAULT_EPS
from rankscope.numerics import per_head, singular_values, validate_levels
from rankscope_lab.measure.record import BETWEEN, INPUT, OUTPUT, ModelRanks, StreamRanks, WeightRanks, ranks_of
from rankscope_lab.measure.sites import Layer, layers_of, matrix_of, sites_of

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
    """Record every layer's input, the input of its feed-forward part, and the output of the last layer of each stack.

    `rankscope.measure.hooks.watch` is not used because it takes a block's second argument for a mask of padding; the
    decoder blocks of the lab take the encoder's output there.
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


EPS = DEFAULT_EPS
STORED = 64
"""Leading singular values of a layer's input that a compact record keeps."""


def measure(model: nn.Module, batch: Tensor | tuple[Tensor, ...] | None, eps: Sequence[float] = EPS) -> ModelRanks:
    """Measure the ranks of all matrices of a lab model, and of every layer's input on a batch.

    The model runs once, in eval mode and without gradients; its mode is restored. Spectra are float64.

    Args:
        model: any module; without layers only its matrices are measured.
        batch: what the model is called with; None: matrices only.
        eps: tolerances in [0, 1).

    Raises:
        OptionError: an ε outside [0, 1).
        DataError: a weight, or what runs through a layer, is not finite.
    """
    levels = validate_levels(eps)
    weights = tuple(_weight(site, layer, matrix_of(model, site), levels) for site, layer in sites_of(model).items())
    layers = layers_of(model)
    if batch is None or not layers:
        return ModelRanks(levels, weights, ())
    training = model.training
    model.eval()
    try:
        with torch.no_grad(), watch_layers(layers) as places:
            model(*(batch if isinstance(batch, tuple) else (batch,)))
    finally:
        model.train(training)
    by_name = {layer.name: layer for layer in layers}
    ran = [(by_name[place[0]], place, sink) for place, sink in places.items() if sink.tokens]
    return ModelRanks(levels, weights, tuple(_stream(*one, levels) for one in ran))


def rank_record(model: nn.Module, batch: Tensor | tuple[Tensor, ...] | None) -> dict[str, Any]:
    """`measure` as a compact JSON document beside a run: no σ of weights, the 64 leading ones of what layers read."""
    return codec.plain(measure(model, batch).shortened(streams=STORED))


def _weight(site: Site, layer: Layer | None, matrix: Tensor, eps: Sequence[float]) -> WeightRanks:
    matrix, letter = matrix.double(), site.role.rpartition(".")[2]
    name = f"{site.name}.{letter}" if site.part else site.name
    if not bool(matrix.isfinite().all()):
        raise DataError(f"weight {name} holds NaN or Inf: the run diverged, it has no ranks.")
    heads: dict[str, tuple[int, ...]] = {}
    if site.heads is not None and site.heads > 1:
        slices = singular_values(per_head(matrix, site.heads, site.head_axis or 0))
        ranks = [ranks_of(one, eps).eps_ranks for one in slices]
        heads = {key: tuple(row[key] for row in ranks) for key in ranks[0]}
    rows, columns = matrix.shape
    return WeightRanks(
        name,
        layer.stack if layer else "",
        site.layer,
        {"mlp_in": "inner", "mlp_out": "outer"}.get(site.role, letter),
        (rows, columns),
        ranks_of(singular_values(matrix, method="svd"), eps),
        heads,
    )


def _stream(layer: Layer, place: Place, sink: CentredTriangle, eps: Sequence[float]) -> StreamRanks:
    plain, centred = sink.plain.cpu(), sink.centred.cpu()
    if not bool(plain.isfinite().all()):
        raise DataError(f"the {place[1]} of layer {layer.name} holds NaN or Inf: check the weights and the batch.")
    return StreamRanks(
        layer.stack,
        layer.index,
        layer.kind,
        place[1],
        sink.tokens,
        plain.shape[1],
        ranks_of(singular_values(plain, method="svd"), eps),
        ranks_of(singular_values(centred, method="svd"), eps),
    )
