"""Where a module made of the lab's blocks keeps its layers and its matrices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from rankscope_lab.blocks import FeedForward, LearnedPositions, MultiHeadAttention, MultiplicativePositions
from rankscope_lab.blocks.layers import ProjectionBlock

ATTENTION, PROJECTION, FEED_FORWARD = "attention", "projection", "feed_forward"
EMBEDDING, POSITION, CODEBOOK, HEAD, OTHER = "embedding", "position", "codebook", "head", "other"
_MIXERS = (MultiHeadAttention, ProjectionBlock, FeedForward)


@dataclass(frozen=True)
class Layer:
    """One layer of a stack.

    Attributes:
        name: path of its module.
        stack: path of the list that holds it; empty for a layer that stands alone.
        index: its place in the stack, from 0.
        kind: what it mixes or maps with: ``attention``, ``projection``, or ``feed_forward`` alone.
        module: the block.
    """

    name: str
    stack: str
    index: int
    kind: str
    module: nn.Module

    @property
    def feed_forward(self) -> nn.Module | None:
        """Its feed-forward half, the first if it has several."""
        return next((part for part in self.module.modules() if isinstance(part, FeedForward)), None)


@dataclass(frozen=True)
class Weight:
    """One matrix of a model, as it stands in its parameter.

    Attributes:
        name: path of its parameter; ``q``, ``k`` or ``v`` is added to that of a packed matrix.
        role: ``q``, ``k``, ``v``, ``o``, ``projection``, ``inner``, ``outer`` (feed-forward), ``embedding``,
            ``position``, ``codebook``, ``head`` or ``other``.
        layer: the layer it belongs to; none outside of layers.
        matrix: a view of its numbers; kernels of convolutions are unrolled to one row per output channel.
        heads: of attention; 1 elsewhere.
        head_axis: 0 where heads are groups of rows, 1 where they are groups of columns.
    """

    name: str
    role: str
    layer: Layer | None
    matrix: Float[Tensor, "d_out d_in"]
    heads: int = 1
    head_axis: int = 0


def layers_of(model: nn.Module) -> tuple[Layer, ...]:
    """Layers in the order in which they were registered: blocks of attention, of projection, or of feed-forward.

    A layer is the innermost element of a list (``ModuleList``, ``Sequential``) that holds one of the three, or a
    block that stands alone.
    """
    names = dict(model.named_modules())
    found = [name for name, module in names.items() if _is_layer(name, module, names)]
    outer = {name for name in found for other in found if other != name and _inside(other, name)}
    counts: dict[str, int] = {}
    layers = []
    for name in found:
        if name in outer:
            continue
        stack = name.rpartition(".")[0] if _in_list(name, names) else name
        layers.append(Layer(name, stack, counts.get(stack, 0), _kind(names[name]), names[name]))
        counts[stack] = counts.get(stack, 0) + 1
    return tuple(layers)


def weights_of(model: nn.Module) -> tuple[Weight, ...]:
    """Every matrix of at least two rows and two columns, in the order in which they were registered."""
    layers = layers_of(model)
    found = []
    before = True
    for name, module in model.named_modules():
        layer = next((one for one in layers if _inside(name, one.name)), None)
        before = before and layer is None
        outside = OTHER if not layers else EMBEDDING if before else HEAD
        found += [weight for weight in _weights(name, module, layer, outside) if min(weight.matrix.shape) > 1]
    last = max((position for position, weight in enumerate(found) if weight.layer), default=-1)
    return tuple(
        Weight(one.name, OTHER, None, one.matrix) if one.role == HEAD and position < last else one
        for position, one in enumerate(found)
    )


def _weights(name: str, module: nn.Module, layer: Layer | None, outside: str) -> Iterator[Weight]:
    if isinstance(module, MultiHeadAttention):
        packed = module.in_proj_weight.detach()
        for role, matrix in zip("qkv", packed.chunk(3), strict=True):
            yield Weight(f"{name}.in_proj_weight.{role}", role, layer, matrix, module.heads)
        return
    for key, parameter in module.named_parameters(recurse=False):
        if parameter.ndim < 2:
            continue
        full = f"{name}.{key}" if name else key
        if name.endswith("out_proj") and layer is not None and layer.kind == ATTENTION:
            yield Weight(full, "o", layer, parameter.detach(), _heads_of(layer.module, name), 1)
        else:
            yield Weight(full, _role(name, module, layer, outside), layer, parameter.detach().flatten(1))


def _role(name: str, module: nn.Module, layer: Layer | None, outside: str) -> str:
    last = name.rpartition(".")[2]
    if isinstance(module, (LearnedPositions, MultiplicativePositions)):
        return POSITION
    if last == CODEBOOK:
        return CODEBOOK
    if layer is not None:
        return last if last in (PROJECTION, "inner", "outer") else OTHER
    return EMBEDDING if isinstance(module, nn.Embedding) else outside


def _heads_of(block: nn.Module, name: str) -> int:
    """Heads of the attention whose output map has this path."""
    for inside, part in block.named_modules():
        if isinstance(part, MultiHeadAttention) and name.endswith(f"{inside}.out_proj" if inside else "out_proj"):
            return part.heads
    return 1


def _inside(name: str, holder: str) -> bool:
    return not holder or name == holder or name.startswith(f"{holder}.")


def _is_layer(name: str, module: nn.Module, names: dict[str, nn.Module]) -> bool:
    if isinstance(module, _MIXERS) and not isinstance(module, ProjectionBlock):
        return False
    if not any(isinstance(part, _MIXERS) for part in module.modules()):
        return False
    return _in_list(name, names) or any(isinstance(part, _MIXERS) for part in (module, *module.children()))


def _in_list(name: str, names: dict[str, nn.Module]) -> bool:
    holder = names.get(name.rpartition(".")[0]) if name else None
    return isinstance(holder, (nn.ModuleList, nn.Sequential)) and not isinstance(holder, FeedForward)


def _kind(module: nn.Module) -> str:
    parts = list(module.modules())
    if any(isinstance(part, MultiHeadAttention) for part in parts):
        return ATTENTION
    return PROJECTION if any(isinstance(part, ProjectionBlock) for part in parts) else FEED_FORWARD
