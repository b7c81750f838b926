"""Context-managed hooks on layer inputs: whole matrices, triangular factors.

Every hook is removed when its ``with`` block ends, whatever happens inside it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from rankscope.engine import Progress, silent

_INPUTS = ("hidden_states", "hidden_state")

LayerKey = tuple[str, int]
"""Stack ("encoder" or "decoder") and layer index."""


@runtime_checkable
class Sink(Protocol):
    """Receiver of the rows of one module's input, call after call."""

    def add(self, rows: Float[Tensor, "tokens d_model"]) -> None:
        """Take the rows of one forward pass."""


K = TypeVar("K", bound=Hashable)
S = TypeVar("S", bound=Sink)


class Rows:
    """Every row as it came, in the model's own dtype, on the CPU; memory grows with the corpus."""

    def __init__(self) -> None:
        self._parts: list[Tensor] = []

    def add(self, rows: Float[Tensor, "tokens d_model"]) -> None:
        """Keep a copy of the rows."""
        self._parts.append(rows.to("cpu", copy=True))

    @property
    def matrix(self) -> Float[Tensor, "tokens d_model"]:
        """All rows in the order they came; an error before the first forward pass."""
        return torch.cat(self._parts)


class Triangle:
    """The R of a streamed QR in float64: the singular values of all rows in d_model² numbers.

    Unlike a Gram matrix it does not square the condition number, so small σ keep their digits.
    """

    def __init__(self) -> None:
        self.tokens = 0
        self._r: Tensor | None = None

    def add(self, rows: Float[Tensor, "tokens d_model"]) -> None:
        """Fold the rows into R: R ← qr([R; rows]).R."""
        stacked = rows.to(torch.float64)
        self.tokens += rows.shape[0]
        if self._r is not None:
            stacked = torch.cat([self._r, stacked])
        self._r = torch.linalg.qr(stacked, mode="r").R

    @property
    def r(self) -> Float[Tensor, "k d_model"]:
        """The triangular factor, k = min(tokens, d_model); an error before the first forward pass."""
        if self._r is None:
            raise RuntimeError("no forward pass has run yet")
        return self._r


@contextlib.contextmanager
def watch(modules: Mapping[K, nn.Module], sink: Callable[[], S]) -> Iterator[dict[K, S]]:
    """Feed every module's input rows to a sink of its own while the block runs.

    The input is the first positional argument, or ``hidden_states`` (PatchTST: ``hidden_state``) where it comes by
    keyword. Positions that the module's own ``attention_mask`` marks as padding are left out.
    """
    sinks = {key: sink() for key in modules}
    handles = []
    try:
        for key, module in modules.items():
            hook = _feed(sinks[key])
            handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))
        yield sinks
    finally:
        for handle in handles:
            handle.remove()


def stream_triangles(
    blocks: Mapping[str, Sequence[nn.Module]],
) -> contextlib.AbstractContextManager[dict[LayerKey, Triangle]]:
    """Keep the triangular factor of every layer's input matrix: exact singular values, memory d_model².

    Args:
        blocks: layer blocks of every stack, as ``family.blocks(module)`` gives them.
    """
    layers = {(stack, layer): block for stack, rows in blocks.items() for layer, block in enumerate(rows)}
    return watch(layers, Triangle)


@torch.no_grad()
def run_corpus(
    module: nn.Module,
    inputs: Callable[[nn.Module, Tensor], Mapping[str, Any]],
    series: Shaped[Tensor, items * axes],
    *,
    batch_size: int = 32,
    progress: Progress | None = None,
) -> None:
    """Run the module once over every series, in batches; what a surrounding ``with`` watches is its result.

    Args:
        module: a model in eval mode.
        inputs: ``family.model_inputs``: keyword arguments of ``module.forward`` for a batch of series.
        series: corpus: series, token ids or images.
        batch_size: series per forward pass.
        progress: called with the number of series done.
    """
    report = progress or silent
    for start in range(0, len(series), batch_size):
        report(start, len(series), "forward passes")
        module(**inputs(module, series[start : start + batch_size]))
    report(len(series), len(series), "forward passes")


def _feed(sink: Sink) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = (args[0] if args else next(kwargs[name] for name in _INPUTS if name in kwargs)).detach()
        kept = valid_positions(args, kwargs, x) if x.ndim == 3 else None
        sink.add(x[kept] if kept is not None else x.reshape(-1, x.shape[-1]))

    return hook


def valid_positions(
    args: Sequence[Any], kwargs: Mapping[str, Any], x: Float[Tensor, "series tokens d_model"]
) -> Bool[Tensor, "series tokens"] | None:
    """Positions that are no padding according to the mask a block was called with; None where it had none.

    Transformers hands blocks their mask as (series, heads or 1, queries or 1, keys), Boolean or additive: a
    key is real when any query may look at it. A two-dimensional mask of ones and zeros is taken as it stands.
    """
    mask = kwargs.get("attention_mask", args[1] if len(args) > 1 else None)
    if not isinstance(mask, Tensor) or mask.shape[-1] != x.shape[1]:
        return None
    if mask.ndim == 2:
        seen = mask > 0
    elif mask.ndim == 4:
        allowed = mask if mask.dtype == torch.bool else mask >= 0
        seen = allowed.any(dim=2).any(dim=1)
    else:
        return None
    return seen.to(x.device).expand(x.shape[0], -1)
