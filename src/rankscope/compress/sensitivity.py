"""How much a model's answers suffer when one matrix, or one pair of an attention's matrices, is cut alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.calibration import CalibrationSet, named_set
from rankscope.calibration.passes import pass_inputs
from rankscope.calibration.text import TEXT, without_count
from rankscope.checkpoints import Checkpoint
from rankscope.compress.allocate import SENSITIVITY, Allocation, plan_by_budget
from rankscope.compress.budget import Budget
from rankscope.compress.groups import Attention, Group
from rankscope.compress.plan import SitePlan, Spectrum, site_plan
from rankscope.compress.prepared import Prepared, read_matrices
from rankscope.errors import OptionError
from rankscope.placement import resolve_device

PROBE = "mixture:32"
"""Series that the answers are compared on."""
PROBED_WINDOWS = 32
"""Windows of a text, where the name of the probe does not say."""
PROBE_SEED = 10_007
"""Added to the seed of calibration, so that the series are others."""
BATCH = 16
NARROWEST = 1e-3
"""A spread of forecasts below this share of their mean size counts as this share: a constant series has none."""


def weighed(prepared: Prepared, budget: Budget) -> Prepared:
    """Return the checkpoint with the weights that ``sensitivity`` needs for a budget, where nobody gave them.

    Raises:
        OptionError: the budget is out of reach, or a text model has no tokens to be probed with.
        DataError: the probe set cannot be used.
    """
    if prepared.rule.name != SENSITIVITY or prepared.rule.weights or (budget.kind == "ratio" and budget.limit == 1.0):
        return prepared
    return replace(prepared, rule=Allocation(SENSITIVITY, measured_weights(prepared, budget)))


def measured_weights(prepared: Prepared, budget: Budget) -> dict[str, float]:
    """Loss of the model's answers per unit of squared error, by name of the `Spectrum`.

    Each matrix, and each of the pairs qk and vo of an attention, is cut alone to what ``energy`` leaves of it within
    the budget (to half where that cuts nothing), and the model is run on series that calibration did not see. The loss
    is the mean KL divergence of the distributions of the next token, or the mean squared change of the quantiles over
    the spread between the outer ones. All heads of a pair share its weight.
    """
    energy = plan_by_budget(prepared.flat, prepared.whole(budget), Allocation("energy"), prepared.how.multiple)
    units = [
        unit
        for group, spectra, plans in zip(prepared.groups, prepared.spectra, prepared.parts(energy), strict=True)
        for unit in _units(group, spectra, plans)
    ]
    probe = _Probe(prepared)
    weights: dict[str, float] = {}
    for done, unit in enumerate(units):
        prepared.progress(done, len(units), "sensitivity")
        weight = 0.0
        if unit.squared_error > 0:
            matrices = unit.group.stand_ins(read_matrices(prepared.source, unit.group), unit.plans)
            weight = probe.loss(matrices) / unit.squared_error
        weights |= dict.fromkeys(unit.names, weight)
    prepared.progress(len(units), len(units), "sensitivity")
    return weights


@contextlib.contextmanager
def replaced(module: nn.Module, matrices: Mapping[str, Float[Tensor, "d_out d_in"]]) -> Iterator[None]:
    """Let linear layers apply other matrices while the block runs; biases stay, and so does what is stored."""
    handles = []
    try:
        for name, matrix in matrices.items():
            handles.append(module.get_submodule(name).register_forward_hook(_applies(matrix)))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _applies(matrix: Float[Tensor, "d_out d_in"]) -> Callable[..., Tensor]:
    def hook(layer: Any, args: tuple[Any, ...], _: Tensor) -> Tensor:
        return nn.functional.linear(args[0], matrix.to(args[0]), layer.bias)

    return hook


@dataclass(frozen=True)
class _Unit:
    """What is cut together in one measurement: ``plans`` are those of the whole group, the others unchanged."""

    group: Group
    plans: tuple[SitePlan, ...]
    names: tuple[str, ...]
    squared_error: float


def _units(group: Group, spectra: Sequence[Spectrum], plans: Sequence[SitePlan]) -> Iterator[_Unit]:
    for pair in group.pairs if isinstance(group, Attention) else ("",):
        mine = [f".{pair}." in one.name if pair else True for one in spectra]
        wanted = [plan for plan, chosen in zip(plans, mine, strict=True) if chosen]
        cut = any(plan.changed for plan in wanted)
        alone = [
            site_plan(one, min(one.shape)) if not chosen else plan if cut else site_plan(one, _half(one))
            for one, plan, chosen in zip(spectra, plans, mine, strict=True)
        ]
        pairs = zip(spectra, alone, strict=True)
        error = sum((float(one.values[plan.rank :].square().sum()) for one, plan in pairs if plan.changed), 0.0)
        yield _Unit(group, tuple(alone), tuple(plan.name for plan in wanted), error)


def _half(spectrum: Spectrum) -> int:
    """Half of the ranks that cost less than what is stored."""
    return max(1, (spectrum.stored - 1) // spectrum.cost // 2)


class _Probe:
    """A model, what it is asked, and what it answers when nothing is cut."""

    def __init__(self, prepared: Prepared) -> None:
        source, device = prepared.source, resolve_device(prepared.how.device)
        series = probe_set(source, prepared)
        self.module: Any = source.module().to(device)
        self.inputs = [
            pass_inputs(self.module, source.family, series.context[i : i + BATCH], series.future[i : i + BATCH])
            for i in range(0, len(series), BATCH)
        ]
        self.answers = [self._answer(inputs) for inputs in self.inputs]

    @torch.no_grad()
    def _answer(self, inputs: dict[str, Any]) -> Tensor:
        found = self.module(**inputs)
        answer = found.quantile_preds if "context" in inputs else found.logits
        return answer.float()

    def loss(self, matrices: Mapping[str, Float[Tensor, "d_out d_in"]]) -> float:
        """Mean over all answers of how far they move when the layers apply these matrices."""
        total, count = 0.0, 0
        with replaced(self.module, matrices):
            for inputs, exact in zip(self.inputs, self.answers, strict=True):
                moved = self._answer(inputs)
                each = squared_change(exact, moved) if "context" in inputs else divergence(exact, moved)
                real = inputs.get("decoder_attention_mask")
                kept = each if real is None else each[real > 0]
                total, count = total + float(kept.sum()), count + kept.numel()
        return max(total / count, 0.0)


def probe_set(source: Checkpoint, prepared: Prepared) -> CalibrationSet:
    """Series to probe a model with: those that were given or named, else generated ones.

    A text model is probed with windows of the text that it is calibrated on, from a part that calibration leaves out.

    Raises:
        OptionError: a text model, for which nothing can be generated, has none.
        DataError: what was named cannot be used.
    """
    given, looked_at = prepared.how.probe, prepared.how.calibration
    if isinstance(given, CalibrationSet):
        return given
    if given is None and source.family.forecastable:
        given = PROBE
    elif given is None and isinstance(looked_at, str) and looked_at.startswith(TEXT):
        given = without_count(looked_at)
    if given is None:
        raise OptionError(
            f"allocation {SENSITIVITY} probes a {source.family.title} model with tokens, and there are none: give a "
            "probe, text:FILE, or use allocation energy."
        )
    return named_set(source, given, seed=prepared.how.seed + PROBE_SEED, count=PROBED_WINDOWS, probe=True)


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
    before = exact.double()
    spread = (before[:, -1] - before[:, 0]).abs().mean(dim=-1)
    size = before.abs().mean(dim=(1, 2))
    unit = spread.clamp(min=torch.finfo(torch.float32).tiny).maximum(NARROWEST * size)
    return ((moved.double() - before) / unit[:, None, None]).square()
