"""Method ``joint+stream``: heads, hidden units, ranks and residual streams under one budget.

`rankscope.compress.joint` and `rankscope.compress.width` make sublayers narrower inside, `rankscope.compress.stream`
what flows between them, so that the two multiply. Both know what everything they drop is worth to the answers, to
second order and in one unit, the mean loss. So the budget is shared by that: of all pairs of a joint cut and a slicing
that meet it, the one is taken whose losses add up to least. The joint cut is written and refitted first; the stream is
measured anew on what it left.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.compress.apply import adopt, jobs_of, layouts_of, write_folder
from rankscope.compress.calibration.sources import given_series
from rankscope.compress.calibration.statistics import digest
from rankscope.compress.options import BOTH, JOINT, SENSITIVITY, STREAM, Budget, Completed, CompressOptions
from rankscope.compress.plan import Plan, site_plan
from rankscope.compress.prepare import Prepared, prepare
from rankscope.compress.recipe import write_recipe
from rankscope.compress.report import CompressReport
from rankscope.compress.slicing import Slicing, plan_widths, slice_checkpoint
from rankscope.compress.stream import Basis, calibrated_on, measure
from rankscope.engine import Progress, silent
from rankscope.errors import OptionError
from rankscope.families.stream import read_widths
from rankscope.io.atomic import atomic_folder

KINDS = ("ratio", "parameters", "bytes")
"""Sizes of the whole model."""
STEPS = 24
"""Sizes of the joint cut that are looked at, evenly on a logarithmic scale from the budget to the whole model."""
_CANDIDATES = ".candidates"


@dataclass(frozen=True)
class Split:
    """A joint cut, and the widths of the streams that meet a budget after it.

    Attributes:
        plan: the cut.
        widths: of the streams by point; empty where the cut meets the budget alone.
        lost: what the cut costs, in the mean loss.
        sliced: what the slicing costs.
    """

    plan: Plan
    widths: dict[str, int]
    lost: float
    sliced: float


def splits(prepared: Prepared, slicing: Slicing, bases: Mapping[str, Basis], share: float) -> Iterator[Split]:
    """Pairs of a joint cut and a slicing that together leave a share of all parameters.

    Args:
        prepared: the model, its cuts measured.
        slicing: the same model.
        bases: coordinates of its streams.
        share: of all parameters, to be left.
    """
    limit = share * slicing.source.parameters
    least = prepared.least("ratio")
    for step in range(STEPS + 1):
        ratio = share ** (1 - step / STEPS)
        if ratio < least:
            continue
        plan = prepared.by_budget(Budget("ratio", ratio))
        lost = math.fsum(
            float(site.spectrum.worth[site.rank :].sum())
            for site in plan.sites
            if site.changed and site.spectrum.worth is not None
        )
        if step == 0:
            yield Split(plan, {}, lost, 0.0)
            continue
        shapes = shapes_of(prepared, slicing, plan)
        try:
            widths = plan_widths(bases, lambda found: slicing.numbers(shapes, found), limit, prepared.how.multiple)  # noqa: B023
        except OptionError:
            continue
        dropped = (float(bases[point].sigma[width:].square().sum()) for point, width in widths.items())
        yield Split(plan, widths, lost, math.fsum(dropped))


def shapes_of(prepared: Prepared, slicing: Slicing, plan: Plan) -> dict[str, tuple[int, ...]]:
    """Shapes of all tensors of a model whose matrices are cut by a plan, its streams whole."""
    changed, _ = layouts_of(prepared, plan)
    cut = {made.name: made.shape for job in jobs_of(prepared.source, changed) for made in job.made}
    return {**{name: shape for name, shape in slicing.shapes.items() if slicing.tied(name)}, **cut}


def suits(source: Checkpoint, how: CompressOptions) -> bool:
    """True if ``joint+stream`` is what a compression without a method means.

    That is a size of the whole model of a model that forecasts, whose streams are whole, on series that can be had.
    """
    free = how.method is None and how.sites is None and how.allocation is None
    return (
        free
        and how.limit is not None
        and how.limit.kind in KINDS
        and source.family.forecastable
        and source.family.low_rank is not None
        and not read_widths(source.config)
        and not source.factored
        and given_series(source, how) is not None
    )


def compress_both(
    source: Checkpoint, how: CompressOptions, *, out: str | Path, force: bool = False, progress: Progress | None = None
) -> CompressReport:
    """Write a checkpoint with narrower sublayers and narrower residual streams.

    Raises:
        OptionError: a size that this method does not have, or that is out of reach.
        RankscopeError: as `rankscope.compress.compress` says.
    """
    begin, report = time.perf_counter(), progress or silent
    budget, slicing, series = _whole_budget(how), Slicing(source), calibrated_on(source, how)
    asked = replace(how, calibration=series)
    prepared = prepare(source, replace(asked, method=JOINT, storage=None, dtype=None), progress=report)
    bases = measure(source, replace(asked, method=STREAM), report)
    share = _share(prepared, asked, budget)
    found = min(splits(prepared, slicing, bases, share), key=lambda one: one.lost + one.sliced, default=None)
    if found is None:
        least = prepared.least("ratio")
        raise OptionError(
            f"{budget.kind} {budget.limit:g} is out of reach: the least that the cuts keep is {least:.4f} of all "
            "parameters, and no slicing of the streams makes up for the rest; ask for more."
        )
    with atomic_folder(out, force) as folder:
        place = folder / _CANDIDATES
        place.mkdir()
        if not found.widths:  # the streams are worth more than what the cuts can spare
            last = write_folder(replace(prepared, how=_formats(prepared.how, asked)), found.plan, place / "found")
            sites = last.sites
        else:
            first = write_folder(prepared, found.plan, place / JOINT)
            rest = replace(asked, method=STREAM, ratio=None, budget=_absolute(source, budget), refine=None)
            last = slice_checkpoint(open_checkpoint(place / JOINT), rest, out=place / "found", progress=report)
            sites = (*first.sites, *last.sites)
            last = replace(last, refined=first.refined, notes=first.notes)
        parameters = {"before": source.parameters, "after": last.parameters["after"]}
        seen = (series.name, digest(series.context, series.future), asked.seed)
        write_recipe(place / "found", source, replace(asked, method=BOTH), seen)
        whole = replace(
            last,
            model=source.source,
            out=str(out),
            method=BOTH,
            allocation=SENSITIVITY,
            asked=asked.asked,
            ratio=parameters["after"] / source.parameters,
            selected_ratio=parameters["after"] / source.parameters,
            parameters=parameters,
            selected_parameters=dict(parameters),
            bytes={"before": source.bytes, "after": last.bytes["after"]},
            seconds=round(time.perf_counter() - begin, 3),
            sites=sites,
        )
        adopt(folder, place / "found", whole)
        shutil.rmtree(place)
    return whole


def _whole_budget(how: CompressOptions) -> Budget:
    if how.limit is None or how.limit.kind not in KINDS:
        raise OptionError(f"method {BOTH} takes a size of the whole model: --ratio, --parameters or --bytes.")
    if how.sites is not None or how.allocation not in (None, SENSITIVITY):
        raise OptionError(f"method {BOTH} cuts the whole model by sensitivity: leave out sites and allocation.")
    return how.limit


def _formats(how: Completed, asked: CompressOptions) -> Completed:
    return replace(how, storage=asked.storage, dtype=asked.dtype)


def _share(prepared: Prepared, asked: CompressOptions, budget: Budget) -> float:
    """Share of all parameters that a budget leaves; of bytes as if all numbers were as long."""
    if budget.kind == "ratio":
        return float(budget.limit)
    written = replace(prepared, how=_formats(prepared.how, asked))
    uncut = [site_plan(one, one.rank_now) for one in prepared.flat]
    return min(budget.limit / written.whole(budget).used(uncut), 1.0)


def _absolute(source: Checkpoint, budget: Budget) -> Budget:
    """The same budget for what the joint cut leaves."""
    if budget.kind != "ratio":
        return budget
    return Budget("parameters", max(int(budget.limit * source.parameters), 1))
