"""Method ``joint+stream``: heads, hidden units, ranks and residual streams under one budget.

`rankscope.compress.joint` and `rankscope.compress.width` make sublayers narrower inside, `rankscope.compress.stream`
what flows between them, so that the two multiply. Both know what everything they drop is worth to the answers, to
second order and in one unit, the mean loss. So the budget is shared by that: of all pairs of a joint cut and a slicing
that meet it, the one is taken whose losses add up to least. The joint cut is written and refitted first; the stream is
measured anew on what it left, and what writes to it refitted once more, to the original's.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.choices import DECODERS
from rankscope.compress.apply import adopt, jobs_of, layouts_of, write_folder
from rankscope.compress.calibration import Calibration
from rankscope.compress.calibration.sources import given_series, probe_set
from rankscope.compress.options import DEPTH, JOINT, JOINT_STREAM, SENSITIVITY, STREAM, WHOLE, Budget, CompressOptions
from rankscope.compress.plan import Plan, least_plan, site_plan
from rankscope.compress.prepare import Prepared, prepare
from rankscope.compress.recipe import collected, seen, write_recipe
from rankscope.compress.report import CompressReport
from rankscope.compress.slicing import Slicing, kept_width, plan_widths, slice_checkpoint
from rankscope.compress.stream import Basis, calibrated_on, measure, stream_taps
from rankscope.engine import Progress, silent, staged
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


def splits(
    prepared: Prepared, slicing: Slicing, bases: Mapping[str, Basis], share: float, alone: Plan | None
) -> Iterator[Split]:
    """Pairs of a joint cut and a slicing that together leave a share of all parameters.

    Args:
        prepared: the model, its cuts measured.
        slicing: the same model.
        bases: coordinates of its streams.
        share: of all parameters, to be left.
        alone: the joint cut that needs no slicing, None where none can meet the budget.
    """
    limit = float(Budget("ratio", share).absolute(slicing.source.parameters).limit)
    least = prepared.least("ratio")
    for step in range(STEPS + 1):
        plan = alone if step == 0 else prepared.by_budget(Budget("ratio", max(share ** (1 - step / STEPS), least)))
        if plan is None:
            continue
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
            widths = plan_widths(bases, partial(slicing.numbers, shapes), limit, prepared.how.multiple)
        except OptionError:
            continue
        dropped = (float(bases[point].sigma[width:].square().sum()) for point, width in widths.items())
        yield Split(plan, widths, lost, math.fsum(dropped))


def shapes_of(prepared: Prepared, slicing: Slicing, plan: Plan) -> dict[str, tuple[int, ...]]:
    """Shapes of all tensors of a model whose matrices are cut by a plan, its streams whole."""
    changed, _ = layouts_of(prepared, plan)
    cut = {made.name: made.shape for job in jobs_of(prepared.source, changed) for made in job.made}
    return {**{name: shape for name, shape in slicing.shapes.items() if slicing.tied(name)}, **cut}


def suited(source: Checkpoint, how: CompressOptions) -> CompressOptions | None:
    """The same options with method ``joint+stream`` where a compression without a method means it, else None.

    That is a size of the whole model of a model that forecasts, whose streams are whole, on series that can be had.
    """
    free = how.method is None and how.sites is None and how.allocation is None
    fits = (
        free
        and how.limit is not None
        and how.limit.kind in KINDS
        and source.family.forecastable
        and source.family.low_rank is not None
        and not read_widths(source.config)
        and not source.factored
    )
    if not fits:
        return None
    series = given_series(source, how)
    if series is None:
        return None
    return replace(how, method=JOINT_STREAM, calibration=how.calibration if _moments(how) else series)


def _moments(how: CompressOptions) -> Calibration | None:
    """Moments that are given."""
    return how.calibration if isinstance(how.calibration, Calibration) else None


class JointStream:
    """A model whose cuts and streams are measured, to be written at any size of the whole model.

    Args:
        source: the model.
        how: options; their size does not matter.
        progress: called with (done, total, what).

    Raises:
        RankscopeError: as `rankscope.compress.compress` says.
    """

    def __init__(self, source: Checkpoint, how: CompressOptions, progress: Progress) -> None:
        if how.sites is not None or how.allocation not in (None, SENSITIVITY):
            raise OptionError(
                f"method {JOINT_STREAM} cuts the whole model by sensitivity: leave out sites and allocation."
            )
        self.source, self.slicing, self.series = source, Slicing(source), calibrated_on(source, how)
        self.how = replace(how, calibration=self.series, probe=probe_set(source, how))
        shown = replace(self.how, allocation=SENSITIVITY, eps=None, ratio=None, budget=None, storage=None, dtype=None)
        moments, taps = _moments(how), stream_taps(source)
        if moments is not None and moments.serves(source.sites(WHOLE), how.decoder or DECODERS[0]):
            shown = replace(shown, calibration=moments)
        prepared = prepare(source, replace(shown, method=JOINT), progress=staged(progress, JOINT), others=taps)
        self.prepared = replace(prepared, how=replace(prepared.how, calibration=self.series))
        sought = replace(shown, method=STREAM, calibration=self.series)
        self.bases = measure(source, sought, staged(progress, STREAM), taps)

    @property
    def least(self) -> float:
        """Share of all parameters that cannot be gone below: the least cuts, and the narrowest streams."""
        budget = self.prepared.whole(Budget("ratio", 1.0))
        plan = least_plan(self.prepared.flat, budget, self.prepared.allocation, self.how.multiple)
        widths = dict.fromkeys(self.bases, kept_width(0, self.slicing.d_model, self.how.multiple))
        return self.slicing.numbers(shapes_of(self.prepared, self.slicing, plan), widths) / self.source.parameters

    def choose(self, budget: Budget) -> Split:
        """Of all pairs of a cut and a slicing that meet a size the one that costs least.

        Raises:
            OptionError: the size is out of reach.
        """
        share = self._share(budget)
        found = min(
            splits(self.prepared, self.slicing, self.bases, share, self._alone(budget)),
            key=lambda one: one.lost + one.sliced,
            default=None,
        )
        if found is None:
            raise OptionError(self._out_of_reach(budget, share))
        return found

    def write(
        self, budget: Budget, out: str | Path, *, force: bool = False, begin: float | None = None, progress: Progress
    ) -> CompressReport:
        """Write the folder of a size, whole or not at all.

        Args:
            budget: the size.
            out: folder to write.
            force: replace ``out`` if it exists.
            begin: `time.perf_counter` when the work began, for the report; now by default.
            progress: called with (done, total, what).

        Raises:
            OptionError: the size is out of reach.
        """
        start, source = time.perf_counter() if begin is None else begin, self.source
        sized = replace(self.how, method=JOINT_STREAM, ratio=None, budget=budget)
        if budget.kind == "ratio":
            sized = replace(self.how, method=JOINT_STREAM, ratio=float(budget.limit), budget=None)
        prepared, found = replace(self.prepared, progress=staged(progress, JOINT)), self.choose(budget)
        with atomic_folder(out, force) as folder:
            place = folder / _CANDIDATES
            place.mkdir()
            if not found.widths:  # the streams are worth more than what the cuts can spare
                last = write_folder(replace(self.written, progress=progress), found.plan, place / "found")
                sites = last.sites
            else:
                floating = replace(prepared, how=replace(prepared.how, storage="float"))
                first = write_folder(floating, found.plan, place / JOINT)
                rest = replace(sized, method=STREAM, ratio=None, budget=budget.absolute(source.parameters))
                rest = replace(rest, storage=self.how.storage or source.storage)
                smaller = open_checkpoint(place / JOINT)
                tell = staged(progress, STREAM)
                last = slice_checkpoint(smaller, rest, out=place / "found", original=source, progress=tell)
                written = open_checkpoint(place / "found")
                left = {site.name: written.stored(site) for site in written.sites("all")}
                cut = (replace(one, parameters_after=left.get(one.name, one.parameters_after)) for one in first.sites)
                sites = (*cut, *last.sites)
                last = replace(last, refined=first.refined + last.refined, notes=first.notes)
            moments = prepared.calibration
            told = seen(self.series) if moments is None else collected(moments.settings)
            write_recipe(place / "found", source, sized, told)
            after = last.parameters["after"]
            whole = replace(
                last,
                model=source.source,
                out=str(out),
                method=JOINT_STREAM,
                allocation=SENSITIVITY,
                asked=sized.asked,
                ratio=after / source.parameters,
                selected_ratio=after / source.parameters,
                parameters={"before": source.parameters, "after": after},
                selected_parameters={"before": source.parameters, "after": after},
                bytes={"before": source.bytes, "after": last.bytes["after"]},
                seconds=round(time.perf_counter() - start, 3),
                sites=sites,
            )
            adopt(folder, place / "found", whole)
            shutil.rmtree(place)
        return whole

    def _out_of_reach(self, budget: Budget, share: float) -> str:
        """Say the least, in the unit of the budget too where numbers are as long as each other, and what goes lower."""
        least, ratio = self.least, Budget("ratio", 1.0)
        rounded = (self.how.storage or self.source.storage) == "int8"
        shorter = budget.kind == "bytes" and not rounded
        sized = budget.kind == "parameters" or shorter
        size = f" ({budget.shown(budget.limit * least / share)} {budget.kind})" if sized else ""
        return (
            f"{budget.kind} {budget.limit:.12g} is out of reach: cuts and streams leave at least {ratio.shown(least)} "
            f"of all parameters{size}, and what is near that forecasts nothing. Ask for more, or go lower with "
            f"{'--storage int8, or with ' if shorter else ''}--layers N (method {DEPTH}) first and this on the result"
            f"{f', or with a smaller --multiple ({self.how.multiple} now)' if self.how.multiple > 1 else ''}."
        )

    @property
    def written(self) -> Prepared:
        """The measured cuts, to be written in the number formats that are asked for."""
        how = replace(self.prepared.how, storage=self.how.storage, dtype=self.how.dtype)
        return replace(self.prepared, how=how)

    def _alone(self, budget: Budget) -> Plan | None:
        """The joint cut that meets a budget with whole streams."""
        try:
            return self.written.by_budget(budget)
        except OptionError:
            return None

    def _share(self, budget: Budget) -> float:
        """Share of all parameters that a budget leaves; of bytes as if all numbers were as long."""
        if budget.kind == "ratio":
            return float(budget.limit)
        uncut = [site_plan(one, one.rank_now) for one in self.prepared.flat]
        return min(budget.limit / self.written.whole(budget).used(uncut), 1.0)


def compress_joint_stream(
    source: Checkpoint, how: CompressOptions, *, out: str | Path, force: bool = False, progress: Progress | None = None
) -> CompressReport:
    """Write a checkpoint with narrower sublayers and narrower residual streams.

    Raises:
        OptionError: a size that this method does not have, or that is out of reach.
        RankscopeError: as `rankscope.compress.compress` says.
    """
    begin, report = time.perf_counter(), progress or silent
    if how.limit is None or how.limit.kind not in KINDS:
        raise OptionError(f"method {JOINT_STREAM} takes a size of the whole model: --ratio, --parameters or --bytes.")
    return JointStream(source, how, report).write(how.limit, out, force=force, begin=begin, progress=report)
