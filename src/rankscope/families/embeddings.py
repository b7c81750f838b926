"""Embeddings by name and shape: a table of tokens, a residual MLP over patches, or one matrix over patches."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankscope.families.record import Config, Shapes
from rankscope.families.sites import Site, Stack

_NAMED = re.compile(r"emb|wte|shared|tok|patch|value_projection|input", re.IGNORECASE)
_OTHERS = re.compile(
    r"pos|type|relative|segment|freq|norm|head|output_p|horizon|cls|classifier|embed_out", re.IGNORECASE
)
_SPECIAL = 8
"""A table of so few rows holds special tokens, no vocabulary."""
_MLP = {"residual": "patch_residual", "output": "patch_out"}


def embedding_sites(shapes: Shapes, config: Config, d_model: int) -> tuple[Site, ...]:
    """Sites of the embedding: a table of tokens where there is one, else what embeds patches.

    Args:
        shapes: of every tensor outside the layers.
        config: the content of ``config.json``: the size of the vocabulary.
        d_model: width of the residual stream.
    """
    named = {
        name: shape
        for name, shape in shapes.items()
        if name.endswith(".weight") and len(shape) >= 2 and _NAMED.search(name) and not _OTHERS.search(name)
    }
    table = _table(named, config, d_model)
    if table is not None:
        return (Site(table, "encoder", None, "embedding"),)
    return tuple(_residual(named, d_model)) or tuple(_single(named, d_model))


def _table(shapes: Shapes, config: Config, d_model: int) -> str | None:
    widths = {d_model, config.get("embedding_size"), config.get("word_embed_proj_dim")}
    tables = [
        name
        for name, shape in shapes.items()
        if len(shape) == 2 and shape[1] in widths and shape[0] > _SPECIAL and _is_table(name, shape, config, d_model)
    ]
    exact = [name for name in tables if shapes[name][0] == config.get("vocab_size")]
    return min(exact or tables, key=lambda name: (len(name), name), default=None)


def _is_table(name: str, shape: tuple[int, ...], config: Config, d_model: int) -> bool:
    """A matrix of a patch embedding may be as wide as a table: the config's vocabulary, or the name, decides."""
    if isinstance(config.get("vocab_size"), int):
        return shape[0] == config["vocab_size"]
    return bool(re.search(r"wte|shared|tok|word|emb[^.]*\.weight$", name)) and shape[0] > d_model


def _residual(shapes: Shapes, d_model: int) -> Iterator[Site]:
    modules: dict[str, dict[str, str]] = {}
    for name in shapes:
        module, _, leaf = name.removesuffix(".weight").rpartition(".")
        role = next((role for word, role in _MLP.items() if word in leaf), "patch_in")
        modules.setdefault(module, {})[role] = name
    for parts in modules.values():
        if set(parts) == {"patch_in", "patch_out", "patch_residual"}:
            inner, outer, residual = (shapes[parts[role]] for role in ("patch_in", "patch_out", "patch_residual"))
            if outer[0] == residual[0] == d_model and inner[1] == residual[1] and outer[1] == inner[0]:
                for role in ("patch_in", "patch_out", "patch_residual"):
                    yield Site(parts[role], _stack(parts[role]), None, role)


def _single(shapes: Shapes, d_model: int) -> Iterator[Site]:
    """One matrix from patches, values or pixels to the residual stream, per stack."""
    fitting = [name for name, shape in sorted(shapes.items()) if shape[0] == d_model]
    for stack in ("encoder", "decoder"):
        mine = [name for name in fitting if _stack(name) == stack]
        if mine:
            yield Site(min(mine, key=len), _stack(mine[0]), None, "patch_in")


def _stack(name: str) -> Stack:
    return "decoder" if "decoder" in name else "encoder"
