"""Sites and shapes of transformer layers: the usual ones by the names of their matrices, and T5's stacks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from rankscope.errors import CheckpointError
from rankscope.families.record import Config, Shapes, positive
from rankscope.families.sites import Site, Stack
from rankscope.families.weight_layout import HeadWidth, head_widths, hidden_units

SEPARATE = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}
"""Names of the four projections in most of transformers."""

STACK_LAYERS: Mapping[Stack, str] = {"encoder": "num_layers", "decoder": "num_decoder_layers"}
"""Fields of T5's config that count the layers of each stack."""


@dataclass(frozen=True)
class Heads:
    """Heads of an attention.

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
        CheckpointError: the width is not a multiple of their number.
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


def attention_sites(module: str, stack: Stack, layer: int, scope: str, config: Config) -> tuple[Site, ...]:
    """Sites of the four matrices of one attention module; ``scope`` is ``self``, ``cross`` or ``group``."""
    heads, width = positive(config, "num_heads"), positive(config, "d_kv")
    layout = head_widths(config, module, heads) or HeadWidth((width,) * heads, (width,) * heads)
    sites = []
    for letter in "qkvo":
        widths = layout.of(letter)
        same = len(set(widths)) == 1
        sites.append(
            Site(
                f"{module}.{letter}.weight",
                stack,
                layer,
                f"{scope}.{letter}",
                heads,
                widths[0] if same else None,
                int(letter == "o"),
                () if same else widths,
            )
        )
    return tuple(sites)


def gated(config: Config) -> bool:
    """Return True if the MLPs are gated, as in T5 v1.1 (``feed_forward_proj`` of ``gated-gelu``)."""
    return str(config.get("feed_forward_proj", "relu")).startswith("gated")


def has_decoder(config: Config) -> bool:
    """Return True if the checkpoint holds a decoder; encoder-only T5 checkpoints do not."""
    return config.get("is_encoder_decoder") is not False and config.get("architectures") != ["T5EncoderModel"]


def depth(config: Config, stack: Stack) -> int:
    """Return the number of layers of a stack; a decoder without its own number is as deep as the encoder."""
    layers = positive(config, STACK_LAYERS["encoder"])
    if stack == "encoder":
        return layers
    return positive(config, STACK_LAYERS[stack], layers) if has_decoder(config) else 0


def stack_sites(config: Config) -> tuple[Site, ...]:
    """Attention and MLP sites of both stacks in the order of computation."""
    return tuple(_stack_sites(config))


def _stack_sites(config: Config) -> Iterator[Site]:
    stacks: tuple[Stack, ...] = ("encoder", "decoder")
    for stack in stacks:
        for layer in range(depth(config, stack)):
            block = f"{stack}.block.{layer}.layer"
            yield from attention_sites(f"{block}.0.SelfAttention", stack, layer, "self", config)
            last = 1
            if stack == "decoder":
                yield from attention_sites(f"{block}.1.EncDecAttention", stack, layer, "cross", config)
                last = 2
            mlp = f"{block}.{last}.DenseReluDense"
            if gated(config):
                # wi_0 passes through the activation and scales wi_1's output: it is the gate.
                yield Site(f"{mlp}.wi_0.weight", stack, layer, "mlp_gate")
                yield Site(f"{mlp}.wi_1.weight", stack, layer, "mlp_in")
            else:
                yield Site(f"{mlp}.wi.weight", stack, layer, "mlp_in")
            yield Site(f"{mlp}.wo.weight", stack, layer, "mlp_out")


def layer_shape(site: Site, config: Config) -> tuple[int, int]:
    """Shape (out, in) of an attention or MLP matrix by its role."""
    d_model = positive(config, "d_model")
    if site.kind == "attention":
        inner = sum(site.head_widths)
        return (d_model, inner) if site.head_axis == 1 else (inner, d_model)
    d_ff = hidden_units(config, site.block, positive(config, "d_ff"))
    return (d_model, d_ff) if site.role == "mlp_out" else (d_ff, d_model)


def stack_shapes(config: Config) -> Shapes:
    """Shapes of every tensor of both stacks: matrices, layer norms and relative position biases."""
    shapes: Shapes = {site.name: layer_shape(site, config) for site in stack_sites(config)}
    d_model = positive(config, "d_model")
    bias = (positive(config, "relative_attention_num_buckets", 32), positive(config, "num_heads"))
    stacks: tuple[Stack, ...] = ("encoder", "decoder")
    for stack in stacks:
        layers = depth(config, stack)
        if not layers:
            continue
        shapes[f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"] = bias
        for layer in range(layers):
            for part in range(3 if stack == "decoder" else 2):
                shapes[f"{stack}.block.{layer}.layer.{part}.layer_norm.weight"] = (d_model,)
        shapes[f"{stack}.final_layer_norm.weight"] = (d_model,)
    return shapes


def patch_sites() -> tuple[Site, ...]:
    """Sites of the two-layer residual MLP that embeds patches (Theorem 2's W1, W2 and W3)."""
    return _residual_sites("input_patch_embedding", "encoder", "patch")


def head_sites(stack: Stack) -> tuple[Site, ...]:
    """Sites of the two-layer residual MLP that turns a state into quantiles of a patch."""
    return _residual_sites("output_patch_embedding", stack, "head")


def _residual_sites(block: str, stack: Stack, role: str) -> tuple[Site, ...]:
    parts = {"hidden_layer": "in", "output_layer": "out", "residual_layer": "residual"}
    return tuple(Site(f"{block}.{part}.weight", stack, None, f"{role}_{word}") for part, word in parts.items())


def residual_shapes(config: Config, name: str, d_in: int, d_out: int) -> Shapes:
    """Shapes of the weights and biases of one residual MLP."""
    shapes: Shapes = {}
    d_hidden = hidden_units(config, name, positive(config, "d_ff"))
    layers = {
        "hidden_layer": (d_hidden, d_in),
        "output_layer": (d_out, d_hidden),
        "residual_layer": (d_out, d_in),
    }
    for layer, shape in layers.items():
        shapes[f"{name}.{layer}.weight"] = shape
        shapes[f"{name}.{layer}.bias"] = shape[:1]
    return shapes


def stack_blocks(module: nn.Module) -> dict[str, list[nn.Module]]:
    """List the layers of each stack that a module has."""
    stacks: dict[str, Any] = {name: getattr(module, name, None) for name in ("encoder", "decoder")}
    return {name: list(stack.block) for name, stack in stacks.items() if stack is not None}


def teacher_forced(tokens: Tensor, mask: Tensor, start: int) -> dict[str, Any]:
    """Keyword arguments of one pass in which the decoder reads the encoder's tokens, shifted.

    Keys and values are not kept: of wide models a cache that nobody reads takes more memory than all else.
    """
    return {"input_ids": tokens, "attention_mask": mask, **decoder_reads(tokens, mask, start), "use_cache": False}


def decoder_reads(tokens: Tensor, mask: Tensor, start: int) -> dict[str, Tensor]:
    """Keyword arguments by which a decoder reads tokens (series, tokens), shifted; a mask where some are padding."""
    inputs = {"decoder_input_ids": shift_right(tokens, start)}
    if not bool(mask[:, :-1].all()):  # nobody reads the last one
        inputs["decoder_attention_mask"] = shift_right(mask, 1)
    return inputs


def forecast_only(inputs: dict[str, Any]) -> dict[str, Any]:
    """Leave out what the decoder read, and a mask that shuts out nothing.

    With one, every attention makes a bias of its own for every series.
    """
    mask = inputs.get("attention_mask")
    unused = {"decoder_input_ids", "decoder_attention_mask"}
    if mask is not None and bool(mask.all()):
        unused.add("attention_mask")
    return {name: value for name, value in inputs.items() if name not in unused}


def shift_right(tokens: Tensor, start: int) -> Tensor:
    """Decoder input of teacher forcing: the tokens one place later, after the start token."""
    shifted = tokens.roll(1, dims=-1)
    shifted[..., 0] = start
    return shifted
