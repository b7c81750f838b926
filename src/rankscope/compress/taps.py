"""Places in a model where terms are gated while it is probed: what passes there, and the answers' gradient by it."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.compress.calibration.passes import GROUP
from rankscope.engine.memory import Spool, on_disk, unload

if TYPE_CHECKING:
    from rankscope.compress.cut import Cut
    from rankscope.compress.joint import PairCut
    from rankscope.compress.methods import Decomposition
    from rankscope.compress.plan import Spectrum

HAIR = 1e-9
"""Share by which a term ranks below an equal one before it."""


class Tap(ABC):
    """One place in a model where terms can be gated: what passes there, and the answers' gradient by it.

    Attributes:
        module: name of the layer.
        before: whether the place is the layer's input; else it is its output.
        activations: of every term in this forward pass, once a `MatrixTap` has needed them.
        worth: squared gradients of the gates of all terms, by spectrum.
        scale: what a squared gradient counts for in the mean loss; None until a probe was shown.
    """

    worth: list[Float[Tensor, " k"]]
    scale: float | None = None

    def measured(self, cut: Cut, spectra: Sequence[Spectrum]) -> tuple[Cut, list[Spectrum]]:
        """The cut and its spectra with the worth of their terms.

        Args:
            cut: whose tap it is.
            spectra: as they are without a probe.
        """
        assert self.scale is not None
        pairs = zip(spectra, self.worth, strict=True)
        return cut, [replace(one, worth=falling(self.scale * worth)) for one, worth in pairs]

    def __init__(self, module: str, before: bool) -> None:
        self.module, self.before = module, before
        self.place: Any = None
        self.input: Any = None
        self.activations: Any = None

    @abstractmethod
    def take(self, gradient: Tensor, apart: Tensor) -> None:
        """Take the gradients of one backward pass.

        Args:
            gradient: of the score, by what passed.
            apart: number of every series' group; series of a group look at one another and share their gates.
        """

    def rows(self, x: Tensor, series: int) -> Float[Tensor, "series tokens d"]:
        """Positions by series, or all of them as one, where a place does not know which series they belong to."""
        x = x.detach().float()
        if GROUP in self.module:  # Chronos-2's group attentions: position by series
            x = x.transpose(0, 1)
        return x.reshape(series if x.shape[0] == series else 1, -1, x.shape[-1])

    @staticmethod
    def shared(each: Float[Tensor, "series ..."], apart: Tensor) -> Float[Tensor, "groups ..."]:
        """Sums over the series of every group."""
        if len(each) != len(apart):
            return each
        _, places = apart.unique(return_inverse=True)
        return each.new_zeros(int(places.max()) + 1, *each.shape[1:]).index_add(0, places, each)


class MatrixTap(Tap):
    """The terms of the matrix of one layer."""

    def __init__(self, module: str, terms: Decomposition) -> None:
        super().__init__(module, before=False)
        self.down, self.up = on_disk(terms.down.float()), on_disk(terms.up.float())
        self.worth = [torch.zeros(terms.up.shape[1], dtype=torch.float64)]

    def take(self, gradient: Tensor, apart: Tensor) -> None:
        """Activation of every term times the gradient along its output."""
        if self.activations is None:  # the same in all backward passes of a forward pass
            self.activations = self.rows(self.input, len(apart)).to(gradient) @ self.down.to(gradient).mT
        gates = (self.activations * (self.rows(gradient, len(apart)) @ self.up.to(gradient))).sum(dim=1)
        self.worth[0] += self.shared(gates, apart).double().square().sum(dim=0).cpu()
        unload(self.down, self.up)


class PairTap(Tap):
    """Terms between queries and keys, or values and outputs, of every head of one attention.

    Those of values and outputs are chosen when their gradients are known.
    """

    def __init__(self, module: str, cut: PairCut, inner: Sequence[Decomposition]) -> None:
        super().__init__(module, before=not inner)
        self.cut, self.inner, self.widths = cut, inner, cut.heads
        self.worth = [torch.zeros(width, dtype=torch.float64) for width in self.widths]
        self.kept = Spool()
        self.second = [torch.zeros(width, width, dtype=torch.float64) for width in self.widths]

    def take(self, gradient: Tensor, apart: Tensor) -> None:
        """Gradient of what would be inserted between the two matrices of every head."""
        shown, each = self.rows(self.place, len(apart)), self.rows(gradient, len(apart))
        heads = zip(shown.split(self.widths, dim=-1), each.split(self.widths, dim=-1), strict=True)
        kept: list[Tensor] = []
        for head, (x, g) in enumerate(heads):
            # gradient of what is inserted there, (groups, d_head, d_head)
            product = self.shared((x.mT @ g).float(), apart).cpu()
            if self.inner:
                self.worth[head] += _gated(product, self.inner[head].up, self.inner[head].down)
            else:
                flat = product.flatten(0, 1)
                self.second[head] += (flat.mT @ flat).double()
                kept.append(product.bfloat16().flatten(1))  # to be looked at along other terms
        if kept:
            self.kept.append(torch.cat(kept, dim=1))

    def measured(self, cut: Cut, spectra: Sequence[Spectrum]) -> tuple[Cut, list[Spectrum]]:
        """Make terms of values and outputs anew, in the norm of their output-gradient moment.

        They are chosen and priced with the same gradient samples, so on others those that are cut cost more.
        """
        if self.cut.pair == "vo":
            self.cut = replace(self.cut, gradients=self.gradients())
            inner = self.cut.terms({})
            self.along(inner)
            spectra = [replace(one, sigma=terms.sigma) for one, terms in zip(spectra, inner, strict=True)]
        return super().measured(self.cut, spectra)

    def gradients(self) -> tuple[Float[Tensor, "_ _"], ...]:
        """Output-gradient moment of every head, freed of the size of the input."""
        assert self.scale is not None
        sizes = [float(one.diagonal().sum()) for one in self.cut.attended()]
        pairs = zip(self.second, sizes, strict=True)
        return tuple(second * (self.scale / size if size > 0 else 0.0) for second, size in pairs)

    def along(self, inner: Sequence[Decomposition]) -> None:
        """Gate these terms by the gradients that were kept."""
        for kept in self.kept:
            heads = zip(kept.split([width**2 for width in self.widths], dim=1), self.widths, inner, strict=True)
            for head, (product, width, terms) in enumerate(heads):
                # rows pass values first, then outputs
                square = product.float().unflatten(1, (width, width))
                self.worth[head] += _gated(square, terms.down.mT, terms.up.mT)


def _gated(
    product: Float[Tensor, "series d_head d_head"], up: Float[Tensor, "d_head k"], down: Float[Tensor, "k d_head"]
) -> Float[Tensor, " k"]:
    """Squared gradients of the gates of all terms, summed over series."""
    return ((product @ down.to(product).mT) * up.to(product)).sum(dim=1).double().square().sum(dim=0)


def falling(worth: Float[Tensor, " k"]) -> Float[Tensor, " k"]:
    """Return the least that cutting the last terms one by one loses per term: neighbours out of order share evenly.

    Within such a block later terms are worth less by a hair, so that a budget can end inside it.

    >>> [round(one, 6) for one in falling(torch.tensor([5.0, 1.0, 3.0, 0.0])).tolist()]
    [5.0, 2.0, 2.0, 0.0]
    """
    blocks: list[tuple[float, int]] = []
    for value in worth.tolist():
        total, count = value, 1
        while blocks and blocks[-1][0] * count < total * blocks[-1][1]:
            more, others = blocks.pop()
            total, count = total + more, count + others
        blocks.append((total, count))
    even = torch.cat([torch.full((count,), total / count, dtype=torch.float64) for total, count in blocks])
    return even * (1 - HAIR * torch.arange(len(even), dtype=torch.float64))


@contextlib.contextmanager
def watched(module: nn.Module, taps: Sequence[Tap]) -> Iterator[None]:
    """Record activations at the taps while the block runs, with gradients."""
    handles = []
    try:
        for tap in taps:
            layer = module.get_submodule(tap.module)
            if tap.before:
                handles.append(layer.register_forward_pre_hook(_before(tap)))
            else:
                handles.append(layer.register_forward_hook(_after(tap)))
        yield
    finally:
        for handle in handles:
            handle.remove()
        for tap in taps:
            tap.place = tap.input = tap.activations = None


def _before(tap: Tap) -> Callable[..., tuple[Tensor]]:
    def hook(_: Any, args: tuple[Any, ...]) -> tuple[Tensor]:
        tap.place = _differentiable(args[0])
        return (tap.place,)

    return hook


def _after(tap: Tap) -> Callable[..., Tensor]:
    def hook(_: Any, args: tuple[Any, ...], out: Tensor) -> Tensor:
        tap.input, tap.activations, tap.place = args[0], None, _differentiable(out)
        return tap.place

    return hook


def _differentiable(x: Tensor) -> Tensor:
    """The tensor itself where something before it is watched, else a leaf: weights themselves need no gradients."""
    return x if x.requires_grad else x.detach().requires_grad_()
