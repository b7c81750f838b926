"""The largest checkpoint whose forecasts take no more than a share of the original's time, as a clock says.

Time is not linear in parameters: a hidden unit of an encoder costs milliseconds, one of a decoder that reads a single
token nearly nothing. So ranks have prices, per kind of cut, from models of the shapes in question: all cuts of one kind
at a quarter of their ranks, everything else as it is, timed beside the original. Numbers do not matter to a clock, so
these models are random. The allocation then spends the time as it would spend parameters, and the plan that it finds is
timed as well, and corrected until it fits. After ZipLM (arXiv:2302.04089), which prices structures by a table of times.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from rankscope.checkpoints import Checkpoint
from rankscope.compress.apply import adopt, jobs_of, layouts_of, write_folder
from rankscope.compress.options import SENSITIVITY, TIME, Budget, CompressOptions
from rankscope.compress.plan import Plan, Spectrum, kind_of, site_plan
from rankscope.compress.prepare import Prepared, prepare, priced
from rankscope.compress.report import CompressReport, LossSearch, LossStep
from rankscope.compress.write import Job, write_companions, write_jobs
from rankscope.engine import Progress, silent
from rankscope.errors import OptionError
from rankscope.families.weight_layout import low_rank_config
from rankscope.io.atomic import atomic_folder, refuse_existing

Timer = Callable[[Sequence[Path]], list[float]]
"""Times of the same forecasts by some folders, over the original's."""
PRICED_AT = 4
"""Every kind of cut is priced at this fraction of its ranks."""
TRIES, CLOSE = 6, 0.95
"""Plans that are timed at most, and the share of the time allowed that is near enough."""
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
    prepared = prepare(checkpoint, how, progress=progress)
    if prepared.allocation not in ("energy", SENSITIVITY):
        raise OptionError(f"allocation {prepared.allocation} knows no prices: use energy or sensitivity.")
    with atomic_folder(out, force) as folder:
        place = folder / _CANDIDATES
        place.mkdir()
        if how.prices is None:
            tell(0, TRIES, "timing every kind of cut")
            prices = measure_prices(prepared, timer, place)
            prepared = priced(replace(prepared, how=replace(prepared.how, prices=prices)))
        plan, asked, steps = _fitting(prepared, timer, most, place, tell)
        prepared = replace(prepared, how=replace(prepared.how, budget=Budget(TIME, asked)))
        found = write_folder(prepared, plan, place / "found")
        search = LossSearch(measure, most - 1, steps[-1].score, tuple(steps))
        seconds = round(time.perf_counter() - begin, 3)
        report = adopt(
            folder, place / "found", replace(found, out=str(out), seconds=seconds, search=search), conditions
        )
        shutil.rmtree(place)
    return report


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
    generator = torch.Generator().manual_seed(0)

    def drawn(job: Job) -> Job:
        def make(_: object) -> Mapping[str, Tensor]:
            return {one.name: torch.randn(one.shape, generator=generator) * SPREAD for one in job.made}

        return Job(job.made, make)

    folder.mkdir()
    write_jobs(folder, [drawn(job) for job in jobs_of(source, changed)], prepared.encoding(layouts), workers=1)
    config = low_rank_config(source.config, source.family, layouts, prepared.how.method, prepared.storage)
    write_companions(folder, source, config, prepared.dtype, prepared.storage)
    return folder


def _thin(prepared: Prepared, kinds: set[str]) -> Plan:
    """All cuts of some kinds at a fraction of their ranks, the others as they are."""

    def rank(one: Spectrum) -> int:
        return max(one.rank_now // PRICED_AT, 1) if kind_of(one) in kinds else one.rank_now

    return Plan(None, tuple(site_plan(one, rank(one)) for one in prepared.flat), prepared.allocation)


def _fitting(
    prepared: Prepared, timer: Timer, most: float, place: Path, tell: Progress
) -> tuple[Plan, float, list[LossStep]]:
    """The slowest plan that was timed and fits, the time that it was planned for, and all that were timed, it last."""
    least = max(prepared.least(TIME), SHORTEST)
    asked, best = max(most, least), None  # prices only estimate what the least takes
    aim = most * (1 + CLOSE) / 2
    low: tuple[float, float] | None = None  # planned and measured
    high = (1.0, 1.0)
    steps: list[LossStep] = []
    for number in range(TRIES):
        plan = prepared.by_budget(Budget(TIME, asked))
        shape = write_shape(prepared, plan, place / f"plan-{number}")
        tell(number, TRIES, f"timing a plan for {asked:.3f} of the time")
        (share,) = timer([shape])
        shutil.rmtree(shape)
        whole = prepared.source.parameters
        step = LossStep((whole - plan.before + plan.after) / whole, share, share <= most)
        steps.append(step)
        if step.holds and (best is None or share > best[2].score):
            best = plan, asked, step
        if (step.holds and share > CLOSE * most) or (not step.holds and asked == least):
            break
        low, high = ((asked, share), high) if step.holds else (low, (asked, share))
        if low is None:
            asked = max(asked + aim - share, least)
        else:
            asked = low[0] + (high[0] - low[0]) * (aim - low[1]) / max(high[1] - low[1], 1e-9)
    if best is None:
        nearest = min(step.score for step in steps)
        raise OptionError(
            f"a time of {most:g} is out of reach: of {len(steps)} plans that were timed the fastest took {nearest:.3f} "
            "of the original's; ask for more, or compress what method stream or --layers made."
        )
    plan, asked, step = best
    return plan, asked, [*(one for one in steps if one is not step), step]
