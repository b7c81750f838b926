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
from matplotlib.figure import Figure

from rankscope.errors import DataError, OptionError, unknown_choice
from rankscope.io import codec
from rankscope.measure.sweep import SweepReport, read_sweep_report
from rankscope.measure.tradeoff import Table2Report, read_table2
from rankscope.plots import pareto, table2
from rankscope.plots.bench import CostPoint
from rankscope.plots.labels import short_names
from rankscope.plots.pareto import draw_front
from rankscope.plots.style import MARKS, Mark, figure, styled
from rankscope_paper.figures.recipe import Drawn, Recipe, Settings, carried
from rankscope_paper.figures.sweeps import measured_on

BY_DESIGN, PEERS = "by_design.json", "peers.json"
MAKE = "rankscope sweep design --out DIR --score SUITE"
TABLES = {"bundled": "table2_bundled.json", "bundled-bolt": "table2_bundled-bolt.json"}
MAKE_TABLE = "rankscope table2 MODEL --out DIR"
_KINDS = (("bundled-bolt", "Chronos-Bolt"), ("bundled", "Chronos-T5"))
_LOCAL = "local"


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
        {"panel": "by design", "kind": "paper" if one.published else "ours", "name": one.name, "time": one.time}
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
        if not one.published
    )
    caption = (
        "Top: Chronos-Bolt with heads of width r(i) = ⌈r₀(1+i)^α⌉ in place of 64, relative to the same network with "
        f"full heads at equal steps (700 steps of 32 generated series, seed 0): {ours}; hollow: the paper's Table 3 "
        "(Chronos-T5 base, 200,000 steps, in-domain scores). Below: the bundled models as they are and compressed, "
        f"beside local methods, relative to {peers['reference']}, in seconds per series of a batch of "
        f"{peers['batch']} on {peers['machine']['cores']} cores; whiskers span {peers['rounds']} rounds, the step "
        f"line joins points that none beats. Scores: six public data sets, first {peers['max_series']} series of "
        f"each; measured {peers['date']}."
    )
    return Drawn(frontier(design, models, relative_to=str(peers["reference"])), pd.DataFrame(rows), caption)


@partial(
    Recipe,
    id="table2",
    title="Accuracy after compression",
    shows="truncated SVD of Chronos and T5 at several sizes",
    takes=("model", "data"),
    data=tuple(TABLES.values()),
    make=MAKE_TABLE,
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
        row = min((one for one in done if one.ratio == ratio), key=lambda one: one.median.relative_WQL or 0.0)
        best.append(f"{row.median.relative_WQL:.3f} at {row.median.reached:.3f} ({row.method})")
    seeds = sorted({point.seed for point in report.points if point.seed is not None})
    suite = Path(str(report.settings.get("suite", "?"))).name
    caption = (
        "Score over the original's against the share of the attention's numbers that is left, one line per method; "
        f"whiskers span seeds {', '.join(map(str, seeds)) or 'none'}; grey: the paper's truncated SVD of Chronos-T5 "
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
    found = []
    for row in document["rows"]:
        name = "64" if row["name"] == "baseline" else row["name"].removeprefix("r")
        found.append(DesignPoint(name, row["time"]["median"], row["WQL"], row["MASE"]))
        if row["paper"]:
            paper = row["paper"]
            found.append(DesignPoint(f"{paper['r0']}", paper["time"], paper["WQL"], paper["MASE"], published=True))
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


METRICS = ("WQL", "MASE")


@dataclass(frozen=True)
class DesignPoint:
    """A model of low rank by design beside its baseline.

    Attributes:
        name: its first head width r₀.
        time: of a forecast, over the baseline's.
        WQL: over the baseline's.
        MASE: over the baseline's.
        published: it is the paper's, not ours.
    """

    name: str
    time: float
    WQL: float
    MASE: float
    published: bool = False


def frontier(
    design: Sequence[DesignPoint], models: Mapping[str, Sequence[CostPoint]], *, relative_to: str = "seasonal-naive"
) -> Figure:
    """Two panels of the first kind side by side, and below them WQL and MASE of the second kind.

    Args:
        design: models by design and their baseline, ours and published ones.
        models: kind of model → points; each kind has a mark of its own.
        relative_to: what the scores of ``models`` are divided by.

    Raises:
        OptionError: one of the two is empty.
    """
    points = [one for group in models.values() for one in group if math.isfinite(one.WQL) and math.isfinite(one.MASE)]
    if not design or not points:
        raise OptionError("there are no points: nothing can be drawn.")
    with styled():
        fig, _ = figure(height=6.2)
        fig.clear()
        grid = fig.add_gridspec(2, 1, height_ratios=(1.12, 2.5))
        above, below = fig.add_subfigure(grid[0]), fig.add_subfigure(grid[1])
        for ax, metric in zip(above.subplots(1, 2), METRICS, strict=True):
            _designed(ax, design, metric)
        handles, labels = ax.get_legend_handles_labels()
        above.legend(handles, labels, loc="outside upper center", ncols=2)
        for ax, metric in zip(below.subplots(2, 1, sharex=True), METRICS, strict=True):
            _timed(ax, models, points, metric)
            ax.set_ylabel(f"{metric} / {relative_to}")
        ax.set_xlabel("time of a forecast (s per series)")
    return fig


def _designed(ax: Axes, design: Sequence[DesignPoint], metric: str) -> None:
    ax.axhline(1.0, color="#d5dbe1", linewidth=0.6, zorder=0)
    for published in (True, False):
        chosen = [one for one in design if one.published == published]
        mark = Mark("#8a8a8a", "D", "-", filled=False) if published else MARKS[0]
        look = mark.kwargs() | {"linestyle": "none", "markersize": 4.0}
        who = "paper" if published else "ours"
        for position, one in enumerate(chosen):
            y = getattr(one, metric)
            label = f"head width from r₀, {who}" if position == 0 else None
            ax.plot([one.time], [y], gid=f"{one.name}, {who}", label=label, **look)
            place: dict[str, Any] = {"xytext": (5, 0), "textcoords": "offset points", "va": "center"}
            ax.annotate(one.name, (one.time, y), size=7, color=mark.colour, **place)
    ax.margins(y=0.12)
    ax.set_xlim(0, 1.25)
    ax.set_xlabel("time / $r_0 = 64$")
    ax.set_ylabel(f"{metric} / $r_0 = 64$")


def _timed(ax: Axes, models: Mapping[str, Sequence[CostPoint]], points: Sequence[CostPoint], metric: str) -> None:
    ax.set_xscale("log")
    for mark, (kind, group) in zip(MARKS, models.items(), strict=False):
        look = mark.kwargs() | {"linestyle": "none", "markersize": 4.0}
        for one in group:
            y = float(getattr(one, metric))
            ax.plot([one.seconds], [y], gid=f"{kind}: {one.name}", **look)
            ax.plot([one.low, one.high], [y, y], color=mark.colour, linewidth=0.7, zorder=1)
    places = [(one.seconds, float(getattr(one, metric))) for one in points]
    draw_front(ax, [one.name for one in points], places, margin=0.12)
