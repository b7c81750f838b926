"""From a plan to a smaller folder: factorise, refit, write."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rankscope.checkpoints import Checkpoint
from rankscope.compress.calibration.sources import cap_note, given_series
from rankscope.compress.calibration.statistics import series_for
from rankscope.compress.card import write_card
from rankscope.compress.cut import Cut
from rankscope.compress.options import JOINT, Completed, CompressOptions
from rankscope.compress.plan import Plan, SitePlan
from rankscope.compress.prepare import Prepared, check_family, read_matrices, stored_names
from rankscope.compress.recipe import Seen, Sought, collected, note_search, seen, write_recipe
from rankscope.compress.refine import refined_jobs
from rankscope.compress.report import CompressReport, site_reports
from rankscope.compress.write import REPORT, Job, TensorSpec, copied, finish_folder, write_jobs
from rankscope.engine import Progress, silent
from rankscope.families import Layout
from rankscope.families.weight_layout import low_rank_config
from rankscope.io import codec
from rankscope.io.atomic import atomic_folder


def write_folder(
    prepared: Prepared, plan: Plan, out: str | Path, *, force: bool = False, begin: float | None = None
) -> CompressReport:
    """Factorise everything as planned and write the folder, whole or not at all.

    Args:
        prepared: the measured checkpoint.
        plan: which rank where.
        out: folder to write.
        force: replace ``out`` if it exists.
        begin: `time.perf_counter` when the work began, for the report; now by default.
    """
    start = time.perf_counter() if begin is None else begin
    source, planned = prepared.source, prepared.planned(plan)
    changed, layouts = layouts_of(prepared, plan)
    chosen = {site.name for site in prepared.sites}
    how = prepared.how if changed else replace(prepared.how, refine=False)
    shown: Seen | None = None
    if prepared.calibration is not None:  # moments that are given know their own
        how = replace(how, decoder=prepared.calibration.decoder())
        shown = collected(prepared.calibration.settings)
    elif how.refine and (series := given_series(source, how)) is not None:
        how, shown = replace(how, calibration=series), seen(series)
    draft = low_rank_config(source.config, source.family, layouts, how.method)
    config = low_rank_config(source.config, source.family, layouts, how.method, prepared.storage)
    with atomic_folder(out, force) as folder:
        with refined_jobs(source, jobs_of(source, changed), draft, how, folder, prepared.progress) as (jobs, refined):
            size = write_jobs(folder, jobs, prepared.encoding(layouts), how.workers, prepared.progress)
        report = CompressReport(
            model=source.source,
            family=source.family.name,
            out=str(out),
            method=prepared.how.method,
            allocation=plan.allocation,
            calibration=None if shown is None else shown["calibration"],
            eps=plan.eps,
            asked=prepared.how.asked,
            ratio=(source.parameters - plan.before + plan.after) / source.parameters,
            selected_ratio=plan.ratio,
            parameters={"before": source.parameters, "after": source.parameters - plan.before + plan.after},
            selected_parameters={"before": plan.before, "after": plan.after},
            bytes={"before": source.bytes, "after": size},
            dtype=None if prepared.dtype is None else str(prepared.dtype).removeprefix("torch."),
            storage=prepared.storage,
            seconds=round(time.perf_counter() - start, 3),
            notes=_capped(prepared) + _notes(prepared, planned) + _left_out(how, refined),
            sites=tuple(
                entry
                for cut, plans in planned
                for entry in site_reports(source, cut, plans, layouts)
                if entry.name in chosen
            ),
            refined=refined or 0,
        )
        finish_folder(folder, source, config, report, prepared.dtype, prepared.storage)
        write_recipe(folder, source, replace(prepared.how, decoder=how.decoder), shown)
        write_card(folder, out)
    return report


def recast(
    source: Checkpoint, how: CompressOptions, *, out: str | Path, force: bool = False, progress: Progress | None = None
) -> CompressReport:
    """Write a checkpoint in other number formats, and nothing cut."""
    begin = time.perf_counter()
    check_family(source)
    kept = replace(how, method="svd", refine=False).completed()
    prepared = Prepared(source, (), kept, "uniform-eps", None, (), (), progress or silent)
    return write_folder(prepared, Plan(None, ()), out, force=force, begin=begin)


def _capped(prepared: Prepared) -> tuple[str, ...]:
    known = prepared.calibration
    return () if known is None else cap_note(prepared.source, known.settings.corpus)


def _notes(prepared: Prepared, planned: Sequence[tuple[Cut, Sequence[SitePlan]]]) -> tuple[str, ...]:
    """Say where the calibration showed fewer positions than there are ranks to choose."""
    short: dict[str, tuple[int, int]] = {}
    for cut, plans in planned:
        found = cut.shortage(plans)
        if found is not None:
            short[cut.module] = min(found, short.get(cut.module, found))
    if not short or prepared.calibration is None:
        return ()
    (tokens, rank), module = min((found, module) for module, found in short.items())
    settings, modules = prepared.calibration.settings, {cut.module for cut, _ in planned}
    enough = max(series_for(ranks, positions, settings.series) for positions, ranks in short.values())
    return (
        f"calibration set {settings.corpus} shows {len(short)} of {len(modules)} matrices or "
        f"attentions fewer positions than they have ranks, {module} {tokens} for {rank}: directions that the data "
        f"do not cover get the same small variance; use at least {enough} series in place of {settings.series}.",
    )


def _left_out(how: Completed, refined: int | None) -> tuple[str, ...]:
    """Say that there was no refit, where nobody asked for that."""
    if refined is not None or how.refine is not None or how.method != JOINT:
        return ()
    return ("there are fewer than two calibration series, or they could not be regenerated; refinement was skipped.",)


Changed = Sequence[tuple[Cut, Sequence[SitePlan]]]


def layouts_of(prepared: Prepared, plan: Plan) -> tuple[Changed, dict[str, Layout]]:
    """Cuts that a plan changes, and the layouts of all modules then."""
    changed = [(cut, plans) for cut, plans in prepared.planned(plan) if any(one.changed for one in plans)]
    layouts = dict(prepared.source.layouts)
    for cut, plans in changed:
        layouts |= cut.layouts(plans, layouts)
    return changed, layouts


def adopt(
    folder: Path, found: Path, report: CompressReport, conditions: Mapping[str, str] | None = None
) -> CompressReport:
    """Move a written folder's files into the one that it was searched for, with a report of the search.

    Args:
        folder: where they go.
        found: where they are.
        report: of the search, if there was one.
        conditions: what a clock's times hold for.
    """
    for file in found.iterdir():
        file.rename(folder / file.name)
    codec.write(folder / REPORT, report, indent=2)
    if report.search is not None:
        search, known = report.search, None if conditions is None else dict(conditions)
        note_search(folder, Sought(search.measure, round(1 + search.max_loss, 12), known))
    write_card(folder, report.out)
    return report


def jobs_of(source: Checkpoint, changed: Changed) -> list[Job]:
    """Factors of the cuts that change, and copies of all other tensors."""
    jobs: list[Job] = []
    replaced: set[str] = set()
    renamed: dict[str, str] = {}
    for cut, plans in changed:
        present = stored_names(source, cut)
        shapes = cut.shapes(plans)
        replaced |= {*present, *(shapes.keys() & source.index.keys())}
        renamed |= cut.renamed()
        stored = source.index[present[0]].dtype
        made = tuple(TensorSpec(name, shape, stored) for name, shape in shapes.items())
        jobs.append(Job(made, partial(cut.tensors, plans=plans), partial(read_matrices, source, cut)))
    for name in source.index:
        if name not in replaced and not source.is_scale(name):
            jobs.append(copied(source, name, renamed.get(name)))
    return jobs
