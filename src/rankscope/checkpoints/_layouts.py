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


def factored_ranks(config: Mapping[str, Any], family: Family) -> dict[str, int]:
    """Rank of every factored module that the ``rankscope`` part of a config lists; empty for a dense model.

    Raises:
        CheckpointError: its version, a layout, a module or a rank is not one that this version can read.
    """
    part = config.get("rankscope")
    if part is None:
        return {}
    if not isinstance(part, Mapping) or not isinstance(part.get("sites"), Mapping):
        raise CheckpointError("config.json: rankscope must be an object with an object named sites; compress again.")
    if part.get("version") != VERSION:
        raise CheckpointError(
            f"config.json: rankscope.version {part.get('version')!r} is not known: this release reads {VERSION}; "
            f"update rankscope."
        )
    modules = {site.module for site in family.sites(config)}
    ranks: dict[str, int] = {}
    for module, site in part["sites"].items():
        if module not in modules:
            raise CheckpointError(f"config.json: rankscope.sites names {module!r}, which the model does not have.")
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
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in family.expected_shapes(config).items():
        module = name.removesuffix(".weight")
        if module in ranks:
            d_out, d_in = shape
            shapes[f"{module}.up.weight"] = (d_out, ranks[module])
            shapes[f"{module}.down.weight"] = (ranks[module], d_in)
        else:
            shapes[name] = shape
    return shapes


def check_agreement(
    config: Mapping[str, Any], family: Family, expected: Mapping[str, tuple[int, ...]], index: Mapping[str, TensorInfo]
) -> None:
    """Compare the shapes that the config implies with those that are stored.

    Raises:
        CheckpointError: naming the first tensor that is missing, of another shape, or in no layer of the config.
    """
    for name, shape in expected.items():
        stored = next((index[known] for known in (name, *family.aliases.get(name, ())) if known in index), None)
        if stored is None:
            raise CheckpointError(
                f"config.json and weights disagree: the config implies {name} {list(shape)}, which is not stored; {_FIX}"
            )
        _same_shape(name, shape, stored)
    tied = family.tied_shapes(config)
    for name, stored in index.items():
        if name in tied:
            _same_shape(name, tied[name], stored)
        elif name not in expected and _LAYER_TENSOR.match(name) and not _UNREAD.search(name):
            raise CheckpointError(
                f"config.json and weights disagree: {name} {list(stored.shape)} is stored, but the config implies no "
                f"such tensor; {_FIX}"
            )


def _same_shape(name: str, shape: tuple[int, ...], stored: TensorInfo) -> None:
    if stored.shape != shape:
        raise CheckpointError(
            f"config.json and weights disagree at {name}: the config implies {list(shape)}, stored is "
            f"{list(stored.shape)}; {_FIX}"
        )
