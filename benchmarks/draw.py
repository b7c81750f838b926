"""Draw the figures of results that the documentation shows; measures nothing.

python benchmarks/draw.py                      # all of them, into figures/out
python benchmarks/draw.py growth stream --out DIR
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from claims import RESULTS
from claims.records import ROOT
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator
from roads import BATCH
from scores import METRICS

from rankscope.plots import MARKS, figure, save_figure, styled
from rankscope.plots.labels import plain_ticks

GUIDE, COLUMNS = "#b5b5b5", 2


def growth(result: Mapping[str, Any]) -> Figure:
    """Seconds over each size, both axes logarithmic: a panel per size, a line per runtime, whiskers over rounds.

    Grey lines of slope 1 pass through the last points; the exponents over the larger half of the values are written
    into the panels.

    Args:
        result: what ``benchmarks/growth.py`` writes: ``factors``, each with ``name``, ``values`` and by name of a
            runtime ``seconds`` (median, min and max per value) and ``exponent`` (the same of the exponent).
    """
    factors = result["factors"]
    rows = -(-(len(factors) + 1) // COLUMNS)
    with styled():
        fig, axes = figure(rows, COLUMNS, height=0.3 + 1.35 * rows, sharey=True)
        for number, (ax, factor) in enumerate(zip(axes, factors, strict=False)):
            _draw_growth(ax, factor)
            if number % COLUMNS == 0:
                ax.set_ylabel("time (s)")
        _limits(axes[0], factors)
        for ax in axes[len(factors) :]:
            ax.set_axis_off()
        guide, *lines = axes[0].get_legend_handles_labels()[0]
        note = "numbers: exponents over\nthe larger half of the values"
        axes[len(factors)].legend(handles=[*lines, guide], loc="center", title=note, title_fontsize=7)
    return fig


def _draw_growth(ax: Axes, factor: Mapping[str, Any]) -> None:
    values = factor["values"]
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    said = []
    for mark, (runtime, one) in zip(MARKS, factor["runtimes"].items(), strict=False):
        middle = [each["median"] for each in one["seconds"]]
        least, most = ([each[end] for each in one["seconds"]] for end in ("min", "max"))
        guide = [middle[-1] * value / values[-1] for value in values]
        label = "slope 1" if mark is MARKS[0] else "_"
        ax.plot(values, guide, color=GUIDE, linewidth=0.8, zorder=0, label=label, gid=f"{runtime}-guide")
        ax.vlines(values, least, most, color=mark.colour, linewidth=0.7, zorder=1)
        ax.plot(values, middle, label=runtime, gid=runtime, **mark.kwargs())
        said.append(f"{runtime} {one['exponent']['median']:.2f}")
    ax.text(0.03, 0.97, "\n".join(said), transform=ax.transAxes, va="top", size=7)
    ax.set_title(factor["name"])
    plain_ticks(ax.xaxis, values)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))


def _limits(ax: Axes, factors: Any) -> None:
    """Limits of the shared axis of time: what was measured, and room for the exponents above it."""
    seconds = [each for factor in factors for one in factor["runtimes"].values() for each in one["seconds"]]
    low, high = min(each["min"] for each in seconds), max(each["max"] for each in seconds)
    ax.set_ylim(low / 1.3, high * 1.6)
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0,) if high / low > 100 else (1.0, 2.0, 5.0)))


def stream(result: Mapping[str, Any]) -> Figure:
    """Draw the resident memory of an undisturbed run, and of one that was killed and resumed.

    Args:
        result: what ``benchmarks/stream.py`` writes: ``runs`` with ``whole``, ``killed`` and ``resumed``, each with
            ``samples`` of seconds, megabytes and finished parts.
    """
    with styled():
        fig, (axes,) = figure()
        killed = result["runs"]["killed"]["samples"][-1][0]
        unit, seconds = ("minutes", 60.0) if result["runs"]["whole"]["samples"][-1][0] > 300 else ("seconds", 1.0)
        for mark, name in zip(MARKS, ("whole", "killed", "resumed"), strict=False):
            samples = np.array(result["runs"][name]["samples"])
            shift = killed if name == "resumed" else 0.0
            axes.plot(
                (samples[:, 0] + shift) / seconds, samples[:, 1], color=mark.colour, linestyle=mark.dash, label=name
            )
        axes.axvline(killed / seconds, color="black", linestyle=":", linewidth=0.8)
        axes.set(xlabel=unit, ylabel="resident memory (MB)", ylim=(0, None))
        axes.legend()
    return fig


SHOWN = ("svd", "joint", "stream", "joint+stream", "healed")
"""Ways that are drawn; the table has the others."""


def by_road(result: Mapping[str, Any], storage: str, across: str, up: str) -> dict[str, list[dict[str, float]]]:
    """Points that were reached, by road from small to large: medians over the seeds of two numbers.

    And, of WQL, the ends of its interval, the lowest and the highest over the seeds.
    """
    found: dict[str, list[dict[str, float]]] = {road: [] for road in SHOWN}
    groups: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for record in result["points"]:
        if "storages" in record and record["road"] in SHOWN:
            groups.setdefault((record["road"], record["size"]), []).append(record["storages"][storage])
    for (road, _), same in groups.items():
        at, high = (median(value(one, key) for one in same if key in one) for key in (across, up))
        ends = {"low": min(one["WQL_interval"][0] for one in same), "high": max(one["WQL_interval"][1] for one in same)}
        found[road].append({"at": at, "up": high, **(ends if up == "WQL" else {})})
    return {road: sorted(row, key=lambda one: one["at"]) for road, row in found.items() if row}


def value(form: Mapping[str, Any], key: str) -> float:
    """A number of a form: a share, a relative score, the worst data set's (``worst``), or a share of time."""
    found = form[key]
    if key == "worst":
        return float(found["WQL"][1])
    return float(found[str(BATCH)] if key == "time" else found)


PANELS = (
    ("float", "parameters", "share of all parameters", "WQL", "WQL / original", 1.25),
    ("float", "parameters", "share of all parameters", "worst", "WQL / original, worst data set", 2.0),
    ("int8", "bytes", "share of the bytes, int8", "WQL", "WQL / original", 1.25),
    ("float", "time", "share of the time", "WQL", "WQL / original", 1.25),
)
"""Panels of the figure: storage, numbers across and up, with their labels, and the highest number that is shown."""


def roads(result: Mapping[str, Any]) -> Figure:
    """Relative scores against the shares of parameters, bytes and time that are left."""
    with styled():
        fig, axes = figure(2, 2, height=5.0)
        for ax, (storage, across, title, up, label, highest) in zip(axes, PANELS, strict=True):
            for position, (road, row) in enumerate(by_road(result, storage, across, up).items()):
                look, apart = MARKS[position].kwargs(), 1.05 ** (position - len(SHOWN) // 2)
                ax.plot([apart * one["at"] for one in row], [one["up"] for one in row], label=road, **look)
                for one in row:
                    if "low" in one and one["up"] < highest:
                        ax.vlines(apart * one["at"], one["low"], one["high"], color=look["color"], linewidth=0.7)
            ax.axhline(1.0, color="#d5dbe1", linewidth=0.6, zorder=0)
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.set_ylim(0.95, highest)  # plain SVD leaves the panel: what it costs is in the table
            plain_ticks(ax.xaxis, [0.02, 0.05, 0.1, 0.2, 0.5, 1.0])
            plain_ticks(ax.yaxis, [1.0, 1.05, 1.1, 1.2] if highest < 1.5 else [1.0, 1.2, 1.5, 2.0])
            ax.set_xlabel(title)
            ax.set_ylabel(label)
        handles, labels = axes[0].get_legend_handles_labels()
        fig.legend(handles, labels, loc="outside lower center", ncols=3)
    return fig


def snapshots(found: Mapping[str, Any]) -> Figure:
    """Scores, compressibility and ranks against the series seen in training."""
    rows = [row for row in found["rows"] if row["series"]]
    seen = [row["series"] for row in rows]
    with styled():
        fig, (scores, sizes, ranks) = figure(3, 1, height=5.0, sharex=True)
        for number, metric in enumerate(METRICS):
            scores.plot(seen, [row["over_naive"][metric] for row in rows], label=metric, **MARKS[number].kwargs())
        scores.axhline(1, color="#8a8a8a", linewidth=0.8, zorder=0)
        scores.set_ylabel("score over\nseasonal naive")
        for number, ratio in enumerate(rows[0]["forms"]):
            forms = [row["forms"][ratio] for row in rows]
            look, apart = MARKS[number].kwargs(), [one * 1.06 ** (number - 1.5) for one in seen]
            sizes.plot(apart, [form["WQL"] for form in forms], label=ratio, **look)
            low, high = zip(*(form["WQL_interval"] for form in forms), strict=True)
            sizes.vlines(apart, low, high, color=look["color"], linewidth=0.9)
        sizes.axhline(1, color="#8a8a8a", linewidth=0.8, zorder=0)
        sizes.set_ylabel("WQL over that of\nthe whole model")
        least, most = sizes.get_ylim()
        sizes.set_ylim(least, most + 0.35 * (most - least))  # for the legend
        for number, role in enumerate("qkvo"):
            values = [row["ranks"][f"encoder self.{role}"]["rank"] for row in rows]
            ranks.plot(seen, values, label=f"$W_{role.upper()}$", **MARKS[number].kwargs())
        ranks.set_ylabel(f"{found['eps']:g}-rank, mean\nover encoder layers")
        ranks.set_ylim(bottom=0)
        ranks.set_xlabel("series seen in training")
        for axis in (scores, sizes, ranks):
            axis.set_xscale("log")
        scores.legend(loc="upper right")
        sizes.legend(loc="upper center", ncols=4, title="share of the parameters")
        ranks.legend(loc="lower left")
    return fig


FIGURES: dict[str, tuple[str, Callable[[Mapping[str, Any]], Figure]]] = {
    "growth": ("growth", growth),
    "stream": ("stream", stream),
    "roads": ("roads-bundled-bolt", roads),
    "snapshots": ("snapshots-bundled-bolt", snapshots),
}
"""Figures by name: the result that each shows, and the function that draws it."""


def main() -> None:
    """Draw the figures that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="FIGURE", help=f"{', '.join(FIGURES)}; all by default")
    parser.add_argument("--out", type=Path, default=ROOT / "figures/out", metavar="DIR")
    options = parser.parse_args()
    if unknown := set(options.names) - set(FIGURES):
        parser.error(f"no figure {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}.")
    for name in options.names or FIGURES:
        result, drawn = FIGURES[name]
        save_figure(drawn(RESULTS[result].read()), options.out / name)


if __name__ == "__main__":
    main()
