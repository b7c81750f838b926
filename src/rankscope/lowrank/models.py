"""The swap that gives a stock module the layouts of its config, and T5 (Chronos-T5, text models) with it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    PretrainedConfig,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
)

from rankscope.errors import CheckpointError
from rankscope.families import FAMILIES, Factored, HeadWidth, Layout, Site, Width, read_layouts
from rankscope.families.stream import read_widths
from rankscope.families.weight_layout import linear_layers, read_storage
from rankscope.lowrank.linear import FactoredLinear, Int8Linear
from rankscope.lowrank.stream import LAYERS, SlicedLayer, initialise_skips, slice_stream

if TYPE_CHECKING:
    from chronos.chronos2.layers import MHA


def factor_model(
    model: PreTrainedModel, config: PretrainedConfig, sliced: Mapping[type, type[SlicedLayer]] = LAYERS
) -> None:
    """Finish a freshly built stock model: swap the sites that ``config.rankscope`` names and initialise them.

    Args:
        model: the stock model.
        config: its config, with the ``rankscope`` block.
        sliced: sublayers over a narrower residual stream by stock class.

    Raises:
        CheckpointError: the block is unreadable or does not fit the model.
    """
    layouts = read_layouts(config.rankscope)
    int8 = read_storage(config.rankscope) == "int8"
    named = int8 or any(isinstance(layout, Width) for layout in layouts.values())
    sites = FAMILIES[config.rankscope["family"]].sites(config.to_dict()) if named else ()
    widths = read_widths(config.to_dict())
    if widths:
        slice_stream(model, widths, sliced)
    widen_heads(model, layouts)
    narrow_blocks(model, sites, layouts)
    factor_modules(model, layouts, d_head=config.d_kv, factor=config.initializer_factor)
    model.post_init()
    # Not through `_init_weights`: transformers 5 asks the stock encoder and decoder, which do not know the
    # layers, and gives every child Linear one generic law. On the meta device, and while 4.x loads, this
    # draws nothing.
    for name, layout in layouts.items():
        layer = model.get_submodule(name)
        if isinstance(layout, HeadWidth):
            initialise_heads(layer, layout, config.initializer_factor)
    for layer in model.modules():
        if isinstance(layer, FactoredLinear):
            initialise_factors(layer)
    initialise_skips(model)
    if int8:
        round_layers(model, linear_layers(sites, layouts, config.rankscope))


def initialise_factors(layer: FactoredLinear) -> None:
    """Draw both factors from one normal law so that every entry of up·down has variance ``init_std``².

    An entry is a sum of rank products, so each factor has variance init_std/√rank: balanced, like an SVD's.
    """
    std = (layer.init_std / layer.rank**0.5) ** 0.5
    for weight in (layer.down.weight, layer.up.weight):
        nn.init.normal_(weight, mean=0.0, std=std)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def initialise_heads(attention: nn.Module, layout: HeadWidth, factor: float) -> None:
    """Draw the dense projections of a head-width attention by T5's law, at the layer's own widths.

    T5 draws queries with variance 1/(d_model·d_kv), so that scores do not depend on the width of the head, and outputs
    with 1/(heads·d_kv). Here d_kv is the head's own width, and heads·d_kv the sum of the heads' widths.
    """
    for letter, child in attention.named_children():
        if letter in ("q", "k", "v", "o") and isinstance(child, nn.Linear):
            widths = layout.of(letter)
            rows = child.weight.detach().split(widths if letter != "o" else child.out_features)
            for head, part in enumerate(rows):
                d_head = widths[head] if letter != "o" else 1
                nn.init.normal_(part, std=stock_std(letter, child.in_features, d_head, factor))


def stock_std(name: str, d_in: int, d_head: int, factor: float) -> float:
    """Standard deviation T5 and the Chronos models give a dense weight: factor/√d_in, queries also /√d_head.

    >>> stock_std("encoder.block.0.layer.0.SelfAttention.q", 64, 16, 1.0) == (64 * 16) ** -0.5
    True
    """
    width = d_in * d_head if name.rsplit(".", 1)[-1] == "q" else d_in
    return factor * width**-0.5


def widen_heads(model: nn.Module, layouts: Mapping[str, Layout]) -> None:
    """Put a `HeadWidthAttention`, in Chronos-2 a `HeadWidthMHA`, in place of every attention that has head widths.

    Raises:
        CheckpointError: a name is not an attention layer of the model, or lists another number of heads.
    """
    widths = {name: layout for name, layout in layouts.items() if isinstance(layout, HeadWidth)}
    if not widths:
        return
    from transformers.models.t5.modeling_t5 import T5Attention

    from rankscope.lowrank.heads import HeadWidthAttention

    for name, layout in widths.items():
        stock = _submodule(model, name)
        if isinstance(stock, T5Attention):
            stack = model.get_submodule(name.split(".")[0])
            _put(model, name, HeadWidthAttention(stock, stack.config, layout))
        elif _is_chronos2(stock):
            from rankscope.lowrank.chronos2_heads import HeadWidthMHA

            _put(model, name, HeadWidthMHA(stock, layout))
        else:
            raise CheckpointError(
                f"config.json: rankscope.sites gives head widths to {name}, not an attention layer of the model."
            )


def narrow_blocks(model: nn.Module, sites: Iterable[Site], layouts: Mapping[str, Layout]) -> None:
    """Put linear layers of the given number of hidden units into every feed-forward block that has a width.

    Raises:
        CheckpointError: a block is none of the model.
    """
    for site in sites:
        layout = layouts.get(site.block)
        if not isinstance(layout, Width) or site.hidden_axis is None:
            continue
        stock = _submodule(model, site.module)
        if not isinstance(stock, nn.Linear):
            raise CheckpointError(f"config.json: rankscope.sites gives a width to {site.block}, no block of the model.")
        units, like = layout.units, {"device": stock.weight.device, "dtype": stock.weight.dtype}
        d_in, d_out = (stock.in_features, units) if site.hidden_axis == 0 else (units, stock.out_features)
        _put(model, site.module, nn.Linear(d_in, d_out, stock.bias is not None, **like))


def _is_chronos2(layer: nn.Module | None) -> TypeGuard[MHA]:
    """Return True if a layer is Chronos-2's attention; a model without any need not import it."""
    known = sys.modules.get("chronos.chronos2.layers")
    return known is not None and isinstance(layer, known.MHA)


def factor_modules(model: nn.Module, layouts: Mapping[str, Layout], *, d_head: int, factor: float) -> None:
    """Put a `FactoredLinear` of the given rank in place of every ``nn.Linear`` of ``model`` that is to be factored.

    Raises:
        CheckpointError: a name is not a linear layer of the model, or its rank does not fit.
    """
    for name, layout in layouts.items():
        if not isinstance(layout, Factored):
            continue
        linear = _submodule(model, name)
        if not isinstance(linear, nn.Linear):
            raise CheckpointError(f"config.json: rankscope.sites names {name}, no linear layer of the model.")
        d_in, d_out = linear.in_features, linear.out_features
        if layout.rank > layout.largest(d_out, d_in):
            raise CheckpointError(f"config.json: site {name}: rank {layout.rank} exceeds its {d_out}×{d_in} matrix.")
        around = layouts.get(name.rpartition(".")[0])
        width = max(around.qk) if isinstance(around, HeadWidth) else d_head
        layer = FactoredLinear(
            d_in,
            d_out,
            layout.rank,
            heads=layout.heads,
            axis=layout.axis,
            bias=linear.bias is not None,
            init_std=stock_std(name, d_in, width, factor),
            device=linear.weight.device,
            dtype=linear.weight.dtype,
        )
        _put(model, name, layer)


def round_layers(model: nn.Module, names: Iterable[str]) -> None:
    """Put an `Int8Linear` in place of every ``nn.Linear`` of ``model`` that is named."""
    for name in names:
        layer = model.get_submodule(name)
        if isinstance(layer, nn.Linear):
            _put(model, name, Int8Linear(layer))


def restore_layers(model: nn.Module) -> None:
    """Replace every `Int8Linear` by a trainable ``nn.Linear`` of the same matrix, and adapt the config."""
    for name, layer in list(model.named_modules()):
        if isinstance(layer, Int8Linear):
            _put(model, name, layer.to_linear())
    config: Any = model.config
    config.rankscope = {key: value for key, value in config.rankscope.items() if key != "storage"}


def _submodule(model: nn.Module, name: str) -> nn.Module | None:
    try:
        return model.get_submodule(name)
    except AttributeError:
        return None


def _put(model: nn.Module, name: str, layer: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, layer)


class LowRankT5Config(T5Config):
    """`T5Config` plus ``rankscope``: how each module is stored."""

    model_type = "rankscope-t5"

    def __init__(self, rankscope: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**{"rankscope": rankscope, **kwargs})


class LowRankT5ForConditionalGeneration(T5ForConditionalGeneration):
    """The stock T5 with its modules stored as ``config.rankscope`` says: in factors, narrower, in int8."""

    config_class = LowRankT5Config

    def __init__(self, config: LowRankT5Config) -> None:
        super().__init__(config)
        factor_model(self, config)


AutoConfig.register(LowRankT5Config.model_type, LowRankT5Config, exist_ok=True)
AutoModelForSeq2SeqLM.register(LowRankT5Config, LowRankT5ForConditionalGeneration, exist_ok=True)
