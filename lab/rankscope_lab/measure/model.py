"""Ranks of a whole model on a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rankscope.errors import DataError
from rankscope.families import Site
from rankscope.io import codec
from rankscope.measure.spectrum import DEFAULT_EPS
from rankscope.numerics import per_head, singular_values, validate_eps
from rankscope_lab.measure.record import ModelRanks, StreamRanks, WeightRanks, ranks_of
from rankscope_lab.measure.sites import Layer, layers_of, matrix_of, sites_of
from rankscope_lab.measure.streams import CentredTriangle, Place, watch_layers

EPS = DEFAULT_EPS
STORED = 64
"""Leading singular values of a layer's input that a compact record keeps."""


def measure(model: nn.Module, batch: Tensor | tuple[Tensor, ...] | None, eps: Sequence[float] = EPS) -> ModelRanks:
    """Measure a model made of the lab's blocks: all its matrices, and every layer's input on a batch.

    The model runs once, in eval mode and without gradients; its mode is restored. Spectra are float64.

    Args:
        model: any module; without layers only its matrices are measured.
        batch: what the model is called with; None: matrices only.
        eps: tolerances in [0, 1).

    Raises:
        OptionError: an ε outside [0, 1).
        DataError: a weight, or what runs through a layer, is not finite.
    """
    levels = tuple(validate_eps(value) for value in eps)
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
