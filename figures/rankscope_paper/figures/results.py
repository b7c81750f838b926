"""Fig. 6 and Table 2: accuracy of compressed models, from saved measurements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase

from rankscope.errors import DataError, unknown_choice
from rankscope.io import codec
from rankscope.measure.sweep import SweepReport, read_sweep_report
from rankscope.measure.tradeoff import Table2Report, read_table2
from rankscope.plots import CostPoint, pareto, table2
from rankscope.plots.labels import log_ticks, short_names
from rankscope.plots.pareto import front
from rankscope.plots.style import MARKS, Mark, figure, styled
from rankscope.plots.tradeoff import drawn_score
from rankscope_paper.figures.recipe import Drawn, Recipe, Settings, carried
from rankscope_paper.figures.sweeps import measured_on

BY_DESIGN, PEERS = "by_design.json", "peers.json"
MAKE = "rankscope sweep design --out DIR --score SUITE"
TABLES = {"bundled": "table2_bundled.json", "bundled-bolt": "table2_bundled-bolt.json"}
MAKE_TABLE = "rankscope table2 MODEL --out DIR"
_KINDS = (("bundled-bolt", "Chronos-Bolt"), ("bundled", "Chronos-T5"))
_LOCAL = "local"
_HOW = {"trained": "designed", "attention": "attention compressed", "whole model": "all compressed"}


@partial(
    Recipe,
    id="6",
    title="Accuracy against time",
    shows="models of low rank by design move the front of accuracy and time; local methods and other models beside",
    takes=("data",),
    data=(BY_DESIGN, PEERS),
    make=MAKE,
)
def fig6(settings: Settings) -> Drawn:
    """Draw the scored sweep that the settings name, or the carried measurements."""
    if settings.data is not None:
        return _swept(read_sweep_report(settings.data), settings.data)
    design = _design(codec.load(carried(BY_DESIGN, MAKE)))
    peers, models = _peers(codec.load(carried(PEERS, "python benchmarks/peers.py")))
    rows: list[dict[str, Any]] = [
        {"panel": "by design", "kind": one.kind, "name": one.name, "time": one.time}
        | {"WQL": one.WQL, "MASE": one.MASE}
        for one in design
    ]
    rows += [
        {"panel": "models", "kind": kind, "name": one.name, "time": one.seconds}
        | {"time_low": one.low, "time_high": one.high, "WQL": one.WQL, "MASE": one.MASE}
        for kind, group in models.items()
        for one in group
    ]
    ours = "; ".join(
        f"r₀ = {one.name} time {one.time:.2f}, WQL {one.WQL:.3f}, MASE {one.MASE:.3f}"
        for one in design
        if one.kind == "designed" and one.name != "64"
    )
    caption = (
        "Top: Chronos-Bolt with heads of width r(i) = ⌈r₀(1+i)^α⌉ in place of 64, relative to the same network with "
        f"full heads at equal steps (12,000 steps of 32 generated series, seed 0; eleven development sets): {ours}; "
        "beside them that network compressed to the size of each, its attention alone or all of it, unhealed; grey: "
        "the paper's Table 3 (Chronos-T5 base, 200,000 steps, in-domain scores). Below: the bundled models as they "
        f"are and compressed, beside local methods, relative to {peers['reference']}, in seconds per series of a batch "
        f"of {peers['batch']} on {peers['machine']['cores']} cores; whiskers span {peers['rounds']} rounds; scores "
        f"that no faster model reaches are filled. Scores below: the same data sets, first {peers['max_series']} "
        f"series of each; measured {peers['date']}."
    )
    return Drawn(frontier(design, models), pd.DataFrame(rows), caption)


@partial(
    Recipe,
    id="table2",
    title="Accuracy after compression",
    shows="truncated SVD of Chronos and T5 at several sizes",
    takes=("model", "data"),
    data=tuple(TABLES.values()),
    make=MAKE_TABLE,
    names=lambda settings: () if settings.data else tuple(short_names([one])[0] for one in settings.models or TABLES),
)
def table(settings: Settings) -> tuple[Drawn, ...]:
    """Draw Table 2 of the models that the settings name, or of both bundled ones."""
    if settings.data is not None:
        return (_table(read_table2(settings.data)),)
    for name in settings.models:
        if name not in TABLES:
            raise DataError(
                unknown_choice("saved table of", name, TABLES, f"Make it with `{MAKE_TABLE}` and name --data.")
            )
    return tuple(_table(read_table2(carried(TABLES[name], MAKE_TABLE))) for name in settings.models or TABLES)


def _table(report: Table2Report) -> Drawn:
    best = []
    done = [row for row in report.rows if row.median.relative_WQL is not None and row.median.reached is not None]
    for ratio in sorted({row.ratio for row in done}):
        row = min((one for one in done if one.ratio == ratio), key=lambda one: drawn_score(one, "relative_WQL"))
        best.append(f"{drawn_score(row, 'relative_WQL'):.3f} at {row.median.reached:.3f} ({row.method})")
    seeds = sorted({point.seed for point in report.points if point.seed is not None})
    spans = f"span seeds {', '.join(map(str, seeds)) or 'none'}"
    if report.judgements:
        spans = (
            "are 95 % intervals over data sets and series, means over seeds "
            f"{', '.join(map(str, seeds)) or 'none'}; points are set aside by up to 4 % of the size for legibility"
        )
    suite = Path(str(report.settings.get("suite", "?"))).name
    caption = (
        "Score over the original's against the share of the attention's numbers that is left, one line per method; "
        f"whiskers {spans}; grey: the paper's truncated SVD of Chronos-T5 "
        f"base. {'Best WQL at each size: ' + '; '.join(best) + '. ' if best else ''}Measured on {report.model} "
        f"({report.family}, {report.original.parameters / 1e6:.1f} million numbers), suite {suite}."
    )
    return Drawn(table2(report), report.to_frame(), caption, name=short_names([report.model])[0])


def _swept(report: SweepReport, path: Path) -> Drawn:
    scored = [row for row in report.done if row.scores]
    if not scored:
        raise DataError(f"{path}: no point of sweep {report.name!r} is done and scored: run it with --score SUITE.")
    rows = []
    for row in scored:
        sizes = (row.ranks.attention_parameters, row.ranks.bytes) if row.ranks else (None, None)
        rows.append({"point": row.point, "attention_parameters": sizes[0], "bytes": sizes[1], **row.scores})
    caption = (
        "WQL and MASE relative to seasonal naive against the time of the forecasts; the step line joins points that "
        f"none beats. Scored with {scored[0].scored_with}. {measured_on(report)}"
    )
    return Drawn(pareto(report), pd.DataFrame(rows), caption)


def _design(document: dict[str, Any]) -> list[DesignPoint]:
    found = [DesignPoint("64", 1.0, 1.0, 1.0)]
    for row in document["rows"]:
        if "time" not in row or row["design"] == "baseline":  # only the models of one seed were timed
            continue
        name, time = row["design"].removeprefix("r"), row["time"]["32"]["median"]
        found.append(DesignPoint(name, time, row["WQL"], row["MASE"], _HOW[row["how"]]))
        if row["paper"]:
            paper = row["paper"]
            found.append(DesignPoint(name, paper["time"], paper["WQL"], paper["MASE"], "paper"))
    return found


def _peers(document: dict[str, Any]) -> tuple[dict[str, Any], dict[str, list[CostPoint]]]:
    kinds: dict[str, list[CostPoint]] = {title: [] for title in (*(title for _, title in _KINDS), _LOCAL)}
    for row in document["rows"]:
        name, colon, how = row["label"].partition(":")
        kind = next((title for start, title in _KINDS if colon and name.startswith(start)), _LOCAL)
        median, least, most = (row[key] / 1000 for key in ("milliseconds_per_series", "least", "most"))
        label = " ".join((name, *how.split(":"))).replace("bundled-bolt", "bolt").replace("bundled", "t5")
        label = label.replace(" float32", "").replace("bfloat16", "bf16").strip()
        kinds[kind].append(CostPoint(label, median, least, most, row["WQL"], row["MASE"], kind == _LOCAL))
    return document, kinds


COST_COLUMNS = ("time", "WQL", "MASE")
PAPER = Mark("#8a8a8a", "D", "-", filled=False)
LINE = 0.155
"""Height of a model's line in inches."""
FAR = 5
"""Ratio of the largest value to the smallest from which an axis is logarithmic: times, and a model that diverges."""


@dataclass(frozen=True)
class DesignPoint:
    """A model of low rank by design, or the stock network compressed to its size, beside the stock network.

    Attributes:
        name: first head width r₀ of the design.
        time: of a forecast, over the stock network's.
        WQL: over the stock network's.
        MASE: over the stock network's.
        kind: ``designed``, ``attention compressed``, ``all compressed``, or ``paper``: designed and published.
    """

    name: str
    time: float
    WQL: float
    MASE: float
    kind: str = "designed"


def frontier(design: Sequence[DesignPoint], models: Mapping[str, Sequence[CostPoint]]) -> Figure:
    """Time, WQL and MASE of models by design, and below of other models: a line each, the fastest first.

    Models that none beats in time and WQL, or in time and MASE, are filled in the column of that score.

    Args:
        design: models by design and their baseline, ours and published ones.
        models: kind of model → points; each kind has a mark of its own.
    """
    points = {
        kind: [one for one in group if math.isfinite(one.WQL) and math.isfinite(one.MASE)]
        for kind, group in models.items()
    }
    count = sum(len(group) for group in points.values())
    widths = sorted({one.name for one in design}, key=int, reverse=True)
    heights = [LINE * len(widths) + 0.75, LINE * count + 0.75]
    with styled():
        fig, _ = figure(height=sum(heights))
        fig.clear()
        grid = fig.add_gridspec(2, 1, height_ratios=heights)
        _designed(fig.add_subfigure(grid[0]), design, widths)
        _timed(fig.add_subfigure(grid[1]), points)
    return fig


def _designed(place: FigureBase, design: Sequence[DesignPoint], widths: Sequence[str]) -> None:
    marks = {**dict(zip(_HOW.values(), MARKS, strict=False)), "paper": PAPER}
    axes = place.subplots(1, 3, sharey=True)
    for ax, column in zip(axes, COST_COLUMNS, strict=True):
        ax.axvline(1.0, color="#d5dbe1", linewidth=0.6, zorder=0)
        for one in design:
            look = marks[one.kind].kwargs() | {"linestyle": "none"}
            gid = f"{one.name}, {one.kind}"
            ax.plot([getattr(one, column)], [widths.index(one.name)], gid=gid, label=one.kind, **look)
        ax.set_xlabel(f"{column} / full heads")
        _rows(ax, [f"$r_0$ = {name}" for name in widths])
    axes[0].set_xlim(left=0)
    handles = {label: handle for handle, label in zip(*axes[0].get_legend_handles_labels(), strict=True)}
    place.legend(handles.values(), handles.keys(), loc="outside upper right", ncols=2)


def _timed(place: FigureBase, points: Mapping[str, Sequence[CostPoint]]) -> None:
    marks = dict(zip(points, MARKS, strict=False))
    ranked = sorted(((kind, one) for kind, group in points.items() for one in group), key=lambda row: -row[1].seconds)
    best = {
        metric: front([(one.seconds, float(getattr(one, metric))) for _, one in ranked]) for metric in ("WQL", "MASE")
    }
    axes = place.subplots(1, 3, sharey=True)
    for ax, column in zip(axes, COST_COLUMNS, strict=True):
        if column != "time":
            ax.axvline(1.0, color="#d5dbe1", linewidth=0.6, zorder=0)
        values = [one.seconds if column == "time" else float(getattr(one, column)) for _, one in ranked]
        for line, ((kind, one), value) in enumerate(zip(ranked, values, strict=True)):
            first = column == "time" or (one.seconds, value) in best[column]
            mark = marks[kind]
            look = mark.kwargs() | {"linestyle": "none", "markerfacecolor": mark.colour if first else "white"}
            ax.plot([value], [line], gid=f"{kind}: {one.name}", label=kind, **look)
            if column == "time":
                ax.plot([one.low, one.high], [line, line], color=mark.colour, linewidth=0.7, zorder=1)
        ax.set_xlabel("s per series" if column == "time" else f"relative {column}")
        _rows(ax, [one.name for _, one in ranked])
        if max(values) > FAR * min(values):
            ax.set_xscale("log")
            log_ticks(ax.xaxis, min(values), max(values), most=2)
    handles = {label: handle for handle, label in zip(*axes[0].get_legend_handles_labels(), strict=True)}
    place.legend(handles.values(), handles.keys(), loc="outside upper right", ncols=3, columnspacing=0.8)


def _rows(ax: Axes, names: Sequence[str]) -> None:
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(-0.6, len(names) - 0.4)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", color="#eef1f4", linewidth=0.6)
    ax.margins(x=0.12)
