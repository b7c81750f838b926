"""Second-order importance of every rank-1 term of every matrix, all from a few passes.

Every term of a matrix, or of what stands between the two matrices of a head, gets a gate α, 0 where it is kept and 1
where it is cut, one for every series. The loss of the answers is half a quadratic form in the gates near 0, and its
matrix is the second moment of a gradient: of log p(y), y drawn from the model's own distributions (Fisher), or of the
quantiles' sum with random signs (Gauss–Newton). One backward pass gives the gradients of all gates at once: that of a
gate is the sum over positions of its term's activation times the answers' gradient there. Derivation and limits:
docs/theory/compression.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.checkpoints import Checkpoint
from rankscope.compress.calibration.passes import answer, gives_quantiles, questions
from rankscope.compress.calibration.sources import probe_set
from rankscope.compress.cut import Cut
from rankscope.compress.options import SENSITIVITY, CompressOptions
from rankscope.compress.plan import Spectrum
from rankscope.compress.taps import Tap, watched
from rankscope.engine import Progress
from rankscope.engine.device import fast_products, resolve_device

DRAWS = 4
"""Backward passes per forward pass: tokens drawn, or signs."""
WIDTH_AT_ONCE = 2048
"""Series times width of a model of single tokens in one forward pass: activations are kept for the backward passes."""
MOST_AT_ONCE = 16
NARROWEST = 1e-3
"""A spread of forecasts below this share of their mean size counts as this share: a constant series has none."""


def with_sensitivity(
    source: Checkpoint,
    how: CompressOptions,
    cuts: Sequence[Cut],
    spectra: Sequence[list[Spectrum]],
    taps: Sequence[Tap],
    progress: Progress,
    others: Sequence[Tap] = (),
) -> tuple[list[Cut], list[list[Spectrum]]]:
    """Measure the importance of every term, in units of the mean loss.

    Terms of values and outputs are made anew, in the norm of their output-gradient moment. Nothing depends on a budget,
    so one measurement serves all of them.

    Args:
        source: the model.
        how: what to probe it with, and where.
        cuts: what is cut.
        spectra: of every cut.
        taps: of every cut.
        progress: called with (done, total, what).
        others: taps that are shown the same passes.

    Returns:
        Cuts with output-gradient moments, and spectra with the worth of their terms.

    Raises:
        OptionError: a text model has no tokens to be probed with.
        DataError: the probe set cannot be used.
    """
    probed(source, how, [*taps, *others], progress)
    triples = zip(cuts, spectra, taps, strict=True)
    measured = [tap.measured(cut, known) for cut, known, tap in triples]
    return [cut for cut, _ in measured], [known for _, known in measured]


def probed(source: Checkpoint, how: CompressOptions, taps: Sequence[Tap], progress: Progress) -> None:
    """Show the taps all passes, and tell them the weight of a squared gradient in the mean loss."""
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
    for tap in taps:
        tap.scale = 1.0 / (scale * DRAWS)


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
