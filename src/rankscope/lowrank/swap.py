"""The swap that puts factored layers into a stock module, and how they are initialised."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from rankscope.errors import CheckpointError
from rankscope.lowrank.layout import factored_ranks
from rankscope.lowrank.linear import FactoredLinear


def factor_model(model: PreTrainedModel, config: PretrainedConfig) -> None:
    """Finish a freshly built stock model: swap the sites that ``config.rankscope`` names and initialise them.

    Raises:
        CheckpointError: the block is unreadable or does not fit the model.
    """
    ranks = factored_ranks(config.rankscope)
    factor_modules(model, ranks, d_head=config.d_kv, factor=config.initializer_factor)
    model.post_init()
    # Not through `_init_weights`: transformers 5 asks the stock encoder and decoder, which do not know the
    # layer, and gives every child Linear one generic law. On the meta device, and while 4.x loads, this
    # draws nothing.
    for layer in model.modules():
        if isinstance(layer, FactoredLinear):
            initialise_factors(layer)


def initialise_factors(layer: FactoredLinear) -> None:
    """Draw both factors from one normal law so that every entry of up·down has variance ``init_std``².

    An entry is a sum of rank products, so each factor has variance init_std/√rank: balanced, like an SVD's.
    """
    std = (layer.init_std / layer.rank**0.5) ** 0.5
    for weight in (layer.down.weight, layer.up.weight):
        nn.init.normal_(weight, mean=0.0, std=std)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def stock_std(name: str, d_in: int, d_head: int, factor: float) -> float:
    """Standard deviation T5 and the Chronos models give a dense weight: factor/√d_in, queries also /√d_head.

    >>> stock_std("encoder.block.0.layer.0.SelfAttention.q", 64, 16, 1.0) == (64 * 16) ** -0.5
    True
    """
    width = d_in * d_head if name.rsplit(".", 1)[-1] == "q" else d_in
    return factor * width**-0.5


def factor_modules(model: nn.Module, ranks: Mapping[str, int], *, d_head: int, factor: float) -> None:
    """Put a `FactoredLinear` of the given rank in place of every named ``nn.Linear`` of ``model``.

    Raises:
        CheckpointError: a name is no linear layer of the model, or its rank does not fit.
    """
    for name, rank in ranks.items():
        try:
            linear = model.get_submodule(name)
        except AttributeError:
            linear = None
        if not isinstance(linear, nn.Linear):
            raise CheckpointError(f"config.json: rankscope.sites names {name}, no linear layer of the model.")
        d_in, d_out = linear.in_features, linear.out_features
        if rank > min(d_in, d_out):
            raise CheckpointError(f"config.json: site {name}: rank {rank} exceeds its {d_out}×{d_in} matrix.")
        layer = FactoredLinear(
            d_in,
            d_out,
            rank,
            bias=linear.bias is not None,
            init_std=stock_std(name, d_in, d_head, factor),
            device=linear.weight.device,
            dtype=linear.weight.dtype,
        )
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, layer)
