"""Sites and shapes of the usual transformer layer, by the names that a family gives its matrices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from rankscope.errors import CheckpointError
from rankscope.families._record import Config, Shapes, Site, Stack, positive

SEPARATE = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}
"""Names of the four projections in most of transformers."""


@dataclass(frozen=True)
class Heads:
    """How an attention splits.

    Attributes:
        count: heads of q and o.
        width: of one head.
        keys: heads of k and v, where queries share them.
    """

    count: int
    width: int
    keys: int

    def of(self, letter: str) -> int:
        """Heads of the matrix q, k, v or o."""
        return self.keys if letter in "kv" else self.count


def equal_heads(config: Config, d_model: int, key: str = "num_attention_heads") -> Heads:
    """Heads that split the width of the model among them.

    Raises:
        CheckpointError: the width is no multiple of their number.
    """
    count = positive(config, key)
    if d_model % count:
        raise CheckpointError(
            f"config.json: {key} {count} does not divide the width {d_model}; "
            f"use the config.json that was saved with the weights."
        )
    return Heads(count, d_model // count, count)


def attention(
    module: str, stack: Stack, layer: int, heads: Heads, scope: str = "self", names: Mapping[str, str] = SEPARATE
) -> tuple[Site, ...]:
    """Sites of the four matrices of one attention, whose tensors are ``<module>.<name>.weight``."""
    return tuple(
        Site(
            f"{module}.{name}.weight",
            stack,
            layer,
            f"{scope}.{letter}",
            heads.of(letter),
            heads.width,
            int(letter == "o"),
        )
        for letter, name in names.items()
    )


def bert_layers(config: Config, names: Mapping[str, str]) -> tuple[Site, ...]:
    """Sites of an encoder of BERT's layout; ``names`` are those of the four projections in its attention."""
    split = equal_heads(config, positive(config, "hidden_size"))
    sites: list[Site] = []
    for layer in range(positive(config, "num_hidden_layers")):
        block = f"encoder.layer.{layer}"
        sites += attention(f"{block}.attention", "encoder", layer, split, names=names)
        sites.append(Site(f"{block}.intermediate.dense.weight", "encoder", layer, "mlp_in"))
        sites.append(Site(f"{block}.output.dense.weight", "encoder", layer, "mlp_out"))
    return tuple(sites)


def matrix_shapes(sites: tuple[Site, ...], d_model: int, d_ff: int) -> Shapes:
    """Shapes of attention and MLP matrices by their roles; the others are left out."""
    shapes: Shapes = {}
    for site in sites:
        if site.kind == "attention":
            inner = sum(site.head_widths)
            shapes[site.name] = (d_model, inner) if site.head_axis == 1 else (inner, d_model)
        elif site.kind == "mlp":
            shapes[site.name] = (d_model, d_ff) if site.role == "mlp_out" else (d_ff, d_model)
    return shapes


def pattern(name: str) -> str:
    """Regular expression of a tensor's name in any layer.

    >>> pattern("layers.3.fc1.weight")
    'layers\\\\.\\\\d+\\\\.fc1\\\\.weight'
    """
    return re.sub(r"(?<=\\\.)\d+(?=\\\.)", lambda _: r"\d+", re.escape(name))


def layers_at(module: Any, *paths: str) -> list[nn.Module]:
    """Return the layers of a module, under the first of the paths that it has; releases of transformers differ."""
    for path in paths:
        found = module
        for part in path.split("."):
            found = getattr(found, part, None)
            if found is None:
                break
        if found is not None:
            return list(found)
    raise AttributeError(f"{type(module).__name__} has none of {', '.join(paths)}")
