"""Cost of compression against the size that is left: the paper's Table 2 as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rankscope.errors import OptionError
from rankscope.measure.tradeoff import DONE, PUBLISHED
from rankscope.plots.labels import around_one, plain_ticks
from rankscope.plots.style import MARKS, figure, styled

if TYPE_CHECKING:
    from rankscope.measure.tradeoff import Table2Report, Table2Row

REFERENCE = "#9aa7b4"
_SHORT = 17
"""Letters of labels of which three stand side by side."""
_TITLES = {"relative_WQL": "WQL / original", "relative_MASE": "MASE / original", "relative_LPPL": "LPPL / original"}
_PUBLISHED = {"relative_WQL": "in_domain_WQL", "relative_MASE": "in_domain_MASE", "relative_LPPL": "text_LPPL"}
_TICKS = (0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
_SHORTEST = 1.1
"""Least span of the ordinate, highest over lowest: smaller differences are not to look large."""


def table2(report: Table2Report, *, measure: str | None = None) -> Figure:
    """Relative score against the size ratio, one line per method; grey is the paper's.

    Whiskers are 95 % intervals over data sets and series; in tables of 0.1 they span the seeds.

    Args:
        report: from `rankscope_eval.tradeoff.run_table2`.
        measure: ``relative_WQL``, ``relative_MASE`` or ``relative_LPPL``; WQL by default, LPPL of a text model.

    Raises:
        OptionError: no point has that measure.
    """
    rows = [row for row in report.rows if row.state == DONE]
    known = [name for name in _TITLES if any(getattr(row.median, name) is not None for row in rows)]
    if not known or (measure is not None and measure not in known):
        has = ", ".join(known) or "none"
        raise OptionError(f"the table of {report.model} has no {measure or 'score'}: it has {has}.")
    shown = measure or ("relative_LPPL" if "relative_LPPL" in known else known[0])
    lines = _lines(rows, shown)
    with styled():
        fig, (ax,) = figure()
        for position, (name, line) in enumerate(lines.items()):
            _draw(ax, line, shown, name, position)
        _limits(ax, [row for line in lines.values() for row in line], shown)
        _draw_published(ax, shown)
        ax.set_xlabel("size ratio of the attention matrices")
        ax.set_ylabel(_TITLES[shown])
        handles, labels = ax.get_legend_handles_labels()
        columns = 3 if max(map(len, labels)) <= _SHORT else 2
        fig.legend(handles, labels, loc="outside lower center", ncols=columns)
    return fig


def _lines(rows: Sequence[Table2Row], measure: str) -> dict[str, list[Table2Row]]:
    """Rows by method, and by allocation and length of the healing where a method has several."""
    found: dict[str, list[Table2Row]] = {}
    for row in sorted(rows, key=lambda one: _at(one, "reached")):
        if getattr(row.median, measure) is not None:
            found.setdefault(_name(row, [one for one in rows if one.method == row.method]), []).append(row)
    order = list(dict.fromkeys(row.method for row in rows))
    return {name: found[name] for name in sorted(found, key=lambda name: order.index(found[name][0].method))}


def _name(row: Table2Row, same: Sequence[Table2Row]) -> str:
    """Name of a row's line: as much as tells it from the others of the same method."""
    parts = [row.method]
    if len({one.allocation for one in same}) > 1:
        parts.append(row.allocation)
    if len({one.heal_steps for one in same}) > 1:
        parts.append(f"{row.heal_steps} steps")
    return ", ".join(parts)


def _at(row: Table2Row, measure: str, which: str = "median") -> float:
    return float(getattr(getattr(row, which), measure))


def drawn_score(row: Table2Row, measure: str) -> float:
    """Mean over the seeds where the row was judged, else the median."""
    return float(getattr(row.judgement, measure, _at(row, measure)))


def _span(row: Table2Row, measure: str) -> tuple[float, float]:
    """95 % interval over data sets and series where the row was judged, else the range over the seeds."""
    ends: tuple[float, float] | None = getattr(row.judgement, f"{measure.removeprefix('relative_')}_interval", None)
    return ends or (_at(row, measure, "low"), _at(row, measure, "high"))


def _draw(ax: Axes, rows: Sequence[Table2Row], measure: str, name: str, position: int) -> None:
    look: dict[str, Any] = MARKS[position % len(MARKS)].kwargs()
    if position >= len(MARKS):  # the same mark again, filled where it was hollow
        look["markerfacecolor"] = look["color"] if look["markerfacecolor"] == "white" else "white"
    # Intervals are wider than ranges: side by side, those of several methods at one size do not cover each other.
    aside = 1.012 ** (position - 3) if any(row.judgement for row in rows) else 1.0
    x = [_at(row, "reached") * aside for row in rows]
    y = [drawn_score(row, measure) for row in rows]
    ends = [_span(row, measure) for row in rows]
    spans = [
        [max(0.0, middle - low) for (low, _), middle in zip(ends, y, strict=True)],
        [max(0.0, high - middle) for (_, high), middle in zip(ends, y, strict=True)],
    ]
    ax.plot(x, y, label=name, gid=name, **look)
    if any(low < high for low, high in ends):
        ax.errorbar(x, y, yerr=spans, fmt="none", ecolor=look["color"], elinewidth=0.7, capsize=2)


def _limits(ax: Axes, rows: Sequence[Table2Row], measure: str) -> None:
    low = min(1.0, *(_span(row, measure)[0] for row in rows))
    high = max(_span(row, measure)[1] for row in rows)
    high = max(high, low * _SHORTEST)
    ratios = sorted({row.ratio for row in rows})
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(min(_at(row, "reached") for row in rows) / 1.15, max(1.0, *ratios) * 1.05)
    ax.set_ylim(low / (high / low) ** 0.06, high * (high / low) ** 0.06)
    bottom, top = ax.get_ylim()
    plain_ticks(ax.xaxis, [*_apart(ratios), 1.0])
    plain_ticks(ax.yaxis, around_one([tick for tick in _TICKS if bottom <= tick <= top], (top / bottom) ** 0.09))
    ax.axhline(1.0, color="#d5dbe1", linewidth=0.6, zorder=0)


def _apart(ratios: Sequence[float], factor: float = 1.25) -> list[float]:
    """Ratios whose labels do not meet on the logarithmic axis, from the smallest on."""
    kept: list[float] = []
    for ratio in ratios:
        if (not kept or ratio >= factor * kept[-1]) and ratio * factor <= 1.0:
            kept.append(ratio)
    return kept


def _draw_published(ax: Axes, measure: str) -> None:
    column = _PUBLISHED[measure]
    x, y = [row.ratio for row in PUBLISHED], [getattr(row, column) for row in PUBLISHED]
    what = "paper, T5" if measure == "relative_LPPL" else "paper, svd"
    ax.plot(x, y, color=REFERENCE, linewidth=0.9, linestyle="-", zorder=0, label=what, gid="published")
