"""What encodings, kinds of layers and codebooks do to rank: of a saved study of the lab's runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import pandas as pd

from rankscope.measure.saved import read_json
from rankscope.plots.lab_ranks import LabRanks, Line, lab_ranks
from rankscope_lab.measure.record import INPUT, OUTPUT
from rankscope_lab.ranks.questions import QUESTIONS
from rankscope_lab.ranks.runs import CODEBOOK, ENCODERS, SLT, STREAM, TOKENIZERS
from rankscope_lab.ranks.study import RankStudy, study_from_json
from rankscope_lab.ranks.tables import CurveRow, RankRow
from rankscope_paper.figures._record import Drawn, Settings
from rankscope_paper.figures._saved import carried

DATA = "lab_ranks.json"
MAKE = "rankscope lab ranks DIR... --cut --data DIR --out ranks.json"
ENCODER_LINES = ("linear", "linear-ppe", "linear-scaled", "linear-rotated", "mlp", "sum")
LAYER_LINES = ("slt", "patchtst", "slt-additive", "patchtst-mult", "slt-bottom", "projections")
CUT_VARIANTS = ("slt", "linear")
"""Whose layers are shown cut: the first that there is."""
EPS = "0.1"
Row = TypeVar("Row", RankRow, CurveRow)


def draw_lab_ranks(settings: Settings) -> tuple[Drawn, ...]:
    """Draw the study that the settings name, or the one that the package carries."""
    study = read_json(settings.data or carried(DATA, MAKE), DATA, study_from_json)
    settings_of = {name: _largest(study.rows, name) for name in (ENCODERS, SLT, TOKENIZERS)}
    cut = _cut_of(study.curves)
    shown = LabRanks(
        _by_depth(study.rows, settings_of[ENCODERS], ENCODER_LINES),
        _by_depth(study.rows, settings_of[SLT], LAYER_LINES),
        _by_codes(study.rows, settings_of[TOKENIZERS]),
        _by_ratio(study.curves, cut),
    )
    return (Drawn(lab_ranks(shown), _frame(shown), _caption(study, settings_of, cut)),)


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
    return Line([float(x) for x, _ in found], [mean(row) for _, row in found], [std(row) or 0.0 for _, row in found])


def _frame(shown: LabRanks) -> pd.DataFrame:
    panels = {
        "encoders": shown.encoders,
        "layers": shown.layers,
        "codebooks": shown.codebooks,
        "cuts": shown.cuts,
    }
    return pd.DataFrame(
        [
            {"panel": panel, "line": name, "x": x, "mean": y, "std": spread}
            for panel, lines in panels.items()
            for name, line in lines.items()
            for x, y, spread in zip(line.x, line.y, line.spread, strict=True)
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
