"""Fig. 6 and Table 2: accuracy of compressed models, from saved measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from rankscope.errors import DataError, unknown_choice
from rankscope.measure.saved import read_json
from rankscope.measure.sweep import SCHEMA as SWEEP_SCHEMA
from rankscope.measure.sweep import SweepReport, read_sweep_report
from rankscope.measure.table2 import Table2Report, read_table2
from rankscope.plots import pareto, table2
from rankscope.plots.bench import CostPoint
from rankscope.plots.frontier import DesignPoint, frontier
from rankscope_paper.figures._record import Drawn, Settings
from rankscope_paper.figures._saved import carried
from rankscope_paper.figures._sweeps import measured_on

BY_DESIGN, PEERS = "by_design.json", "peers.json"
MAKE = "rankscope sweep design --out DIR --score SUITE"
TABLES = {"bundled": "table2_bundled.json", "bundled-bolt": "table2_bundled-bolt.json"}
MAKE_TABLE = "rankscope table2 MODEL --out DIR"
_KINDS = (("bundled-bolt", "Chronos-Bolt"), ("bundled", "Chronos-T5"))
_LOCAL = "local"


def draw_frontier(settings: Settings) -> tuple[Drawn, ...]:
    """Fig. 6: of the scored sweep that the settings name, or of the carried measurements."""
    if settings.data is not None:
        return (_swept(read_sweep_report(settings.data), settings.data),)
    design = read_json(carried(BY_DESIGN, MAKE), BY_DESIGN, _design)
    peers, models = read_json(carried(PEERS, "python benchmarks/peers.py"), PEERS, _peers)
    rows: list[dict[str, Any]] = [
        {"panel": "by design", "kind": "paper" if one.published else "ours", "name": one.name, "time": one.time}
        | {"WQL": one.WQL, "MASE": one.MASE}
        for one in design
    ]
    rows += [
        {
            "panel": "models",
            "kind": kind,
            "name": one.name,
            "time": one.seconds,
            "time_low": one.low,
            "time_high": one.high,
        }
        | {"WQL": one.WQL, "MASE": one.MASE}
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
    figure = frontier(design, models, relative_to=str(peers["reference"]))
    return (Drawn(figure, pd.DataFrame(rows), caption),)


def draw_tables(settings: Settings) -> tuple[Drawn, ...]:
    """Table 2 of the models that the settings name, or of both bundled ones."""
    if settings.data is not None:
        return (_table(read_table2(settings.data)),)
    for name in settings.models:
        if name not in TABLES:
            raise DataError(
                unknown_choice("saved table of", name, TABLES, f"Make it with `{MAKE_TABLE}` and name --data.")
            )
    found = []
    for name in settings.models or TABLES:
        found.append(_table(read_table2(carried(TABLES[name], MAKE_TABLE))))
    return tuple(found)


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
    return Drawn(table2(report), report.to_frame(), caption, name=_file_name(report.model))


def _file_name(model: str) -> str:
    return model.rstrip("/").rsplit("/", 1)[-1]


def _swept(report: SweepReport, path: Path) -> Drawn:
    scored = [row for row in report.done if row.scores]
    if not scored:
        raise DataError(f"{path}: no point of sweep {report.name!r} is done and scored: run it with --score SUITE.")
    frame = pd.DataFrame(
        [
            {
                "point": row.point,
                "attention_parameters": row.ranks.attention_parameters if row.ranks else None,
                "bytes": row.ranks.bytes if row.ranks else None,
                **row.scores,
            }
            for row in scored
        ]
    )
    caption = (
        "WQL and MASE relative to seasonal naive against the time of the forecasts; the step line joins points that "
        f"none beats. Scored with {scored[0].scored_with}. {measured_on(report)}"
    )
    return Drawn(pareto(report), frame, caption)


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
    if document.get("benchmark") != "peers":
        raise DataError(f"expected a result of benchmarks/peers.py, got {document.get('benchmark', SWEEP_SCHEMA)!r}.")
    kinds: dict[str, list[CostPoint]] = {title: [] for title in (*(title for _, title in _KINDS), _LOCAL)}
    for row in document["rows"]:
        name, colon, how = row["label"].partition(":")
        kind = next((title for start, title in _KINDS if colon and name.startswith(start)), _LOCAL)
        median, least, most = (row[key] / 1000 for key in ("milliseconds_per_series", "least", "most"))
        label = " ".join((name, *how.split(":"))).replace("bundled-bolt", "bolt").replace("bundled", "t5")
        label = label.replace(" float32", "").replace("bfloat16", "bf16").strip()
        kinds[kind].append(CostPoint(label, median, least, most, row["WQL"], row["MASE"], kind == _LOCAL))
    return document, kinds
