"""Residual streams of a transformer's stacks: their points, and the axes of all tensors that lie along one.

A point is where a sublayer, or the norm after the last one, reads the stream; it bears the name of that module. A
sliced checkpoint lists the width of every point under ``rankscope.stream`` in its ``config.json``. Each sublayer then
has a matrix ``skip`` on its skip connection, from its own point's coordinates to the next one's, and tables that a
dense model shares are stored one by one, each in the coordinates of what it feeds or reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rankscope.errors import CheckpointError
from rankscope.families.record import Config, Shapes, positive

SKIP = "skip"
FINAL = "final_layer_norm"
MEMORY = f"encoder.{FINAL}"
"""Point that keys and values of every cross-attention read."""
TABLE, DECODER_TABLE = "shared.weight", "decoder.embed_tokens.weight"
_NORM = re.compile(
    r"^(?:(?:encoder|decoder)\.block\.\d+\.layer\.\d+\.layer_norm|(?:encoder|decoder)\.final_layer_norm)\.weight$"
)
_READS = ("q", "k", "v", "wi", "wi_0", "wi_1")
_WRITES = ("o", "wo")
_Ends = tuple[dict[str, str], dict[str, str]]
"""First and last point of every stack."""


@dataclass(frozen=True)
class Axes:
    """Points along the axes of one tensor.

    Attributes:
        out: point whose stream the tensor's rows, or its bias, add to; None where they are no part of a stream.
        read: point whose normalised stream its columns read; None likewise.
        table: whether rows are looked up, so that the columns add to ``out``.
        norm: point whose norm has this tensor as its gain.
    """

    out: str | None = None
    read: str | None = None
    table: bool = False
    norm: str | None = None


def points(shapes: Shapes) -> dict[str, str | None]:
    """Points of both stacks in the order of computation, each with the next one of its stack; None after the last.

    >>> points({"encoder.block.0.layer.0.layer_norm.weight": (4,), "encoder.final_layer_norm.weight": (4,)})
    {'encoder.block.0.layer.0': 'encoder.final_layer_norm', 'encoder.final_layer_norm': None}
    """
    found = [name.removesuffix(".weight").removesuffix(".layer_norm") for name in shapes if _NORM.match(name)]
    found.sort(key=_order)
    after: list[str | None] = [*found[1:], None]
    pairs = zip(found, after, strict=True)
    return {one: other if other is not None and _stack(other) == _stack(one) else None for one, other in pairs}


def stream_axes(shapes: Shapes) -> dict[str, Axes]:
    """Axes of every tensor that has some along a stream, the gains of norms and ``skip`` included.

    Args:
        shapes: of every tensor of a model, by its name; a factored matrix by the names of its factors or as one.
    """
    nexts = points(shapes)
    ends = _ends(nexts)
    found = {name: _axes(name, nexts, ends) for name in shapes}
    return {name: axes for name, axes in found.items() if axes != Axes()}


def read_widths(config: Config) -> dict[str, int]:
    """Width of every point of a sliced checkpoint; empty where its streams have the width ``d_model``.

    Raises:
        CheckpointError: a width is not a whole number from 1 to ``d_model``.
    """
    block = config.get("rankscope")
    widths = block.get("stream") if isinstance(block, Mapping) else None
    if widths is None:
        return {}
    largest = positive(config, "d_model")
    if not isinstance(widths, Mapping) or not widths:
        raise CheckpointError(f"config.json: rankscope.stream must name the width of every point, found {widths!r}.")
    for point, width in widths.items():
        if isinstance(width, bool) or not isinstance(width, int) or not 1 <= width <= largest:
            raise CheckpointError(
                f"config.json: rankscope.stream gives {point} the width {width!r}: it must be a whole number from 1 "
                f"to d_model, {largest}."
            )
    return dict(widths)


def sliced_shapes(shapes: Shapes, config: Config) -> Shapes:
    """Shapes of a model whose streams have the widths that the config lists; ``shapes`` itself where it lists none.

    Raises:
        CheckpointError: it lists other points than the model has.
    """
    widths = read_widths(config)
    return sliced(shapes, widths) if widths else shapes


def sliced(shapes: Shapes, widths: Mapping[str, int]) -> Shapes:
    """Shapes of a model whose streams have these widths, with ``skip`` matrices and tables of their own.

    Raises:
        CheckpointError: the widths are those of other points.
    """
    nexts = points(shapes)
    if nexts.keys() != widths.keys():
        odd = sorted(nexts.keys() ^ widths.keys())[0]
        said = "lacks" if odd in nexts else "names"
        raise CheckpointError(
            f"config.json: rankscope.stream {said} {odd}; use the config.json saved with the weights."
        )
    whole = {**shapes, **{f"{one}.{SKIP}.weight": (0, 0) for one, other in nexts.items() if other is not None}}
    if TABLE in shapes and any(_stack(point) == "decoder" for point in nexts):
        whole[DECODER_TABLE] = shapes[TABLE]
    axes = stream_axes(whole)
    return {name: _narrow(shape, axes.get(name, Axes()), widths) for name, shape in whole.items()}


def sliced_ties(shapes: Shapes, config: Config) -> Shapes:
    """Shapes of the copies of tied tensors; the decoder's table and the head of a sliced model are no copies."""
    widths = read_widths(config)
    if not widths:
        return shapes
    first = min(widths, key=_order)
    return {name: (rows, widths[first]) for name, (rows, _) in shapes.items() if name == "encoder.embed_tokens.weight"}


def _narrow(shape: tuple[int, ...], axes: Axes, widths: Mapping[str, int]) -> tuple[int, ...]:
    if axes.norm is not None:
        return (widths[axes.norm],)
    if axes.out is not None and axes.table:
        return (shape[0], widths[axes.out])
    if axes.out is not None:
        shape = (widths[axes.out], *shape[1:])
    return shape if axes.read is None else (shape[0], widths[axes.read])


def _axes(name: str, nexts: Mapping[str, str | None], ends: _Ends) -> Axes:
    """Axes of a tensor; of two factors ``up`` has the rows and the bias, ``down`` the columns of their product."""
    module, _, kind = name.rpartition(".")
    if _NORM.match(name):
        return Axes(norm=module.removesuffix(".layer_norm"))
    whole, _, factor = module.rpartition(".")
    if factor not in ("up", "down"):
        return _whole_axes(name, module, kind, nexts, ends)
    found = _whole_axes(f"{whole}.{kind}", whole, kind, nexts, ends)
    return Axes(out=found.out) if factor == "up" else Axes(read=found.read)


def _whole_axes(name: str, module: str, kind: str, nexts: Mapping[str, str | None], ends: _Ends) -> Axes:
    first, last = ends
    if name in (TABLE, "encoder.embed_tokens.weight"):
        return Axes(first.get("encoder"), table=True)
    if name == DECODER_TABLE:
        return Axes(first.get("decoder"), table=True)
    if name == "lm_head.weight":
        return Axes(read=last.get("decoder"))
    owner, _, part = module.rpartition(".")
    if owner == "input_patch_embedding" and part in ("output_layer", "residual_layer"):
        return Axes(first["encoder"])
    if owner == "output_patch_embedding" and part in ("hidden_layer", "residual_layer"):
        return Axes(read=last[max(last, key=["encoder", "decoder"].index)]) if kind == "weight" else Axes()
    return _sublayer_axes(module, nexts)


def _sublayer_axes(module: str, nexts: Mapping[str, str | None]) -> Axes:
    point, matrix = ".".join(module.split(".")[:5]), module.rpartition(".")[2]
    if nexts.get(point) is None:
        return Axes()
    if module == f"{point}.{SKIP}":
        return Axes(nexts[point], point)
    if matrix in _READS:
        return Axes(read=MEMORY if matrix in ("k", "v") and "EncDecAttention" in module else point)
    return Axes(nexts[point]) if matrix in _WRITES else Axes()


def _ends(nexts: Mapping[str, str | None]) -> _Ends:
    first: dict[str, str] = {}
    for point in nexts:
        first.setdefault(_stack(point), point)
    return first, {_stack(point): point for point in nexts}


def _stack(point: str) -> str:
    return point.partition(".")[0]


def _order(point: str) -> tuple[bool, bool, int, int]:
    """Encoder before decoder, by layer and sublayer, the final norm last."""
    parts, later = point.split("."), _stack(point) == "decoder"
    return (later, True, 0, 0) if parts[1] == FINAL else (later, False, int(parts[2]), int(parts[4]))
