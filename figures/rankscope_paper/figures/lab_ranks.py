"""Ranks by encoding, kind of layers and codebook, of a saved study of the lab's runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rankscope.errors import OptionError
from rankscope.io import codec
from rankscope.plots.labels import plain_ticks, whole_numbers
from rankscope.plots.style import MARKS, figure, styled
from rankscope_lab.measure.record import INPUT, OUTPUT
from rankscope_lab.ranks.questions import QUESTIONS
from rankscope_lab.ranks.runs import CODEBOOK, ENCODERS, SLT, STREAM, TOKENIZERS
from rankscope_lab.ranks.study import CurveRow, RankRow, RankStudy
from rankscope_paper.figures.recipe import Drawn, Recipe, Settings, carried

DATA = "lab_ranks.json"
MAKE = "rankscope lab ranks DIR... --cut --data DIR --out ranks.json"
ENCODER_LINES = ("linear", "linear-ppe", "linear-scaled", "linear-rotated", "mlp", "sum")
LAYER_LINES = ("slt", "patchtst", "slt-additive", "patchtst-mult", "slt-bottom", "projections")
CUT_VARIANTS = ("slt", "linear")
"""Whose layers are shown cut: the first that there is."""
EPS = "0.1"
Row = TypeVar("Row", RankRow, CurveRow)
Line = tuple[list[float], list[float], list[float]]
"""Places, means over seeds there, standard deviations (NaN where unknown, as of one seed)."""
Lines = Mapping[str, Line]


@partial(
    Recipe,
    id="lab-ranks",
    title="Ranks that encoders, layers and codebooks set",
    shows="not in the paper: ranks of the models that the lab trains",
    takes=("data",),
    data=(DATA,),
    make=MAKE,
)
def study(settings: Settings) -> Drawn:
    """Draw the study that the settings name, or the one that the package carries."""
    study = codec.read(RankStudy, settings.data or carried(DATA, MAKE), DATA)
    settings_of = {name: _largest(study.rows, name) for name in (ENCODERS, SLT, TOKENIZERS)}
    cut = _cut_of(study.curves)
    shown = {
        "encoders": _by_depth(study.rows, settings_of[ENCODERS], ENCODER_LINES),
        "layers": _by_depth(study.rows, settings_of[SLT], LAYER_LINES),
        "codebooks": _by_codes(study.rows, settings_of[TOKENIZERS]),
        "cuts": _by_ratio(study.curves, cut),
    }
    data_set = {name: setting.replace("-", " ").partition(" ")[0] for name, setting in settings_of.items()}
    named = {
        "encoders": f"generated series ({data_set[ENCODERS]})",
        "layers": data_set[SLT],
        "codebooks": data_set[TOKENIZERS],
        "cuts": f"{cut[1]} on {cut[0].partition('-')[0]}",
    }
    return Drawn(lab_ranks(shown, named), _frame(shown), _caption(study, settings_of, cut))


def _largest(rows: Iterable[RankRow], study: str) -> str:
    """The setting with the most runs; empty where the study has none."""
    runs: dict[str, dict[str, int]] = {}
    for row in rows:
        if row.study == study and row.what in (INPUT, CODEBOOK):
            runs.setdefault(row.setting, {})[row.variant] = row.seeds
    return max(runs, key=lambda name: sum(runs[name].values()), default="")


def _by_depth(rows: Sequence[RankRow], setting: str, variants: Sequence[str]) -> dict[str, Line]:
    found = {}
    for variant in variants:
        mine = [row for row in rows if (row.setting, row.variant) == (setting, variant)]
        depths = {(row.layer or 0) + (row.what == OUTPUT): row for row in mine if row.what in (INPUT, OUTPUT)}
        if depths:
            found[variant] = _line(depths, lambda row: row.effective, lambda row: row.effective_std)
    return found


def _by_codes(rows: Sequence[RankRow], setting: str) -> dict[str, Line]:
    found = {}
    for what, title in ((CODEBOOK, "codebook"), (STREAM, "series as codes")):
        sizes = {int(row.variant): row for row in rows if (row.setting, row.what) == (setting, what)}
        if sizes:
            found[f"{title}, ε = {EPS}"] = _line(sizes, lambda row: row.eps_ranks[EPS], lambda row: None)
            found[f"{title}, effective"] = _line(sizes, lambda row: row.effective, lambda row: row.effective_std)
    return found


def _by_ratio(curves: Sequence[CurveRow], cut: tuple[str, str]) -> dict[str, Line]:
    mine = [row for row in curves if (row.setting, row.variant) == cut]
    found = {}
    for kind, method in dict.fromkeys((row.kind, row.method) for row in mine if row.method != "svd"):
        points = {row.ratio: row for row in mine if (row.kind, row.method) == (kind, method)}
        label = f"{kind.replace('_', '-')}, {method}"
        found[label] = _line(points, lambda row: row.relative, lambda row: row.relative_std)
    return found


def _cut_of(curves: Sequence[CurveRow]) -> tuple[str, str]:
    """Setting and variant whose layers are shown cut; that of the most runs."""
    for wanted in (*CUT_VARIANTS, None):
        mine = [row for row in curves if wanted in (None, row.variant)]
        if mine:
            most = max(mine, key=lambda row: row.seeds)
            return most.setting, most.variant
    return "", ""


def _line(
    rows: Mapping[int, Row] | Mapping[float, Row], mean: Callable[[Row], float], std: Callable[[Row], float | None]
) -> Line:
    found = sorted(rows.items(), key=lambda item: item[0])
    return [float(x) for x, _ in found], [mean(row) for _, row in found], [_known(std(row)) for _, row in found]


def _known(value: float | None) -> float:
    return math.nan if value is None else value


def _frame(panels: Mapping[str, Lines]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"panel": panel, "line": name, "x": x, "mean": y, "std": spread}
            for panel, lines in panels.items()
            for name, line in lines.items()
            for x, y, spread in zip(*line, strict=True)
        ],
        columns=["panel", "line", "x", "mean", "std"],
    )


def _caption(study: RankStudy, settings: Mapping[str, str], cut: tuple[str, str]) -> str:
    counts = ", ".join(f"{count} runs of {name}" for name, count in study.runs.items())
    verdicts = []
    for letter, question in QUESTIONS.items():
        says = [one.verdict for one in study.findings if one.question == letter]
        verdicts.append(
            f"{question} {says.count('yes')} claims yes, {says.count('no')} no, {says.count('unclear')} unclear"
        )
    named = "; ".join(f"{name}: {setting}" for name, setting in settings.items() if setting)
    shown = f" Cut: {cut[1]} of {cut[0]}, one kind of layer at a time, all else whole." if cut[1] else ""
    return (
        "Effective rank of the stream before the first block and after each, rank of codebooks and of series as codes, "
        f"loss after cutting; mean and standard deviation over seeds. {named}.{shown} Read from a saved study of "
        f"{counts} ({study.diverged} diverged). {' '.join(f'{one}.' for one in verdicts)}"
    )


def lab_ranks(panels: Mapping[str, Lines], named: Mapping[str, str] | None = None) -> Figure:
    """One panel below the other; those without lines are left out.

    Args:
        panels: lines by label, of ``encoders`` and ``layers`` (effective rank of the stream by depth), ``codebooks``
            (rank by number of codes) and ``cuts`` (loss over the whole model's, by share of parameters kept).
        named: data set of a panel's runs, for its title.

    Raises:
        OptionError: there is nothing to draw, or a panel has more lines than there are marks.
    """
    kept = {name: lines for name, lines in panels.items() if lines}
    if not kept:
        raise OptionError("no panel has a line: nothing can be drawn.")
    if any(len(lines) > len(MARKS) for lines in kept.values()):
        raise OptionError(f"a panel has more than {len(MARKS)} lines: they could not be told apart.")
    with styled():
        fig, axes = figure(len(kept), 1)
        for ax, letter, (name, lines) in zip(axes, "abcd", kept.items(), strict=False):
            title, finish = _PANELS[name]
            for mark, (label, (x, means, spread)) in zip(MARKS, lines.items(), strict=False):
                ax.errorbar(x, means, spread, label=label, elinewidth=0.6, capsize=1.5, **mark.kwargs())
            finish(ax, lines)
            ax.set_title(f"({letter})  {title}: {named[name]}" if named and named.get(name) else f"({letter})  {title}")
            ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return fig


def _depth(ax: Axes, lines: Lines) -> None:
    ax.set_ylim(bottom=0)
    whole_numbers(ax)
    ax.set_xlabel("blocks passed")
    ax.set_ylabel("effective rank")


def _codes(ax: Axes, lines: Lines) -> None:
    ax.set_xscale("log", base=2)
    plain_ticks(ax.xaxis, sorted({x for places, _, _ in lines.values() for x in places}))
    ax.set_ylim(bottom=0)
    ax.set_xlabel("codes")
    ax.set_ylabel("rank")


def _cuts(ax: Axes, lines: Lines) -> None:
    ax.set_xscale("log")
    plain_ticks(ax.xaxis, (0.1, 0.25, 0.5, 1.0))
    ax.axhline(1.0, color="#d5dbe1", linewidth=0.6, zorder=0)
    ax.set_xlabel("share of parameters")
    ax.set_ylabel("loss / whole model")


_PANELS = {
    "encoders": ("input encoders", _depth),
    "layers": ("kinds of layers", _depth),
    "codebooks": ("codebooks", _codes),
    "cuts": ("one kind of layer cut", _cuts),
}
