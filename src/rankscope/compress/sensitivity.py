"""Second-order importance of every rank-1 term of every matrix, all from a few passes.

Every term of a matrix, or of what stands between the two matrices of a head, gets a gate α, 0 where it is kept and 1
where it is cut, one for every series. The loss of the answers is half a quadratic form in the gates near 0, and its
matrix is the second moment of a gradient: of log p(y), y drawn from the model's own distributions (Fisher), or of the
quantiles' sum with random signs (Gauss–Newton). One backward pass gives the gradients of all gates at once: that of a
gate is the sum over positions of its term's activation times the answers' gradient there. Derivation and limits:
docs/theory/compression.md.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.checkpoints import Checkpoint
from rankscope.compress.calibration.passes import GROUP, answer, gives_quantiles, questions
from rankscope.compress.calibration.sources import probe_set
from rankscope.compress.joint import Cut, PairCut
from rankscope.compress.methods import Decomposition, Matrices, MatrixCut
from rankscope.compress.options import SENSITIVITY, CompressOptions
from rankscope.compress.plan import Spectrum
from rankscope.engine import Progress
from rankscope.engine.device import fast_products, resolve_device

DRAWS = 4
"""Backward passes per forward pass: tokens drawn, or signs."""
WIDTH_AT_ONCE = 2048
"""Series times width of a model of single tokens in one forward pass: activations are kept for the backward passes."""
MOST_AT_ONCE = 16
NARROWEST = 1e-3
"""A spread of forecasts below this share of their mean size counts as this share: a constant series has none."""
HAIR = 1e-9
"""Share by which a term ranks below an equal one before it."""


def with_sensitivity(
    source: Checkpoint,
    how: CompressOptions,
    cuts: Sequence[Cut],
    spectra: Sequence[list[Spectrum]],
    taps: Sequence[Tap],
    progress: Progress,
) -> tuple[list[Cut], list[list[Spectrum]]]:
    """Measure the importance of every term, in units of the mean loss.

    Terms of values and outputs are made anew, in the norm of their output-gradient moment. Nothing depends on a budget,
    so one measurement serves all of them.

    Args:
        source: the model.
        how: what to probe it with, and where.
        cuts: what is cut.
        spectra: of every cut.
        taps: of every cut, from `tap_of`.
        progress: called with (done, total, what).

    Returns:
        Cuts with output-gradient moments, and spectra with the worth of their terms.

    Raises:
        OptionError: a text model has no tokens to be probed with.
        DataError: the probe set cannot be used.
    """
    scale = _probed(source, how, taps, progress)
    found: list[Cut] = []
    measured: list[list[Spectrum]] = []
    for cut, known, tap in zip(cuts, spectra, taps, strict=True):
        if isinstance(cut, PairCut) and isinstance(tap, _Pair) and cut.pair == "vo":
            cut = replace(cut, gradients=tap.gradients(scale))
            inner = cut.inner({})
            tap.along(inner)
            known = [replace(one, sigma=terms.sigma) for one, terms in zip(known, inner, strict=True)]
        found.append(cut)
        pairs = zip(known, tap.worth, strict=True)
        measured.append([replace(one, worth=falling(scale * worth)) for one, worth in pairs])
    return found, measured


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


def _probed(source: Checkpoint, how: CompressOptions, taps: Sequence[Tap], progress: Progress) -> float:
    """Show the taps all passes; return what a squared gradient counts for."""
    device = resolve_device(how.device)
    series = probe_set(source, how)
    module: Any = source.module().to(device)
    module.requires_grad_(False)
    generator = torch.Generator(device).manual_seed(how.seed)
    wide = source.family.strategy != "continuous"
    at_once = max(1, min(MOST_AT_ONCE, WIDTH_AT_ONCE // int(module.config.d_model))) if wide else MOST_AT_ONCE
    done, scale = 0, 0.0
    with torch.enable_grad(), watched(module, taps):
        for inputs, count in questions(source, module, series, at_once):
            progress(done, len(series), SENSITIVITY)
            with fast_products(device, int(module.config.d_model)):
                found = answer(module, inputs)
            places = [tap.place for tap in taps]
            apart = inputs.get("group_ids", torch.arange(count, device=found.device))
            for draw, score in enumerate(scores(inputs, found, generator)):
                gradients = torch.autograd.grad(score, places, retain_graph=draw + 1 < DRAWS, allow_unused=True)
                for tap, gradient in zip(taps, gradients, strict=True):
                    if gradient is not None:
                        tap.take(gradient.float(), apart)
            done, scale = done + count, scale + _answers(inputs, found) * (1 if gives_quantiles(inputs) else 2)
    progress(len(series), len(series), SENSITIVITY)
    return 1.0 / (scale * DRAWS)


def scores(inputs: dict[str, Any], found: Tensor, generator: torch.Generator) -> Iterator[Tensor]:
    """`DRAWS` sums over all answers whose gradients' second moment is the curvature of the loss, once or twice.

    Log-probabilities of tokens drawn position by position: their gradients are independent and have mean zero, so the
    square of the sum has the expectation of the sum of the squares. The same holds for quantiles with random signs.
    """
    if gives_quantiles(inputs):
        scaled = found / unit_of(found).to(found)
        for _ in range(DRAWS):
            signs = torch.randint(0, 2, found.shape, generator=generator, device=found.device) * 2 - 1
            yield (scaled * signs).sum()
        return
    logs = found.log_softmax(dim=-1)
    chances, real = logs.detach().exp().flatten(0, 1), inputs.get("decoder_attention_mask")
    for _ in range(DRAWS):
        tokens = torch.multinomial(chances, 1, generator=generator).view(*logs.shape[:2], 1)
        each = logs.gather(-1, tokens)[..., 0]
        yield each.sum() if real is None else each[real > 0].sum()


def _answers(inputs: dict[str, Any], found: Tensor) -> int:
    real = inputs.get("decoder_attention_mask")
    if gives_quantiles(inputs):
        return found.numel()
    return int((real > 0).sum()) if real is not None else found.shape[0] * found.shape[1]


def unit_of(exact: Float[Tensor, "series quantiles horizon"]) -> Float[Tensor, "series 1 1"]:
    """The spread of every series, not below `NARROWEST` of the mean size of its forecasts."""
    before = exact.detach().double()
    spread = (before[:, -1] - before[:, 0]).abs().mean(dim=-1)
    size = before.abs().mean(dim=(1, 2))
    return spread.clamp(min=torch.finfo(torch.float32).tiny).maximum(NARROWEST * size)[:, None, None]


class Tap(ABC):
    """One place in a model where terms can be gated: what passes there, and the answers' gradient by it.

    Attributes:
        module: name of the layer.
        before: whether the place is the layer's input; else it is its output.
        worth: squared gradients of the gates of all terms, by spectrum.
    """

    worth: list[Float[Tensor, " k"]]

    def __init__(self, module: str, before: bool) -> None:
        self.module, self.before = module, before
        self.place: Any = None
        self.input: Any = None

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


class _Matrix(Tap):
    """The terms of one matrix."""

    def __init__(self, cut: MatrixCut, terms: Decomposition) -> None:
        super().__init__(cut.module, before=False)
        self.terms = terms
        self.worth = [torch.zeros(len(terms.sigma), dtype=torch.float64)]

    def take(self, gradient: Tensor, apart: Tensor) -> None:
        down, up = (part.to(gradient) for part in (self.terms.down, self.terms.up))
        shown = self.rows(self.input, len(apart)).to(gradient) @ down.mT
        gates = (shown * (self.rows(gradient, len(apart)) @ up)).sum(dim=1)
        self.worth[0] += self.shared(gates, apart).double().square().sum(dim=0).cpu()


class _Pair(Tap):
    """Terms between queries and keys, or values and outputs, of every head of one attention."""

    def __init__(self, cut: PairCut, inner: Sequence[Decomposition]) -> None:
        super().__init__((cut.first if cut.pair == "qk" else cut.second).module, before=cut.pair == "vo")
        self.cut, self.inner, self.widths = cut, inner, cut.heads
        self.worth = [torch.zeros(width, dtype=torch.float64) for width in self.widths]
        self.kept: list[list[Tensor]] = [[] for _ in self.widths]
        self.second = [torch.zeros(width, width, dtype=torch.float64) for width in self.widths]

    def take(self, gradient: Tensor, apart: Tensor) -> None:
        shown, each = self.rows(self.place, len(apart)), self.rows(gradient, len(apart))
        heads = zip(shown.split(self.widths, dim=-1), each.split(self.widths, dim=-1), strict=True)
        for head, (x, g) in enumerate(heads):
            # gradient of what is inserted there, (groups, d_head, d_head)
            product = self.shared((x.mT @ g).float(), apart).cpu()
            if self.inner:
                self.worth[head] += _gated(product, self.inner[head])
            else:
                flat = product.flatten(0, 1)
                self.second[head] += (flat.mT @ flat).double()
                self.kept[head].append(product.bfloat16())  # to be looked at along other terms

    def gradients(self, scale: float) -> tuple[Float[Tensor, "_ _"], ...]:
        """Output-gradient moment of every head, freed of the size of the input."""
        sizes = [float(self.cut.attended(head).diagonal().sum()) for head in range(len(self.widths))]
        pairs = zip(self.second, sizes, strict=True)
        return tuple(second * (scale / size if size > 0 else 0.0) for second, size in pairs)

    def along(self, inner: Sequence[Decomposition]) -> None:
        """Gate these terms by the gradients that were kept."""
        for head, terms in enumerate(inner):
            turned = Decomposition(terms.sigma, terms.down.mT, terms.up.mT)  # rows pass values first, then outputs
            for product in self.kept[head]:
                self.worth[head] += _gated(product.float(), turned)


def _gated(product: Float[Tensor, "series d_head d_head"], inner: Decomposition) -> Float[Tensor, " k"]:
    """Squared gradients of the gates of all terms, summed over series."""
    left, right = inner.up.to(product), inner.down.to(product)
    return ((product @ right.mT) * left).sum(dim=1).double().square().sum(dim=0)


def tap_of(cut: Cut, matrices: Matrices) -> Tap:
    """Make the tap of a cut; terms of values and outputs are chosen when their gradients are known."""
    if isinstance(cut, MatrixCut):
        return _Matrix(cut, cut.decompose(matrices[cut.site]))
    return _Pair(cut, cut.inner(matrices) if cut.pair == "qk" else ())


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
            tap.place = tap.input = None


def _before(tap: Tap) -> Callable[..., tuple[Tensor]]:
    def hook(_: Any, args: tuple[Any, ...]) -> tuple[Tensor]:
        tap.place = _differentiable(args[0])
        return (tap.place,)

    return hook


def _after(tap: Tap) -> Callable[..., Tensor]:
    def hook(_: Any, args: tuple[Any, ...], out: Tensor) -> Tensor:
        tap.input, tap.place = args[0], _differentiable(out)
        return tap.place

    return hook


def _differentiable(x: Tensor) -> Tensor:
    """The tensor itself where something before it is watched, else a leaf: weights themselves need no gradients."""
    return x if x.requires_grad else x.detach().requires_grad_()
