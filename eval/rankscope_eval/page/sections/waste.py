"""Wasted rank: spectra of weights, flow of ranks, embeddings, layer inputs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from statistics import median

from markupsafe import Markup

from rankscope import plots
from rankscope.compress.calibration import CalibrationReport
from rankscope.measure.embedding import EmbeddingReport
from rankscope.measure.flow import FEWEST, FlowReport, LayerFlow
from rankscope.measure.spectrum import SiteSpectrum, SpectrumReport
from rankscope.series.signals import TITLES
from rankscope_eval.numbers import count, percent, plural, significant, spread
from rankscope_eval.page.charts import plain_text, shortened
from rankscope_eval.page.lineage import Library
from rankscope_eval.page.parts import Cell, Heat, Part, Row, Section, Table, heat, number, role_name
from rankscope_eval.page.svg import chart

UNTRAINED = (
    "Never trained, and left out of maps and charts: {roles}. This attention reads one token and has nothing to choose "
    "from, so no gradient reaches them; their ranks are those of the random start."
)
_DEEPEST = 40
"""Layers that a chart with one line per layer still shows legibly."""


def waste_section(library: Library) -> Section:
    """Everything that was measured of ranks, model by model."""
    parts: list[Part] = []
    for at, group in enumerate(library.groups):
        idle = {pair for one in library.about("spectrum", group) for pair in _idle(one.content)}
        for place, one in enumerate(library.about("spectrum", group)):
            cut = library.resolve(one.content.model) in library.parents
            parts.append(spectrum_part(one.content, f"spectrum-{at}-{place}", one.path, cut))
        parts += [flow_part(one.content, f"flow-{at}-{n}", idle) for n, one in enumerate(library.about("flow", group))]
    parts += [embedding_part(one.content, f"embed-{place}") for place, one in enumerate(library.of("embed"))]
    parts += [calibration_part(one.content, f"calibrate-{place}") for place, one in enumerate(library.of("calibrate"))]
    return Section("waste", "Rank of weights and inputs", "Rank", parts)


def spectrum_part(report: SpectrumReport, name: str, path: str, cut: bool = False) -> Part:
    """Weights of one model: heat maps, charts (of one that was not cut), and every matrix."""
    eps = next(iter(report.sites[0].eps_ranks))
    return Part(
        f"Weights of {report.model}",
        text=spectrum_sentence(report),
        notes=_untrained(report) if not cut else [],
        maps=_maps(report, name, eps),
        charts=[] if cut else _charts(report, name, eps),
        folded=(f"All {plural(len(report.sites), 'matrix', 'matrices')} of {path}", _matrices(report, name)),
    )


def spectrum_sentence(report: SpectrumReport) -> str:
    """Sum up the ranks in one or two sentences."""
    eps = next(iter(report.sites[0].eps_ranks))
    shares = role_shares(report, eps)
    low, high = min(shares, key=lambda role: shares[role]), max(shares, key=lambda role: shares[role])
    said = (
        f"At ε = {eps}, the {plural(len(report.sites), 'measured matrix', 'measured matrices')} could be stored in "
        f"{percent(report.size_ratio[_key(report, eps)])} of their parameters."
    )
    if low != high:
        said += (
            f" The median ε-rank is {percent(shares[low])} of the largest possible in {low}, the lowest, and "
            f"{percent(shares[high])} in {high}, the highest."
        )
    return said


def _untrained(report: SpectrumReport) -> list[str]:
    roles = " and ".join(f"{stack} {role_name(role)}" for stack, role in _idle(report))
    return [UNTRAINED.format(roles=roles)] if roles else []


def _idle(report: SpectrumReport) -> dict[tuple[str, str], None]:
    """Stack and role of what no gradient reaches, in order."""
    return dict.fromkeys((row.site.stack, row.site.role) for row in report.sites if not report.is_trained(row))


def role_shares(report: SpectrumReport, eps: str) -> dict[str, float]:
    """Median over matrices of ε-rank / largest possible rank, by role; of trained attention where there is any."""
    rows = [row for row in report.sites if row.site.kind == "attention" and report.is_trained(row)]
    rows = rows or list(report.sites)
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(role_name(row.site.role), []).append(_share(row, eps))
    return {role: median(values) for role, values in found.items()}


def _trained(row: LayerFlow, idle: Collection[tuple[str, str]]) -> LayerFlow:
    """A layer without the ranks of matrices that no gradient reaches."""
    ranks = {role: ranks for role, ranks in row.weight_eps_ranks.items() if (row.stack, role) not in idle}
    return replace(row, weight_eps_ranks=ranks)


def flow_part(report: FlowReport, name: str, idle: Collection[tuple[str, str]] = ()) -> Part:
    """Ranks of the layers' inputs; ``idle`` are stack and role of matrices that the charts leave out."""
    signal = TITLES.get(report.signal, report.signal)
    eps = next(iter(report.layers[0].eps_ranks))
    charts = []
    said = []
    for stack in dict.fromkeys(row.stack for row in report.layers):
        layers = report.stack(stack)
        ranks = [layer.eps_ranks[eps] for layer in layers]
        said.append(f"{ranks[0]} at the first layer of the {stack}, {ranks[-1]} at the last")
        if len(layers) <= _DEEPEST:
            drawn = replace(
                report, signal=plain_text(report.signal), layers=tuple(_trained(row, idle) for row in layers)
            )
            draw = partial(plots.flow, drawn, stack=stack)
            title = f"Flow of ranks through the {stack} of {report.model}"
            says = "ε-ranks of the inputs, layer by layer: " + ", ".join(map(str, ranks)) + "."
            charts.append(chart(draw, f"{name}-{stack}", title, says))
    heads = ["layer", "tokens", *[f"ε = {key}" for key in report.layers[0].eps_ranks], "effective rank", "mean σⱼ/σ₁"]
    rows: list[Row] = [
        [
            Cell(f"{row.stack}\u00a0{row.layer}", float(place)),
            number(row.tokens, count(row.tokens)),
            *[number(rank, count(rank)) for rank in row.eps_ranks.values()],
            number(row.effective_rank, significant(row.effective_rank)),
            number(row.mean_relative, significant(row.mean_relative)),
        ]
        for place, row in enumerate(report.layers)
    ]
    caption = f"ε-ranks of the inputs of each layer of {report.model}, of at most {report.layers[0].d_model}"
    series = report.corpus if report.modality == "image" else f"{report.corpus}, {signal}"
    bounded = [
        f"The {stack} reads {first.tokens} tokens of width {first.d_model}: no rank there can be larger"
        + (", and so few say nothing." if first.tokens <= FEWEST else ".")
        for stack in dict.fromkeys(row.stack for row in report.layers)
        if (first := report.stack(stack)[0]).tokens < first.d_model
    ]
    return Part(
        f"Flow of ranks in {report.model}: {signal}",
        notes=bounded,
        text=f"ε-rank of the layers’ input at ε = {eps}: {'; '.join(said)} ({series}).",
        charts=charts,
        folded=("Every layer", Table(caption, heads, rows, f"{name}-table")),
    )


def embedding_part(report: EmbeddingReport, name: str) -> Part:
    """Embedding matrices of all models together."""
    keys = list(report.rows[0].eps_ranks)
    heads = ["model", "matrix", "patch", "tokens", "width", *[f"ε = {key}" for key in keys], "effective rank"]
    rows: list[Row] = [
        [
            row.model,
            row.matrix,
            number(row.patch_size, count(row.patch_size)),
            number(row.tokens, count(row.tokens)),
            number(row.d_model, count(row.d_model)),
            *[number(rank, count(rank)) for rank in row.eps_ranks.values()],
            number(row.effective_rank, significant(row.effective_rank)),
        ]
        for row in report.rows
    ]
    named = replace(report, rows=tuple(replace(row, model=plain_text(shortened(row.model))) for row in report.rows))
    said = "; ".join(
        f"{row.model} ({row.matrix}): {row.eps_ranks[keys[0]]} of {row.largest_rank}" for row in report.rows
    )
    signal = TITLES.get(report.signal, report.signal)
    title = f"Singular values of the embeddings, {signal}"
    return Part(
        f"Embeddings: {signal}",
        text=f"ε-rank at ε = {keys[0]}: {said}.",
        charts=[chart(partial(plots.embedding_spectra, named), f"{name}-chart", title, said)],
        tables=[Table("ε-ranks of embedding matrices", heads, rows, f"{name}-table", texts=(1,))],
    )


def calibration_part(report: CalibrationReport, name: str) -> Part:
    """Statistics of the inputs of a model's matrices."""
    rows: list[Row] = [
        [
            one.name,
            number(one.tokens, count(one.tokens)),
            number(one.width, count(one.width)),
            number(one.effective_rank, significant(one.effective_rank)),
            number(one.shown, count(one.shown)),
        ]
        for one in report.streams
    ]
    heads = ["input", "positions", "width", "effective rank", "directions with energy"]
    caption = f"Inputs of {report.model} over {report.series} series of {report.corpus}"
    table = Table(caption, heads, rows, f"{name}-table")
    return Part(f"Layer inputs of {report.model}", notes=report.notes, folded=("Every input", table))


def _maps(report: SpectrumReport, name: str, eps: str) -> list[Heat]:
    """A heat map per stack."""
    inner = [row for row in report.sites if row.site.layer is not None and report.is_trained(row)]
    maps = []
    for stack in dict.fromkeys(row.site.stack for row in inner):
        cells = {
            (row.site.role, row.site.layer): (_share(row, eps), f"ε-rank {row.eps_ranks[eps]} of {min(row.shape)}")
            for row in inner
            if row.site.stack == stack
        }
        maps.append(
            heat(f"{name}-{stack}", stack, f"ε-rank in percent of the largest possible, by layer (ε = {eps})", cells)
        )
    return maps


def _charts(report: SpectrumReport, name: str, eps: str) -> list[Markup]:
    drawn: list[Markup] = []
    attention = [row for row in report.sites if row.site.kind == "attention"]
    if report.ranks_only or any(row.sigma is None for row in report.sites):
        return drawn
    if attention:
        curve = plots.size_of_report(report)
        says = "; ".join(f"{percent(value)} at ε = {key}" for key, value in report.size_ratio.items()) + "."
        title = f"Size of the attention matrices of {report.model} against ε"
        names = {plain_text(shortened(report.model)): curve}
        drawn.append(chart(partial(plots.size_by_eps, names), f"{name}-size", title, says))
    for stack in dict.fromkeys(row.site.stack for row in attention):
        rows = [row for row in attention if row.site.stack == stack and report.is_trained(row)]
        if not rows:
            continue
        role = rows[0].site.role
        same = [row for row in rows if row.site.role == role]
        if len(same) <= _DEEPEST and all(row.sigma_max > 0 for row in same):
            says = "ε-ranks: " + ", ".join(str(row.eps_ranks[eps]) for row in same) + f" at ε = {eps}, layer by layer."
            title = f"Singular values of {role_name(role)}, {stack} of {report.model}"
            draw = partial(plots.spectra, report, role=role, stack=stack)
            drawn.append(chart(draw, f"{name}-spectra-{stack}", title, says))
    return drawn


def _matrices(report: SpectrumReport, name: str) -> Table:
    keys = list(report.sites[0].eps_ranks)
    heads = ["matrix", "role", "shape", "σ₁", *[f"ε = {key}" for key in keys]]
    heads += [f"per head, {keys[0]}", "effective rank", "stable rank", f"size, {keys[0]}"]
    rows: list[Row] = []
    for place, row in enumerate(report.sites):
        where = row.site.stack if row.site.layer is None else f"{row.site.stack}\u00a0{row.site.layer}"
        heads_ = row.per_head_eps_ranks.get(keys[0], [])
        rows.append(
            [
                Cell(where, float(place)),
                role_name(row.site.role),
                Cell(f"{row.shape[0]}×{row.shape[1]}", float(row.shape[0] * row.shape[1])),
                number(row.sigma_max, significant(row.sigma_max)),
                *[number(rank, count(rank)) for rank in row.eps_ranks.values()],
                number(median(heads_) if heads_ else None, spread(heads_)),
                number(row.effective_rank, significant(row.effective_rank)),
                number(row.stable_rank, significant(row.stable_rank)),
                number(row.size_ratio.get(keys[0]), percent(row.size_ratio.get(keys[0]))),
            ]
        )
    return Table(f"ε-ranks of every matrix of {report.model}", heads, rows, f"{name}-table", texts=(1,))


def _share(row: SiteSpectrum, eps: str) -> float:
    largest = min(row.shape)
    return row.eps_ranks[eps] / largest if largest else 0.0


def _key(report: SpectrumReport, eps: str) -> str:
    return next(key for key in report.size_ratio if float(key) == float(eps))
