"""Reports of a compression: sizes, and ranks and errors of every site."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rankscope.checkpoints import Checkpoint
from rankscope.compress.cut import Cut
from rankscope.compress.options import SENSITIVITY, STREAM, CompressOptions
from rankscope.compress.plan import SitePlan
from rankscope.engine.device import resolve_dtype
from rankscope.families import Layout, Site
from rankscope.families.weight_layout import layout_name
from rankscope.io import codec

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class SiteReport:
    """One selected matrix: where it is, how it is stored now, and how far it is from the original.

    Attributes:
        name: tensor name of the dense weight; of a point of a residual stream the module that reads it.
        stack: ``encoder`` or ``decoder``.
        layer: 0-based layer, None outside the layers.
        role: e.g. ``self.q``.
        shape: (d_out, d_in).
        layout: ``dense``, ``factored``, ``head-width`` or ``width``; ``stream`` for a point of a residual stream, whose
            rank is its width and whose numbers are those of what reads it; ``removed`` for a layer that left.
        rank: inner size of the factors, min(shape) for a dense matrix, the sum of the widths of heads, the hidden units
            of a feed-forward block.
        widths: width of every head where whole heads were cut, else empty.
        eps_rank: its ε-rank; 0 for a zero matrix, which is stored with rank 1. Without a shared ε, the rank wanted.
        parameters_before: numbers stored in the source.
        parameters_after: numbers stored now.
        spectral_error: σ_{rank+1} before the factors are rounded to the stored format: with plain SVD ‖W − W̃‖₂, with
            the other methods the largest term that was cut off, in their own norm; of heads the largest.
        relative_error: the same over the largest term; with plain SVD ‖W − W̃‖₂ / ‖W‖₂, never above ε but where ranks
            are rounded to a multiple; of heads the largest.
        lost: share of the squared norm that was cut off, in the norm of the method; of heads the largest; of a layer
            that left, what that added to the mean loss. What was chosen by the gradients of a probe (narrower streams,
            values and outputs) is priced with the same ones: too low for other series.
        note: why a matrix was kept as it was, empty where it was not.
        removed: of a layer, 1 for the first that left; None where nothing was removed.
    """

    name: str
    stack: str
    layer: int | None
    role: str
    shape: tuple[int, int]
    layout: str
    rank: int
    widths: tuple[int, ...]
    eps_rank: int
    parameters_before: int
    parameters_after: int
    spectral_error: float
    relative_error: float
    lost: float
    note: str
    removed: int | None = None


@dataclass(frozen=True)
class LossStep:
    """One size that was tried.

    Attributes:
        ratio: share of all parameters that was reached.
        score: what was measured there.
        holds: whether it was allowed: of a score with an upper bound, whether that was.
        upper: upper bound of the score, with 95 % confidence; None where none was measured.
    """

    ratio: float
    score: float
    holds: bool
    upper: float | None = None


@dataclass(frozen=True)
class LossSearch:
    """Search for a size that loses no more than allowed.

    Attributes:
        measure: what was measured; 1 is as good as the original.
        max_loss: what was allowed above 1.
        score: that of the folder that was kept.
        steps: every size that was tried, in that order.
    """

    measure: str
    max_loss: float
    score: float
    steps: tuple[LossStep, ...]


def _whole_ratios(old: Mapping[str, Any]) -> dict[str, Any]:
    """A report whose ratios were of the selected matrices."""
    whole, selected = old["parameters"]["before"], old["selected_parameters"]["before"]
    search, target = old.get("search"), old.get("target_ratio")

    def of_all(ratio: float) -> float:
        return 1 - selected / whole * (1 - ratio)

    asked = {"eps": old["eps"]} if target is None and old["eps"] is not None else {}
    if target is not None:
        asked = {"ratio" if old["method"] == STREAM else "attention-ratio": target}
    found = {**old, "ratio": of_all(old["ratio"]), "selected_ratio": old["ratio"], "asked": asked}
    if search is not None:
        steps = [{**step, "ratio": of_all(step["ratio"])} for step in search["steps"]]
        found["search"] = {**search, "steps": steps}
    return found


@dataclass(frozen=True)
class CompressReport:
    """Sizes before and after, and every selected site.

    Attributes:
        model: name the source was opened by.
        family: base family.
        out: folder that was written.
        method: how the factors were found.
        allocation: how ranks were allotted.
        calibration: name of the series that the method looked at, None where it looked at none.
        eps: the tolerance of every site, given or found; None where ranks were allotted in another way.
        asked: the size that was asked for, by the name of its option (``ratio``, ``attention-ratio``, ``eps``, …).
        ratio: parameters of the whole model, after over before.
        selected_ratio: Σ stored numbers of the selected sites after over before (Q7).
        parameters: whole model, ``before`` and ``after``.
        selected_parameters: selected sites only.
        bytes: of all stored tensors.
        dtype: format the weights were cast to, None where each kept its own.
        storage: numbers of the linear layers: ``float``, or ``int8`` with a scale per row, whose bytes count.
        seconds: wall time.
        notes: what a user should know of the calibration, empty where there is nothing.
        sites: one entry per selected site.
        search: the sizes that were tried, where a loss was given in place of a size.
        refined: matrices that were refitted to bring the stream back to the original's.
    """

    model: str
    family: str
    out: str
    method: str
    allocation: str
    calibration: str | None
    eps: float | None
    asked: dict[str, float]
    ratio: float
    selected_ratio: float
    parameters: dict[str, int]
    selected_parameters: dict[str, int]
    bytes: dict[str, int]
    dtype: str | None
    storage: str
    seconds: float
    notes: tuple[str, ...]
    sites: tuple[SiteReport, ...]
    search: LossSearch | None = None
    refined: int = 0

    SCHEMA: ClassVar = "rankscope/compress@2"
    OLDER: ClassVar = {"rankscope/compress@1": _whole_ratios}

    @property
    def recast(self) -> bool:
        """True if numbers were stored in other formats, and nothing was selected to be cut."""
        return not self.sites

    def to_frame(self) -> pd.DataFrame:
        """One row per selected site."""
        import pandas as pd

        frame = pd.DataFrame([codec.plain(site) for site in self.sites])
        return frame.astype(dict.fromkeys(frame.columns.intersection(["layer", "removed"]), "Int64"))


def whole_model_report(
    source: Checkpoint,
    how: CompressOptions,
    *,
    out: str | Path,
    calibration: str,
    notes: tuple[str, ...],
    after: int,
    size: int,
    seconds: float,
    sites: Iterable[SiteReport],
    refined: int = 0,
) -> CompressReport:
    """Report of a method that takes the whole model at once.

    Args:
        source: the model.
        how: the options, with the method and the storage that were used.
        out: folder.
        calibration: name of the series that were looked at.
        notes: what a user should know of them.
        after: parameters of the whole model.
        size: its bytes.
        seconds: wall time.
        sites: what was made smaller.
        refined: matrices that were refitted.
    """
    parameters = {"before": source.parameters, "after": after}
    return CompressReport(
        model=source.source,
        family=source.family.name,
        out=str(out),
        method=how.completed().method,
        allocation=SENSITIVITY,
        calibration=calibration,
        eps=None,
        asked=how.asked,
        ratio=after / source.parameters,
        selected_ratio=after / source.parameters,
        parameters=parameters,
        selected_parameters=dict(parameters),
        bytes={"before": source.bytes, "after": size},
        dtype=None if how.dtype is None else str(resolve_dtype(how.dtype)).removeprefix("torch."),
        storage=how.storage or source.storage,
        seconds=round(seconds, 3),
        notes=notes,
        sites=tuple(sites),
        refined=refined,
    )


def site_reports(
    source: Checkpoint, cut: Cut, plans: Sequence[SitePlan], layouts: Mapping[str, Layout]
) -> list[SiteReport]:
    """Describe what the plans of one cut did to its sites: one plan of a matrix or a block, or one of every head."""
    shapes = cut.shapes(plans) if any(plan.changed for plan in plans) else {}
    return [_report(source, site, plans, shapes, layout_name(site, layouts)) for site in cut.sites]


def _report(
    source: Checkpoint, site: Site, plans: Sequence[SitePlan], shapes: Mapping[str, tuple[int, ...]], layout: str
) -> SiteReport:
    stored = (site.name, f"{site.module}.up.weight", f"{site.module}.down.weight")
    after = sum(prod(shapes[name]) for name in stored if name in shapes)
    worst = max(plans, key=lambda plan: plan.error, default=None)
    return SiteReport(
        name=site.name,
        stack=site.stack,
        layer=site.layer,
        role=site.role,
        shape=source.shape(site),
        layout=layout,
        rank=sum(plan.rank for plan in plans),
        widths=tuple(plan.rank for plan in plans) if plans[0].spectrum.layout == "head-width" else (),
        eps_rank=sum(plan.eps_rank for plan in plans),
        parameters_before=source.stored(site),
        parameters_after=after if shapes else source.stored(site),
        spectral_error=worst.error if worst else 0.0,
        relative_error=max((plan.error / plan.sigma_max for plan in plans if plan.sigma_max), default=0.0),
        lost=max((plan.lost for plan in plans), default=0.0),
        note=_note(plans, bool(shapes)),
    )


def _note(plans: Sequence[SitePlan], changed: bool) -> str:
    if not changed:
        return "factors would store no fewer numbers" if plans[0].layout == "dense" else "its rank is low already"
    return "zero matrix, stored with rank 1" if all(plan.sigma_max == 0 for plan in plans) else ""
