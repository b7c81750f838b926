"""Compression curves: loss against the size of truncated layers."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rankscope.compress import Budget, Plan, plan_by_budget
from rankscope.compress.calibration import InputMoments
from rankscope.compress.calibration.moments import MomentSink
from rankscope.compress.joint import PairCut
from rankscope.compress.methods import MatrixCut
from rankscope.compress.options import JOINT, needs_calibration
from rankscope.compress.plan import SitePlan
from rankscope.errors import DataError
from rankscope.families import HeadWidth, Site
from rankscope_lab.measure.sites import ATTENTION, FEED_FORWARD, PROJECTION, bias_of, matrix_of, sites_of

CUTS = ("svd", "whitened", JOINT)
KINDS = (ATTENTION, PROJECTION, FEED_FORWARD)
"""Kinds of layers."""
RATIOS = (1.0, 0.5, 0.25, 0.125, 0.0625)
"""Shares that factors of square matrices and heads of the lab's widths meet exactly."""
UNIFORM = "uniform-ratio"
"""Uniform allocation: every matrix, or head, keeps the same fraction of its parameters."""
Cut = MatrixCut | PairCut
Score = Callable[[nn.Module], float]
"""Loss of a model on data not used for calibration."""


@dataclass(frozen=True)
class CurvePoint:
    """Truncation of one layer type to one size, leaving the others unchanged.

    Attributes:
        kind: ``attention``, ``projection`` or ``feed_forward``.
        method: ``svd``, ``whitened`` or ``joint``.
        asked: ratio asked for.
        ratio: numbers that the kind's matrices store, after over before; None where even rank 1 everywhere stores more
            than was asked.
        stored: those numbers.
        loss: of the model that is left; None where the ratio cannot be reached.
        before: loss of the whole model.
    """

    kind: str
    method: str
    asked: float
    ratio: float | None
    stored: int | None
    loss: float | None
    before: float

    @property
    def relative(self) -> float | None:
        """Loss over that of the whole model."""
        return None if self.loss is None else self.loss / self.before


def compression_curve(
    model: nn.Module,
    batches: Iterable[Tensor | tuple[Tensor, ...]],
    score: Score,
    *,
    ratios: Sequence[float] = RATIOS,
) -> tuple[CurvePoint, ...]:
    """Truncate each layer type by each method of `CUTS` to each ratio, one at a time, and score the result.

    Args:
        model: left as it is.
        batches: to calibrate on.
        score: loss of a model.
        ratios: numbers stored after over before.

    Raises:
        OptionError: a ratio outside (0, 1].
        DataError: the whole model has no finite loss.
    """
    moments = model_moments(model, batches)
    before = float(score(model))
    if not 0 < before < float("inf"):
        raise DataError(f"the model's loss is {before}: there is nothing that a cut could be compared with.")
    made = copy.deepcopy(model)
    whole = {name: value.clone() for name, value in made.state_dict().items()}
    points = []
    for method in CUTS:
        for kind in KINDS:
            cuts = cuts_of(made, kind, method, moments)
            for ratio in ratios if cuts else ():
                plan = cut_to(made, cuts, ratio)
                loss = None if plan is None else float(score(made))
                reached, stored = (None, None) if plan is None else (plan.ratio, plan.after)
                points.append(CurvePoint(kind, method, ratio, reached, stored, loss, before))
                made.load_state_dict(whole)
    return tuple(points)


def cuts_of(model: nn.Module, kind: str, method: str, moments: Mapping[Site, InputMoments]) -> list[Cut]:
    """Return the cuts of a kind of layer by a method; ``joint`` cuts attention head by head, and nothing else."""
    sites = [site for site in sites_of(model) if _kind(site) == kind]
    if method == JOINT:
        four = (sites[start : start + 4] for start in range(0, len(sites) if kind == ATTENTION else 0, 4))
        return [cut for q, k, v, o in four for cut in _pairs(model, q, k, v, o, moments)]
    known = needs_calibration(method)
    return [
        MatrixCut(site, method, moments[site] if known else None, bias=bias_of(model, site) if known else None)
        for site in sites
    ]


def cut_to(model: nn.Module, cuts: Sequence[Cut], ratio: float) -> Plan | None:
    """Write the truncated matrices into the model; return None without changes if even rank 1 is too large."""
    spectra = [cut.spectra({site: matrix_of(model, site) for site in cut.sites}) for cut in cuts]
    flat = [one for part in spectra for one in part]
    if sum(one.after(1) for one in flat) / sum(one.stored for one in flat) > ratio:
        return None
    plan = plan_by_budget(flat, Budget("ratio", ratio), UNIFORM)
    stream = iter(plan.sites)
    for cut, part in zip(cuts, spectra, strict=True):
        plans = [next(stream) for _ in part]
        if any(one.changed for one in plans):
            write_cut(model, cut, plans)
    return plan


@torch.no_grad()
def write_cut(model: nn.Module, cut: Cut, plans: Sequence[SitePlan]) -> None:
    """Write the planned truncation of a cut into the model, keeping shapes."""
    matrices = {site: matrix_of(model, site) for site in cut.sites}
    made, biases = cut.stand_ins(matrices, plans), cut.biases(matrices, plans)
    for site, matrix in made.items():
        matrix_of(model, site).copy_(matrix)
    for site, bias in biases.items():
        kept = bias_of(model, site)
        assert kept is not None
        kept.copy_(bias)


def model_moments(model: nn.Module, batches: Iterable[Tensor | tuple[Tensor, ...]]) -> dict[Site, InputMoments]:
    """Run a model on batches and sum up what its matrices read: keys and values read what they are made of.

    Args:
        model: run in eval mode, without gradients; its mode is restored.
        batches: what it is called with.

    Raises:
        DataError: there is no batch, or what runs through the model is not finite.
    """
    training = model.training
    model.eval()
    try:
        with torch.no_grad(), _watched(model) as sinks:
            for batch in batches:
                model(*(batch if isinstance(batch, tuple) else (batch,)))
    finally:
        model.train(training)
    found = {site: sink.moments for site, sink in sinks.items() if sink.moments is not None}
    if not found:
        raise DataError("no batch ran through the model: give at least one to calibrate on.")
    return found


@contextlib.contextmanager
def _watched(model: nn.Module) -> Iterator[dict[Site, MomentSink]]:
    sinks: dict[Site, MomentSink] = {}
    streams: dict[tuple[str, bool], MomentSink] = {}
    handles = []
    try:
        for site in sites_of(model):
            name, source = site.name.rpartition(".")[0], site.role[-2:] in (".k", ".v")
            layer = model.get_submodule(name)
            if site.part is None and not isinstance(layer, nn.Linear):
                continue
            if (name, source) not in streams:
                streams[name, source] = MomentSink()
                hook = _feed(streams[name, source], source)
                handles.append(layer.register_forward_pre_hook(hook, with_kwargs=True))
            sinks[site] = streams[name, source]
        yield sinks
    finally:
        for handle in handles:
            handle.remove()


def _feed(sink: MomentSink, source: bool) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        other = (args[1] if len(args) > 1 else kwargs.get("source")) if source else None
        x = args[0] if other is None else other
        # (series, tokens, d) in float64, so that a mean can be taken off; without tokens all rows are one series
        sink.add((x[None] if x.ndim == 2 else x.flatten(0, -3)).double(), None)

    return hook


def _kind(site: Site) -> str | None:
    if site.kind == "attention":
        return ATTENTION
    return {"projection": PROJECTION, "mlp_in": FEED_FORWARD, "mlp_out": FEED_FORWARD}.get(site.role)


def _pairs(
    model: nn.Module, q: Site, k: Site, v: Site, o: Site, moments: Mapping[Site, InputMoments]
) -> Iterator[PairCut]:
    b_q, b_k, b_v, b_o = (bias_of(model, site) for site in (q, k, v, o))
    assert b_q is not None
    assert b_k is not None
    assert b_v is not None
    assert b_o is not None
    widths = HeadWidth(q.head_widths, v.head_widths)
    yield PairCut("qk", q, k, widths, (moments[q], moments[k]), layer_biases=(b_q, b_k))
    yield PairCut("vo", v, o, widths, (moments[o],), layer_biases=(b_v, b_o))
