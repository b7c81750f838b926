"""Savings of compression: sizes before and after, what every matrix kept, healing, designs."""

from __future__ import annotations

from rankscope.compress.heal.config import HealReport
from rankscope.compress.report import CompressReport, LossSearch, SiteReport
from rankscope.train.rank_layouts import DesignReport
from rankscope_eval.numbers import change, count, duration, percent, plural, ratio, significant, size, spread
from rankscope_eval.page.lineage import Library
from rankscope_eval.page.parts import Cell, Heat, Part, Row, Section, Table, bar, heat, number, role_name


def savings_section(library: Library) -> Section:
    """Every compression, healing and design, model by model."""
    made = [one for group in library.groups for one in library.about("compress", group)]
    healed = [one.content for group in library.groups for one in library.about("heal", group)]
    return Section(
        "savings",
        "Sizes",
        "Size",
        [
            *([Part(tables=[_overview([one.content for one in made])])] if made else []),
            *(compress_part(one.content, f"compress-{place}", one.path) for place, one in enumerate(made)),
            *([Part("Healing", tables=[_healings(healed)])] if healed else []),
            *(design_part(one.content, f"design-{place}") for place, one in enumerate(library.of("design"))),
        ],
    )


def compress_part(report: CompressReport, name: str, path: str) -> Part:
    """One compression: its sentence, what was kept where, and every matrix."""
    kept = [row for row in report.sites if row.layer is not None]
    stacks = list(dict.fromkeys(row.stack for row in kept))
    return Part(
        f"{report.model} → {report.out}",
        text=compress_sentence(report),
        notes=report.notes,
        maps=[_map([row for row in kept if row.stack == stack], stack, f"{name}-{stack}") for stack in stacks],
        lead=None if report.search is None else _steps(report.search, f"{name}-steps"),
        folded=None
        if report.recast
        else (f"All {plural(len(report.sites), 'matrix', 'matrices')} of {path}", _matrices(report, f"{name}-table")),
    )


def compress_sentence(report: CompressReport) -> str:
    """Return the sentence on a compression: its method, and its size before and after."""
    looked = f", looking at {report.calibration}" if report.calibration else ""
    level = f" at ε = {report.eps:g}" if report.eps is not None else ""
    stored = ", linear layers in int8" if report.storage == "int8" else ""
    before, after = report.parameters["before"], report.parameters["after"]
    whole = report.selected_parameters["before"] == before
    cut = (
        f"Method {report.method}{level}, ranks by {report.allocation}{looked}{stored}: "
        f"{'the model keeps' if whole else 'the selected matrices keep'} {percent(report.selected_ratio)} of "
        f"{'its' if whole else 'their'} parameters"
    )
    return (
        f"{'Other number formats' + stored if report.recast else cut}; the whole model goes from {count(before)} to "
        f"{count(after)} parameters ({change(before, after)}) and from {size(report.bytes['before'])} to "
        f"{size(report.bytes['after'])} ({change(report.bytes['before'], report.bytes['after'])}). It took "
        f"{duration(report.seconds)}."
    )


def method_name(report: CompressReport) -> str:
    """Name the method of a compression, and int8 where linear layers are stored in it."""
    if report.recast:
        return "other number formats" + (", int8" if report.storage == "int8" else "")
    return report.method + (" + int8" if report.storage == "int8" else "")


def design_part(report: DesignReport, name: str) -> Part:
    """A network by design beside the stock one."""
    before, after = report.parameters.get("before", 0), report.parameters.get("after", 0)
    cache = "" if report.cache_ratio is None else f" and {percent(report.cache_ratio)} of the cache"
    rows: list[Row] = [
        [
            Cell(f"{row.stack}\u00a0{row.layer}", float(place)),
            row.part,
            number(row.rank, count(row.rank)),
            number(row.parameters_before, count(row.parameters_before)),
            number(row.parameters_after, count(row.parameters_after)),
        ]
        for place, row in enumerate(report.layers)
    ]
    heads = ["layer", "part", "rank", "parameters before", "after"]
    return Part(
        f"A design of low rank beside {report.model}",
        text=f"Its attention matrices store {percent(report.size_ratio)} of their parameters{cache}; the network has "
        f"{count(after)} parameters in place of {count(before)}.",
        folded=("Every layer", Table("Ranks by design", heads, rows, f"{name}-table", texts=(1,))),
    )


def _overview(reports: list[CompressReport]) -> Table:
    rows: list[Row] = []
    for one in reports:
        before, after = one.parameters["before"], one.parameters["after"]
        heavy, light = one.bytes["before"], one.bytes["after"]
        rows.append(
            [
                one.out,
                one.model,
                method_name(one),
                number(one.ratio, ratio(one.ratio)),
                number(before, count(before)),
                Cell(bar(after / before if before else 1.0, count(after)), float(after)),
                number(heavy, size(heavy)),
                Cell(bar(light / heavy if heavy else 1.0, size(light)), float(light)),
            ]
        )
    heads = [
        "compressed",
        "from",
        "method",
        "of all parameters",
        "parameters before",
        "parameters after",
        "weights before",
    ]
    heads.append("weights after")
    return Table("Sizes; a bar is the share that is left", heads, rows, "compress-sizes", texts=(1, 2, 5, 7))


def _map(rows: list[SiteReport], stack: str, name: str) -> Heat:
    cells = {
        (row.role, row.layer): (
            row.parameters_after / row.parameters_before,
            f"{row.layout}, rank {row.rank} of {min(row.shape)}",
        )
        for row in rows
        if row.parameters_before
    }
    return heat(name, stack, "parameters kept, in percent, by layer", cells)


def _matrices(report: CompressReport, name: str) -> Table:
    rows: list[Row] = []
    for place, row in enumerate(report.sites):
        where = row.stack if row.layer is None else f"{row.stack}\u00a0{row.layer}"
        rows.append(
            [
                Cell(where, float(place)),
                role_name(row.role),
                row.layout + (f": {row.note}" if row.note else ""),
                number(row.rank, count(row.rank)),
                number(row.widths[0] if row.widths else None, spread(row.widths)),
                number(row.parameters_before, count(row.parameters_before)),
                number(row.parameters_after, count(row.parameters_after)),
                number(row.relative_error, significant(row.relative_error)),
                number(row.lost, significant(row.lost)),
            ]
        )
    heads = [
        "matrix",
        "role",
        "layout",
        "rank",
        "width of a head",
        "parameters before",
        "after",
        "error / σ₁",
        "energy lost",
    ]
    return Table(f"Parts kept by {report.out}", heads, rows, name, texts=(1, 2))


def _steps(search: LossSearch, name: str) -> Table:
    rows: list[Row] = [
        [
            Cell(ratio(step.ratio), step.ratio),
            number(step.score, ratio(step.score)),
            number(step.upper, ratio(step.upper)),
            "yes" if step.holds else "no",
        ]
        for step in search.steps
    ]
    caption = (
        f"Shares of all parameters that were tried; {search.measure}, or its bound, may be at most "
        f"{1 + search.max_loss:g}"
    )
    return Table(caption, ["of all parameters", search.measure, "95 % bound", "holds"], rows, name, texts=(3,))


def _healings(reports: list[HealReport]) -> Table:
    rows: list[Row] = [
        [
            one.out,
            one.model,
            one.teacher,
            number(one.steps, count(one.steps)),
            number(one.seconds, duration(one.seconds)),
            number(one.first_loss, significant(one.first_loss)),
            number(one.last_loss, significant(one.last_loss)),
        ]
        for one in reports
    ]
    heads = ["healed", "from", "teacher", "steps", "time", "loss at first", "at last"]
    return Table("Trained to answer as the teacher does", heads, rows, "heal-table", texts=(1, 2))
