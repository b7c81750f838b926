"""Layers, matrices and biases of a lab model, by site."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor, nn

from rankscope.families import Site
from rankscope.families.sites import Part, Stack
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


def sites_of(model: nn.Module) -> dict[Site, Layer | None]:
    """Every matrix of at least two rows and two columns with its layer, in the order in which they were registered.

    Names are those of parameters; packed queries, keys and values are parts of one. Roles are the library's, and
    ``projection``, ``position``, ``codebook``, ``head`` and ``other``.
    """
    layers = layers_of(model)
    found: list[tuple[Site, Layer | None]] = []
    before = True
    for name, module in model.named_modules():
        layer = next((one for one in layers if _inside(name, one.name)), None)
        before = before and layer is None
        outside = OTHER if not layers else EMBEDDING if before else HEAD
        known = {site.name for site, _ in found}
        found += [(site, layer) for site in _sites(name, module, layer, outside) if site.name not in known]
    found = [(site, layer) for site, layer in found if min(matrix_of(model, site).shape) > 1]
    last = max((position for position, (_, layer) in enumerate(found) if layer), default=-1)
    return {
        replace(site, role=OTHER) if site.role == HEAD and position < last else site: layer
        for position, (site, layer) in enumerate(found)
    }


def matrix_of(model: nn.Module, site: Site) -> Float[Tensor, "d_out d_in"]:
    """View of the numbers of a site."""
    return site.cut(model.get_parameter(site.name).detach())


def bias_of(model: nn.Module, site: Site) -> Float[Tensor, " d_out"] | None:
    """View of the bias that is added to what the matrix of a site puts out; None without one."""
    bias = dict(model.named_parameters()).get(f"{site.name.removesuffix('weight')}bias")
    if bias is None or site.part is None:
        return None if bias is None else bias.detach()
    return bias.detach()[site.part.start : site.part.start + site.part.width]


def _sites(name: str, module: nn.Module, layer: Layer | None, outside: str) -> Iterator[Site]:
    path, index = f"{name}." if name else "", layer.index if layer else None
    stack: Stack = "decoder" if layer and "decoder" in layer.stack else "encoder"
    if isinstance(module, MultiHeadAttention):
        width, scope = module.out_proj.in_features, "cross" if "cross" in name.rpartition(".")[2] else "self"
        heads = (module.heads, width // module.heads)
        for place, letter in enumerate("qkv"):
            part = Part(place * width, width)
            yield Site(f"{path}in_proj_weight", stack, index, f"{scope}.{letter}", *heads, 0, part=part)
        yield Site(f"{path}out_proj.weight", stack, index, f"{scope}.o", *heads, 1)
        return
    for key, parameter in module.named_parameters(recurse=False):
        if parameter.ndim >= 2:
            yield Site(f"{path}{key}", stack, index, _role(name, module, layer, outside))


def _role(name: str, module: nn.Module, layer: Layer | None, outside: str) -> str:
    last = name.rpartition(".")[2]
    if isinstance(module, (LearnedPositions, MultiplicativePositions)):
        return POSITION
    if last == CODEBOOK:
        return CODEBOOK
    if layer is not None:
        return {PROJECTION: PROJECTION, "inner": "mlp_in", "outer": "mlp_out"}.get(last, OTHER)
    return EMBEDDING if isinstance(module, nn.Embedding) else outside


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
