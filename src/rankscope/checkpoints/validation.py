"""Checks that a config and its weights agree on the layout of every site."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from rankscope.checkpoints.tensors import TensorInfo
from rankscope.choices import Storage
from rankscope.errors import CheckpointError
from rankscope.families import Factored, Family, HeadWidth, Layout, Width
from rankscope.families.layers import pattern
from rankscope.families.weight_layout import linear_layers, read_storage, scale_name

_FIX = "use the config.json that was saved with these weights."
_LAYER_TENSOR = re.compile(r"^(encoder|decoder)\.block\.\d+\.")
# Old T5 conversions carry a position bias for cross-attention that no model reads.
_UNREAD = re.compile(r"EncDecAttention\.relative_attention_bias\.weight$")


def factored(layouts: Mapping[str, Layout]) -> dict[str, Factored]:
    """Those layouts that are factored, by module."""
    return {module: layout for module, layout in layouts.items() if isinstance(layout, Factored)}


def expected_shapes(
    config: Mapping[str, Any], family: Family, layouts: Mapping[str, Layout]
) -> dict[str, tuple[int, ...]]:
    """Shapes of every tensor that the checkpoint must hold, with factored matrices as their two factors.

    A weight in whole numbers comes with its scales.
    """
    _check_modules(config, family, layouts)
    factors = factored(layouts)
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in family.expected_shapes(config).items():
        module, _, kind = name.rpartition(".")
        if module not in factors:
            shapes[name] = shape
        elif kind == "bias":
            shapes[f"{module}.up.bias"] = shape
        else:
            shapes.update(_factor_shapes(module, shape, factors[module]))
    block = config.get("rankscope")
    if read_storage(block) == "int8":
        for layer in sorted(linear_layers(family.sites(config), layouts, block)):
            shapes[scale_name(f"{layer}.weight")] = shapes[f"{layer}.weight"][:1]
    return shapes


def _check_modules(config: Mapping[str, Any], family: Family, layouts: Mapping[str, Layout]) -> None:
    sites = family.sites(config)
    linear = {site.module for site in sites if site.role != "embedding"}
    attention = {site.block for site in sites if site.kind == "attention"}
    hidden = {site.block for site in sites if site.hidden_axis is not None}
    for module, layout in layouts.items():
        if isinstance(layout, Width) and module not in hidden:
            raise CheckpointError(
                f"config.json: rankscope.sites gives a width to {module!r}, which is not a feed-forward block of the "
                f"model; {_FIX}"
            )
        if isinstance(layout, Factored) and module not in linear:
            raise CheckpointError(
                f"config.json: rankscope.sites names {module!r}, which is not a linear layer of the model; {_FIX}"
            )
        if isinstance(layout, HeadWidth) and module not in attention:
            raise CheckpointError(
                f"config.json: rankscope.sites gives head widths to {module!r}, which is not an attention layer of the "
                f"model; {_FIX}"
            )


def _factor_shapes(module: str, shape: tuple[int, ...], layout: Factored) -> dict[str, tuple[int, ...]]:
    d_out, d_in = shape
    if layout.heads is not None and shape[layout.axis] % layout.heads:
        raise CheckpointError(
            f"config.json: the {d_out}×{d_in} matrix of {module} does not split into {layout.heads} heads; {_FIX}"
        )
    if layout.rank > layout.largest(d_out, d_in):
        part = "" if layout.heads is None else f" in {layout.heads} heads"
        raise CheckpointError(
            f"config.json: rank {layout.rank} of {module} is above {layout.largest(d_out, d_in)}, the most a "
            f"{d_out}×{d_in} matrix{part} has; {_FIX}"
        )
    up, down = layout.shapes(d_out, d_in)
    return {f"{module}.up.weight": up, f"{module}.down.weight": down}


def check_agreement(
    config: Mapping[str, Any],
    family: Family,
    expected: Mapping[str, tuple[int, ...]],
    index: Mapping[str, TensorInfo],
    prefix: str = "",
) -> None:
    """Compare the shapes that the config implies with those that are stored.

    Args:
        config: the content of ``config.json``.
        family: its model family.
        expected: shapes by stored names.
        index: what is stored.
        prefix: what stands before the family's own names.

    Raises:
        CheckpointError: names the first tensor that is missing, of another shape, or of no layer.
    """
    for name, shape in expected.items():
        stored = next((index[known] for known in (name, *family.aliases.get(name, ())) if known in index), None)
        if stored is None:
            raise CheckpointError(
                f"config.json and weights disagree: the config implies {name} {list(shape)}, which is not "
                f"stored; {_FIX}"
            )
        _same_shape(name, shape, stored)
    tied = family.tied_shapes(config)
    measured = re.compile("|".join({pattern(prefix + site.name) for site in family.sites(config)}))
    for name, stored in index.items():
        if name in tied:
            _same_shape(name, tied[name], stored)
        elif name not in expected and _of_a_layer(name, measured):
            raise CheckpointError(
                f"config.json and weights disagree: {name} {list(stored.shape)} is stored, but the config "
                f"implies no such tensor; {_FIX}"
            )


def _of_a_layer(name: str, measured: re.Pattern[str]) -> bool:
    """Return True if a tensor that the config does not imply would be missed: it is measured, in another layer."""
    return bool(measured.fullmatch(name) or (_LAYER_TENSOR.match(name) and not _UNREAD.search(name)))


def find_prefix(expected: Iterable[str], prefixes: Iterable[str], index: Mapping[str, TensorInfo]) -> str:
    """Of the prefixes that a family's names may have, the one under which most are stored; none by default."""
    names = list(expected)
    return max(("", *prefixes), key=lambda prefix: sum(prefix + name in index for name in names))


def check_storage(storage: Storage, layers: Iterable[str], index: Mapping[str, TensorInfo]) -> None:
    """Compare the numbers that the config implies for linear layers with those that are stored.

    Raises:
        CheckpointError: names the first weight of ``layers`` that is stored in other numbers.
    """
    for name in sorted(f"{layer}.weight" for layer in layers):
        whole = index[name].dtype == torch.int8
        if whole != (storage == "int8"):
            kind = str(index[name].dtype).removeprefix("torch.")
            raise CheckpointError(
                f"config.json and weights disagree at {name}: rankscope.storage is {storage!r}, stored is {kind}; "
                f"{_FIX}"
            )


def _same_shape(name: str, shape: tuple[int, ...], stored: TensorInfo) -> None:
    if stored.shape != shape:
        raise CheckpointError(
            f"config.json and weights disagree at {name}: the config implies {list(shape)}, stored is "
            f"{list(stored.shape)}; {_FIX}"
        )
