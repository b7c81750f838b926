"""The largest checkpoint whose forecasts take no more than a share of the original's time, as a clock says.

Numbers do not matter to a clock, so models of the shapes in question are timed with random weights, beside the
original, until one fits.

Method ``joint+stream`` is asked for shares of all parameters. What it writes is measured on the cut model and has other
widths than were planned, at the same size, so it is timed once more, and made smaller until it fits.

Method ``joint`` spends time itself. Time is not linear in parameters: a hidden unit of an encoder costs milliseconds,
one of a decoder that reads a single token nearly nothing. So ranks have prices, per kind of cut, from models in which
all cuts of one kind are at a quarter of their ranks and everything else is as it is. The allocation then spends time as
it would spend parameters. After ZipLM (arXiv:2302.04089), which prices structures by a table of times.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.compress.apply import adopt, jobs_of, layouts_of, write_folder
from rankscope.compress.calibration.sources import with_moments
from rankscope.compress.joint_stream import JointStream, Split, shapes_of, suited
from rankscope.compress.options import JOINT_STREAM, SENSITIVITY, TIME, Budget, CompressOptions
from rankscope.compress.plan import Plan, Spectrum, kind_of, site_plan
from rankscope.compress.prepare import Prepared, allocation_of, prepare, priced
from rankscope.compress.report import CompressReport, LossSearch, LossStep
from rankscope.compress.slicing import Slicing
from rankscope.compress.write import Job, TensorSpec, encoding_of, write_companions, write_jobs
from rankscope.engine import Progress, silent
from rankscope.engine.device import resolve_dtype
from rankscope.errors import OptionError
from rankscope.families.weight_layout import low_rank_config
from rankscope.io.atomic import atomic_folder, refuse_existing

Timer = Callable[[Sequence[Path]], list[float]]
"""Times of the same forecasts by some folders, over the original's."""
PRICED_AT = 4
"""Every kind of cut is priced at this fraction of its ranks."""
TRIES, CLOSE = 6, 0.95
"""Plans that are timed at most, and the share of the time allowed, or of what was too much, that is near enough."""
WRITTEN, SMALLER = 3, 0.98
"""Folders that are written at most, and what one that is too slow is asked for beyond the excess."""
SHORTEST = 1e-3
"""Least share that is planned for, however little the prices leave."""
SPREAD = 0.05
"""Standard deviation of the weights of models that are timed."""
_CANDIDATES = ".candidates"


def compress_to_time(
    checkpoint: Checkpoint | str | Path | None = None,
    options: CompressOptions | None = None,
    *,
    out: str | Path,
    most: float,
    timer: Timer,
    measure: str = "time",
    conditions: Mapping[str, str] | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> CompressReport:
    """Find what to cut so that forecasts take at most a share of the original's time, and write it.

    Args:
        checkpoint: an open checkpoint, or what `rankscope.checkpoints.open_checkpoint` takes.
        options: which matrices, and how; no size. Prices of an earlier search are taken as they are.
        out: folder to write; it appears whole or not at all.
        most: share of the original's time, in (0, 1].
        timer: times folders, whose weights may be random.
        measure: what it times, for the report.
        conditions: what its times hold for, for the recipe; read at the end.
        force: replace ``out`` if it exists.
        progress: called with (done, total, what).

    Returns:
        The report of the folder, with every plan that was timed in ``search``.

    Raises:
        OptionError: the share is out of range or out of reach, or the allocation does not weigh ranks by their price.
        RankscopeError: as `rankscope.compress.compress` says.
    """
    begin, tell = time.perf_counter(), progress or silent
    how = options or CompressOptions()
    if how.sizes:
        raise OptionError(f"latency searches for the size; remove {' and '.join(how.sizes)}.")
    Budget(TIME, most)
    refuse_existing(out, force)
    source = open_checkpoint(checkpoint)
    how = with_moments(how)
    narrowed = how if how.method == JOINT_STREAM else None
    if narrowed is None and how.prices is None:
        narrowed = suited(source, replace(how, ratio=1.0))
    if narrowed is not None:
        search = partial(_by_size, JointStream(source, narrowed, tell))
    else:
        allocation = allocation_of(how.completed(), source.family.forecastable)
        if allocation not in ("energy", SENSITIVITY):
            raise OptionError(f"allocation {allocation} knows no prices: use energy or sensitivity.")
        prepared = prepare(source, how, progress=progress)
        search = partial(_by_price, prepared)
    with atomic_folder(out, force) as folder:
        place = folder / _CANDIDATES
        place.mkdir()
        found, steps = search(timer, most, place, tell)
        tried = LossSearch(measure, most - 1, steps[-1].score, tuple(steps))
        seconds = round(time.perf_counter() - begin, 3)
        report = adopt(folder, place / "found", replace(found, out=str(out), seconds=seconds, search=tried), conditions)
        shutil.rmtree(place)
    return report


@dataclass(frozen=True)
class _Priced:
    """Plans for a share of the time, by prices."""

    prepared: Prepared
    lower = "compress what method stream or --layers made"
    """Remedy for a time that is out of reach."""

    @property
    def least(self) -> float:
        return max(self.prepared.least(TIME), SHORTEST)

    def plan(self, asked: float) -> Plan:
        return self.prepared.by_budget(Budget(TIME, asked))

    def ratio(self, plan: Plan) -> float:
        return _left(self.prepared, plan)

    def shape(self, plan: Plan, folder: Path) -> Path:
        return write_shape(self.prepared, plan, folder)


@dataclass(frozen=True)
class _Sliced:
    """Plans for a share of all parameters, of cuts and streams together."""

    both: JointStream
    lower = "compress what --layers made"

    @property
    def least(self) -> float:
        return self.both.least

    def plan(self, asked: float) -> Split:
        return self.both.choose(Budget("ratio", asked))

    def ratio(self, plan: Split) -> float:
        both = self.both
        if not plan.widths:
            return _left(both.prepared, plan.plan)
        shapes = shapes_of(both.prepared, both.slicing, plan.plan)
        return both.slicing.numbers(shapes, plan.widths) / both.source.parameters

    def shape(self, plan: Split, folder: Path) -> Path:
        if not plan.widths:
            return write_shape(self.both.written, plan.plan, folder)
        narrow = write_shape(self.both.prepared, plan.plan, folder.with_name(f"{folder.name}-cut"))
        how, slicing = self.both.how, Slicing(open_checkpoint(narrow))
        storage, dtype = how.storage or self.both.source.storage, resolve_dtype(how.dtype)
        made = (
            TensorSpec(name, shape, slicing.dtypes.get(name, slicing.source.dtype))
            for name, shape in slicing.sliced(plan.widths).items()
        )
        folder.mkdir()
        encoding = encoding_of(slicing.source, slicing.layouts(plan.widths), storage, dtype)
        write_jobs(folder, _drawn([one] for one in made), encoding, workers=1)
        write_companions(folder, slicing.source, slicing.config(plan.widths, storage), dtype, storage)
        shutil.rmtree(narrow)
        return folder


def _left(prepared: Prepared, plan: Plan) -> float:
    """Share of all parameters that a cut leaves."""
    whole = prepared.source.parameters
    return (whole - plan.before + plan.after) / whole


def _by_price(
    prepared: Prepared, timer: Timer, most: float, place: Path, tell: Progress
) -> tuple[CompressReport, list[LossStep]]:
    """Write the plan that fits into ``found``; return its report and all plans that were timed, it last."""
    if prepared.how.prices is None:
        tell(0, TRIES, "timing every kind of cut")
        prices = measure_prices(prepared, timer, place)
        prepared = priced(replace(prepared, how=replace(prepared.how, prices=prices)))
    asked, plan, steps = _fitting(_Priced(prepared), timer, most, place, tell)
    prepared = replace(prepared, how=replace(prepared.how, budget=Budget(TIME, asked)))
    return replace(write_folder(prepared, plan, place / "found"), asked={TIME: most}), steps


def _by_size(
    both: JointStream, timer: Timer, most: float, place: Path, tell: Progress
) -> tuple[CompressReport, list[LossStep]]:
    """The same, of streams too; what is written is timed, and smaller ones are written until one fits."""
    way = _Sliced(both)
    asked, _, steps = _fitting(way, timer, most, place, tell)
    for _ in range(WRITTEN):
        report = both.write(Budget("ratio", asked), place / "found", progress=tell)
        (share,) = timer([place / "found"])
        steps.append(LossStep(report.ratio, share, share <= most))
        if share <= most or asked <= way.least:
            break
        shutil.rmtree(place / "found")
        asked = max(asked * SMALLER * most / share, way.least)
    if not steps[-1].holds:
        raise OptionError(_out_of_reach(way, most, steps))
    return replace(report, asked={TIME: most}), steps


def measure_prices(prepared: Prepared, timer: Timer, place: Path) -> dict[str, float]:
    """Share of the original's time that one rank takes, by kind of cut.

    Small kinds vanish in the noise of a clock one by one, though not together: what all kinds at once save beyond the
    sum of each is shared out by the numbers that they store.

    Args:
        prepared: the measured checkpoint.
        timer: times folders.
        place: an existing folder for models that are timed; they are removed.
    """
    kinds = [*dict.fromkeys(kind_of(spectrum) for spectrum in prepared.flat)]
    plans = [*(_thin(prepared, {kind}) for kind in kinds), _thin(prepared, set(kinds))]
    folders = [write_shape(prepared, plan, place / f"kind-{number}") for number, plan in enumerate(plans)]
    *saved, whole = (1 - share for share in timer(folders))
    for folder in folders:
        shutil.rmtree(folder)
    alone = [max(0.0, one) for one in saved]
    numbers = [plan.before - plan.after for plan in plans[:-1]]
    missing = max(0.0, whole - sum(alone)) / (sum(numbers) or 1)
    ranks = [sum(site.spectrum.rank_now - site.rank for site in plan.sites if site.changed) for plan in plans[:-1]]
    found = zip(kinds, alone, numbers, ranks, strict=True)
    return {kind: (own + missing * count) / cut if cut else 0.0 for kind, own, count, cut in found}


def write_shape(prepared: Prepared, plan: Plan, folder: Path) -> Path:
    """Write a model of a plan's shapes with random weights, for a clock."""
    source = prepared.source
    changed, layouts = layouts_of(prepared, plan)
    folder.mkdir()
    write_jobs(folder, _drawn(job.made for job in jobs_of(source, changed)), prepared.encoding(layouts), workers=1)
    config = low_rank_config(source.config, source.family, layouts, prepared.how.method, prepared.storage)
    write_companions(folder, source, config, prepared.dtype, prepared.storage)
    return folder


def _drawn(made: Iterable[Sequence[TensorSpec]]) -> list[Job]:
    """Random tensors."""
    generator = torch.Generator().manual_seed(0)

    def make(specs: Sequence[TensorSpec], _: object) -> Mapping[str, Tensor]:
        return {one.name: torch.randn(one.shape, generator=generator) * SPREAD for one in specs}

    return [Job(tuple(specs), partial(make, specs)) for specs in made]


def _thin(prepared: Prepared, kinds: set[str]) -> Plan:
    """All cuts of some kinds at a fraction of their ranks, the others as they are."""

    def rank(one: Spectrum) -> int:
        return max(one.rank_now // PRICED_AT, 1) if kind_of(one) in kinds else one.rank_now

    return Plan(None, tuple(site_plan(one, rank(one)) for one in prepared.flat), prepared.allocation)


def _fitting(
    way: _Priced | _Sliced, timer: Timer, most: float, place: Path, tell: Progress
) -> tuple[float, Any, list[LossStep]]:
    """The most that was asked for of all that fits, its plan, and all plans that were timed, it last.

    Clocks are noisy: of two plans that fit the larger is taken, not the one that seemed slower.
    """
    least = way.least
    asked, best = max(most, least), None  # only estimates what the least takes
    aim = most * (1 + CLOSE) / 2
    low: tuple[float, float] | None = None  # asked and measured
    high = (1.0, 1.0)
    steps: list[LossStep] = []
    for number in range(TRIES):
        plan: Any = way.plan(asked)
        shape = way.shape(plan, place / f"plan-{number}")
        tell(number, TRIES, f"timing a plan of {way.ratio(plan):.3f} of all parameters")
        (share,) = timer([shape])
        shutil.rmtree(shape)
        step = LossStep(way.ratio(plan), share, share <= most)
        steps.append(step)
        if step.holds and (best is None or asked > best[0]):
            best = asked, plan, step
        if (step.holds and share > CLOSE * most) or (not step.holds and asked == least):
            break
        low, high = ((asked, share), high) if step.holds else (low, (asked, share))
        if low is not None and low[0] > CLOSE * high[0]:
            break
        if low is None:
            asked = least if number == TRIES - 2 else max(asked * aim / share, least)
        else:
            asked = low[0] + (high[0] - low[0]) * (aim - low[1]) / max(high[1] - low[1], 1e-9)
    if best is None:
        raise OptionError(_out_of_reach(way, most, steps))
    asked, plan, step = best
    return asked, plan, [*(one for one in steps if one is not step), step]


def _out_of_reach(way: _Priced | _Sliced, most: float, steps: Sequence[LossStep]) -> str:
    nearest = min(step.score for step in steps)
    return (
        f"a time of {most:g} is out of reach: of {len(steps)} plans that were timed the fastest took {nearest:.3f} of "
        f"the original's; ask for more, or {way.lower}."
    )
