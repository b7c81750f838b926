"""What a compression did."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rankscope.compress.plan import SitePlan
from rankscope.families import Site

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "rankscope/compress@1"


@dataclass(frozen=True)
class SiteReport:
    """One selected matrix: where it is, how it is stored now, and how far it is from the original.

    Attributes:
        name: tensor name of the dense weight.
        stack: ``encoder`` or ``decoder``.
        layer: 0-based layer, None outside the layers.
        role: e.g. ``self.q``.
        shape: (d_out, d_in).
        layout: ``dense`` or ``factored``.
        rank: inner size of the factors, min(shape) for a dense matrix.
        eps_rank: its ε-rank; 0 for a zero matrix, which is stored with rank 1.
        parameters_before: numbers stored in the source.
        parameters_after: numbers stored now.
        spectral_error: σ_{rank+1} = ‖W − W̃‖₂ before the factors are rounded to the stored format.
        relative_error: the same over ‖W‖₂, never above ε.
        note: why a matrix was kept as it was, empty where it was not.
    """

    name: str
    stack: str
    layer: int | None
    role: str
    shape: tuple[int, int]
    layout: str
    rank: int
    eps_rank: int
    parameters_before: int
    parameters_after: int
    spectral_error: float
    relative_error: float
    note: str


@dataclass(frozen=True)
class CompressReport:
    """Sizes before and after, and every selected site.

    Attributes:
        model: name the source was opened by.
        family: base family.
        out: folder that was written.
        method: how the factors were found.
        eps: the tolerance of every site, given or found.
        target_ratio: the ratio that was asked for, None where ε was.
        ratio: Σ stored numbers of the selected sites after over before (Q7).
        parameters: whole model, ``before`` and ``after``.
        selected_parameters: selected sites only.
        bytes: of all stored tensors.
        dtype: format the weights were cast to, None where each kept its own.
        seconds: wall time.
        sites: one entry per selected site.
    """

    model: str
    family: str
    out: str
    method: str
    eps: float
    target_ratio: float | None
    ratio: float
    parameters: dict[str, int]
    selected_parameters: dict[str, int]
    bytes: dict[str, int]
    dtype: str | None
    seconds: float
    sites: tuple[SiteReport, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data in the shape ``rankscope/compress@1``."""
        return {"schema": SCHEMA, **asdict(self), "sites": [_plain(site) for site in self.sites]}

    def to_frame(self) -> pd.DataFrame:
        """One row per selected site."""
        import pandas as pd

        return pd.DataFrame([_plain(site) for site in self.sites])


def site_report(site: Site, plan: SitePlan) -> SiteReport:
    """Describe what ``plan`` did to ``site``."""
    return SiteReport(
        name=site.name,
        stack=site.stack,
        layer=site.layer,
        role=site.role,
        shape=plan.shape,
        layout=plan.layout,
        rank=plan.rank,
        eps_rank=plan.eps_rank,
        parameters_before=plan.before,
        parameters_after=plan.after,
        spectral_error=plan.error,
        relative_error=plan.error / plan.sigma_max if plan.sigma_max else 0.0,
        note=_note(plan),
    )


def _note(plan: SitePlan) -> str:
    if not plan.changed:
        return "factors would store no fewer numbers" if plan.layout == "dense" else "its rank is low already"
    return "zero matrix, stored with rank 1" if plan.eps_rank == 0 else ""


def _plain(site: SiteReport) -> dict[str, Any]:
    return {**asdict(site), "shape": list(site.shape)}
