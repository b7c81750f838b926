"""Probes: series that show how much a model's answers suffer, and distances of two answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.checkpoints import Checkpoint
from rankscope.compress.calibration import CalibrationSet, named_set
from rankscope.compress.calibration.passes import pass_inputs
from rankscope.compress.calibration.text import TEXT, without_count
from rankscope.compress.options import SENSITIVITY, CompressOptions
from rankscope.errors import OptionError

PROBE = "mixture:32"
"""Series that a model of single tokens is probed with."""
PATCHES_PROBE = "mixture:128"
"""Series for a model of patches, which reads them in a fraction of the time."""
PROBED_WINDOWS = 32
"""Windows of a text, where the name of the probe does not say."""
PROBE_SEED = 10_007
"""Added to the seed of calibration, so that the series are others."""
NARROWEST = 1e-3
"""A spread of forecasts below this share of their mean size counts as this share: a constant series has none."""


def probe_set(source: Checkpoint, how: CompressOptions) -> CalibrationSet:
    """Series to probe a model with: generated ones, or the first of those that were given.

    A text model is probed with windows of the text that it is calibrated on, from a part that calibration leaves out.

    Raises:
        OptionError: a text model, for which nothing can be generated, has none.
        DataError: what was named cannot be used.
    """
    given, looked_at = how.probe, how.calibration
    if isinstance(given, CalibrationSet):
        return given
    if given is None and source.family.forecastable:
        given = PROBE if source.family.strategy != "continuous" else PATCHES_PROBE
    elif given is None and isinstance(looked_at, str) and looked_at.startswith(TEXT):
        given = without_count(looked_at)
    if given is None:
        raise OptionError(
            f"allocation {SENSITIVITY} probes a {source.family.title} model with tokens, and there are none: give a "
            "probe, text:FILE, or use allocation energy."
        )
    return named_set(source, given, seed=how.seed + PROBE_SEED, count=PROBED_WINDOWS, probe=True)


def questions(
    source: Checkpoint, module: Any, series: CalibrationSet, batch_size: int
) -> Iterator[tuple[dict[str, Any], int]]:
    """Keyword arguments of ``module.forward``, batch after batch, and how many series each holds."""
    for start in range(0, len(series), batch_size):
        part = slice(start, start + batch_size)
        inputs = pass_inputs(module, source.family, series.context[part], series.future[part])
        yield inputs, len(series.context[part])


def answer(module: Any, inputs: dict[str, Any]) -> Tensor:
    """Quantiles (series, quantiles, horizon) of a model that gives them, logits (series, tokens, vocabulary) else."""
    found = module(**inputs)
    return (found.quantile_preds if gives_quantiles(inputs) else found.logits).float()


def gives_quantiles(inputs: dict[str, Any]) -> bool:
    """Tell quantiles from logits by the inputs that ask for them."""
    return "context" in inputs


def losses(inputs: dict[str, Any], exact: Tensor, moved: Tensor) -> Float[Tensor, " answers"]:
    """Distances of all answers: divergence at every real position, or squared change of every quantile."""
    if gives_quantiles(inputs):
        return squared_change(exact, moved).flatten()
    each, real = divergence(exact, moved), inputs.get("decoder_attention_mask")
    return each.flatten() if real is None else each[real > 0]


def divergence(
    exact: Float[Tensor, "series tokens vocabulary"], moved: Float[Tensor, "series tokens vocabulary"]
) -> Float[Tensor, "series tokens"]:
    """KL divergence of the distributions that two sets of logits stand for, at every position.

    >>> divergence(torch.zeros(1, 1, 2), torch.zeros(1, 1, 2)).tolist()
    [[0.0]]
    """
    p, q = (logits.double().log_softmax(dim=-1) for logits in (exact, moved))
    return (p.exp() * (p - q)).sum(dim=-1)


def squared_change(
    exact: Float[Tensor, "series quantiles horizon"], moved: Float[Tensor, "series quantiles horizon"]
) -> Float[Tensor, "series quantiles horizon"]:
    """Squared change of every quantile in units of the series' spread, outer quantiles' distance averaged over time.

    >>> exact = torch.tensor([[[0.0], [2.0]]])
    >>> squared_change(exact, exact + 1).tolist()
    [[[0.25], [0.25]]]
    """
    return ((moved.double() - exact.double()) / unit_of(exact)).square()


def unit_of(exact: Float[Tensor, "series quantiles horizon"]) -> Float[Tensor, "series 1 1"]:
    """The spread of every series, not below `NARROWEST` of the mean size of its forecasts."""
    before = exact.detach().double()
    spread = (before[:, -1] - before[:, 0]).abs().mean(dim=-1)
    size = before.abs().mean(dim=(1, 2))
    return spread.clamp(min=torch.finfo(torch.float32).tiny).maximum(NARROWEST * size)[:, None, None]
