"""Models whose residual streams are narrower than ``d_model``, every point at its own width.

A norm divides by √(Σx²/d_model + ε) whatever its width k is: the stock norm does so with ε·d_model/k and √(k/d_model)
in its gain, which the matrices that read it have taken up. So norms, projections and tables are the stock ones, of
other shapes; new is the matrix on every skip connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.t5.modeling_t5 import T5LayerCrossAttention, T5LayerFF, T5LayerSelfAttention

from rankscope.errors import CheckpointError
from rankscope.families.stream import DECODER_TABLE, SKIP, TABLE, Axes, points, sliced, stream_axes

TIED = {"encoder.embed_tokens.weight": TABLE}
"""Weights that stay tied; the decoder's table and the head have coordinates of their own."""


class SlicedLayer(nn.Module):
    """A sublayer x ↦ skip·x + f(norm(x)) from the coordinates of its own point to those of the next.

    Args:
        stock: the sublayer whose modules it takes over.
        skip: (d_next, d_own).
    """

    layer_norm: Any
    dropout: Any

    def __init__(self, stock: nn.Module, skip: nn.Linear) -> None:
        super().__init__()
        for name, child in stock.named_children():
            self.add_module(name, child)
        self.skip = skip

    def added(
        self, x: Float[Tensor, "*batch tokens d_own"], update: Float[Tensor, "*batch tokens d_next"]
    ) -> Float[Tensor, "*batch tokens d_next"]:
        """Carry the stream over and add an update."""
        carried: Tensor = self.skip(x.to(self.layer_norm.weight.dtype))  # T5 in float16 has `wo`, so x, in float32
        return carried + self.dropout(update)


class SlicedSelfAttention(SlicedLayer):
    """T5's self-attention; called and answered as the stock sublayer is."""

    SelfAttention: Any

    def forward(self, hidden_states: Tensor, attention_mask: Tensor | None = None, **kwargs: Any) -> tuple[Any, ...]:
        """Attend to the tokens themselves."""
        update, *rest = self.SelfAttention(self.layer_norm(hidden_states), mask=attention_mask, **kwargs)
        return (self.added(hidden_states, update), *rest)


class SlicedCrossAttention(SlicedLayer):
    """T5's cross-attention; called and answered as the stock sublayer is."""

    EncDecAttention: Any

    def forward(
        self, hidden_states: Tensor, key_value_states: Tensor, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Attend to the encoder's output."""
        update, *rest = self.EncDecAttention(
            self.layer_norm(hidden_states), mask=attention_mask, key_value_states=key_value_states, **kwargs
        )
        return (self.added(hidden_states, update), *rest)


class SlicedFeedForward(SlicedLayer):
    """MLP of T5, or of Chronos-2, whose module has another name."""

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Apply the MLP."""
        dense: Any = self.mlp if hasattr(self, "mlp") else self.DenseReluDense
        return self.added(hidden_states, dense(self.layer_norm(hidden_states)))


LAYERS: dict[type, type[SlicedLayer]] = {
    T5LayerSelfAttention: SlicedSelfAttention,
    T5LayerCrossAttention: SlicedCrossAttention,
    T5LayerFF: SlicedFeedForward,
}
"""Sliced sublayer by stock class, of T5 and Chronos-Bolt."""


def slice_stream(
    model: PreTrainedModel, widths: Mapping[str, int], layers: Mapping[type, type[SlicedLayer]] = LAYERS
) -> None:
    """Give a freshly built stock model streams of these widths, before any other of its layers is replaced.

    Raises:
        CheckpointError: the widths are those of other points, or a sublayer is of a kind that is not known here.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    narrow = sliced(shapes, widths)
    if DECODER_TABLE in narrow:
        _stack(model, "decoder").set_input_embeddings(_like(model.get_submodule("shared"), narrow[DECODER_TABLE]))
        model._tied_weights_keys = TIED if isinstance(model._tied_weights_keys, dict) else list(TIED)  # type: ignore[assignment]
    for name, axes in stream_axes(shapes).items():
        module, _, kind = name.rpartition(".")
        if kind == "weight" and name not in (DECODER_TABLE, *TIED) and not module.endswith(f".{SKIP}"):
            _replace(model, module, narrow[name], axes, int(model.config.d_model))
    if DECODER_TABLE in narrow:
        _stack(model, "encoder").set_input_embeddings(model.get_submodule("shared"))
    for point, after in points(shapes).items():
        if after is not None:
            _put_skip(model, point, (widths[after], widths[point]), layers)


def _stack(model: nn.Module, name: str) -> Any:
    return model.get_submodule(name)


def initialise_skips(model: nn.Module) -> None:
    """Make every skip connection pass on as many coordinates as both of its ends have."""
    for layer in model.modules():
        if isinstance(layer, SlicedLayer):
            nn.init.eye_(layer.skip.weight)


def _replace(model: nn.Module, name: str, shape: tuple[int, ...], axes: Axes, d_model: int) -> None:
    parent, _, child = name.rpartition(".")
    stock: Any = model.get_submodule(name)
    if axes.norm is None:
        made = _like(stock, shape)
    else:
        like = {"device": stock.weight.device, "dtype": stock.weight.dtype}
        made = type(stock)(shape[0], eps=stock.variance_epsilon * d_model / shape[0]).to(**like)
    setattr(model.get_submodule(parent), child, made)


def _like(stock: Any, shape: tuple[int, ...]) -> nn.Module:
    like: dict[str, Any] = {"device": stock.weight.device, "dtype": stock.weight.dtype}
    if isinstance(stock, nn.Embedding):
        return nn.Embedding(shape[0], shape[1], **like)
    return nn.Linear(shape[1], shape[0], bias=stock.bias is not None, **like)


def _put_skip(model: nn.Module, point: str, shape: tuple[int, int], layers: Mapping[type, type[SlicedLayer]]) -> None:
    parent, _, number = point.rpartition(".")
    container: Any = model.get_submodule(parent)
    stock: Any = container[int(number)]
    kind = layers.get(type(stock))
    if kind is None:
        raise CheckpointError(f"config.json: rankscope.stream names {point}, no sublayer that a stream can be cut at.")
    like = stock.layer_norm.weight
    skip = nn.Linear(shape[1], shape[0], bias=False, device=like.device, dtype=like.dtype)
    container[int(number)] = kind(stock, skip)
