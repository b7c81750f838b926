"""What a config says of compressed sites, and whether config and weights agree."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rankscope.checkpoints._safetensors import TensorInfo
from rankscope.errors import CheckpointError, unknown_choice
from rankscope.families import Family

VERSION = 1
LAYOUTS = ("dense", "factored")
_FIX = "use the config.json that was saved with these weights."
_LAYER_TENSOR = re.compile(r"^(encoder|decoder)\.block\.\d+\.")
# Old T5 conversions carry a position bias for cross-attention that no model reads.
_UNREAD = re.compile(r"EncDecAttention\.relative_attention_bias\.weight$")


def factored_ranks(block: object) -> dict[str, int]:
    """Rank of every factored module that the ``rankscope`` block of a config lists; no block means none.

    >>> factored_ranks({"version": 1, "sites": {"encoder.q": {"layout": "factored", "rank": 3}}})
    {'encoder.q': 3}

    Raises:
        CheckpointError: its version, a layout or a rank is not one that this release can read.
    """
    if block is None:
        return {}
    if not isinstance(block, Mapping) or not isinstance(block.get("sites"), Mapping):
        raise CheckpointError(
            "config.json: rankscope must be an object that holds an object named sites; compress again."
        )
    if block.get("version") != VERSION:
        raise CheckpointError(
            f"config.json: rankscope.version {block.get('version')!r} is not known, this release reads "
            f"{VERSION}: update rankscope."
        )
    ranks: dict[str, int] = {}
    for module, site in block["sites"].items():
        layout = site.get("layout") if isinstance(site, Mapping) else None
        if layout not in LAYOUTS:
            raise CheckpointError(
                unknown_choice(f"config.json: layout of {module}", layout, LAYOUTS, "Update rankscope.")
            )
        if layout == "factored":
            ranks[module] = _rank(module, site.get("rank"))
    return ranks


def _rank(module: str, rank: object) -> int:
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
        raise CheckpointError(f"config.json: rank of {module} must be a whole number ≥ 1, found {rank!r}.")
    return rank


def expected_shapes(config: Mapping[str, Any], family: Family, ranks: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Shapes of every tensor that the checkpoint must hold, with factored matrices as their two factors."""
    linear = {site.module for site in family.sites(config) if site.role != "embedding"}
    unknown = set(ranks) - linear
    if unknown:
        raise CheckpointError(
            f"config.json: rankscope.sites names {min(unknown)!r}, which is no linear layer of the model; {_FIX}"
        )
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in family.expected_shapes(config).items():
        module, _, kind = name.rpartition(".")
        if module not in ranks:
            shapes[name] = shape
        elif kind == "bias":
            shapes[f"{module}.up.bias"] = shape
        else:
            shapes.update(_factor_shapes(module, shape, ranks[module]))
    return shapes


def _factor_shapes(module: str, shape: tuple[int, ...], rank: int) -> dict[str, tuple[int, ...]]:
    d_out, d_in = shape
    if rank > min(shape):
        raise CheckpointError(
            f"config.json: rank {rank} of {module} is above {min(shape)}, the most a {d_out}×{d_in} matrix has; {_FIX}"
        )
    return {f"{module}.up.weight": (d_out, rank), f"{module}.down.weight": (rank, d_in)}


def check_agreement(
    config: Mapping[str, Any],
    family: Family,
    expected: Mapping[str, tuple[int, ...]],
    index: Mapping[str, TensorInfo],
) -> None:
    """Compare the shapes that the config implies with those that are stored.

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
    for name, stored in index.items():
        if name in tied:
            _same_shape(name, tied[name], stored)
        elif name not in expected and _LAYER_TENSOR.match(name) and not _UNREAD.search(name):
            raise CheckpointError(
                f"config.json and weights disagree: {name} {list(stored.shape)} is stored, but the config "
                f"implies no such tensor; {_FIX}"
            )


def _same_shape(name: str, shape: tuple[int, ...], stored: TensorInfo) -> None:
    if stored.shape != shape:
        raise CheckpointError(
            f"config.json and weights disagree at {name}: the config implies {list(shape)}, stored is "
            f"{list(stored.shape)}; {_FIX}"
        )
