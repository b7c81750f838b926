"""Folder of a Table 2 run: settings, calibration moments, one entry per point, and the table."""

from __future__ import annotations

import contextlib
import math
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rankscope.io import codec
from rankscope.io.atomic import atomic_file
from rankscope.io.run_store import RunStore
from rankscope.measure.tradeoff import (
    MEASURES,
    PUBLISHED,
    Measures,
    Original,
    Table2Point,
    Table2Report,
    Table2Row,
    Verdict,
)
from rankscope_eval.relative import Sums

SCHEMA = "rankscope/table2-settings@2"
_SAYS = (
    "Relative to the original; lower is better but for the overlap. Ratios are shares of the attention matrices' "
    "parameters."
)
ORIGINAL = "original"
"""Name of the entry with the original's scores."""
_HEADS = {
    "relative_WQL": "rel. WQL",
    "relative_MASE": "rel. MASE",
    "relative_LPPL": "rel. LPPL",
    "overlap": "top-10 overlap",
    "quantile_distance": "quantile distance / s.d.",
    "parameters": "parameters",
    "bytes": "bytes",
    "cache_bytes": "cache bytes",
    "compress_seconds": "compress s",
    "heal_seconds": "heal s",
    "forecast_seconds": "forecast s",
    "time_ratio": "time ratio",
}


@dataclass(frozen=True)
class KeptPoint:
    """Point with the sums of its series by data set, which the table omits."""

    point: Table2Point
    sums: dict[str, Sums]


@dataclass(frozen=True)
class KeptOriginal:
    """The original's scores with the sums of its series by data set."""

    original: Original
    sums: dict[str, Sums]


class Table2Folder:
    """Folder of a Table 2 run.

    ``entries/<point>.json`` holds the result of a point, ``entries/original.json`` the original's scores, both with the
    sums of every series,
    ``calibration/seed-<n>.safetensors`` the calibration moments of a seed, and ``work`` the model being measured.

    Args:
        root: path of the folder.
        model: name of the model; not part of the settings that must match on resume.
        settings: settings that determine the table.
    """

    def __init__(self, root: Path, model: str, settings: Mapping[str, Any]) -> None:
        owns = ("table2.*", "calibration", "work", "work.*")
        self.root, self.work = root, root / "work"
        self._store = RunStore(root, "a table 2", SCHEMA, settings, facts={"model": model}, items="entries", owns=owns)

    def moments(self, seed: int) -> Path:
        """Return the path of a seed's calibration moments."""
        return self.root / "calibration" / f"seed-{seed}.safetensors"

    @contextlib.contextmanager
    def opened(self, resume: bool, force: bool) -> Iterator[None]:
        """Start or resume the table, holding a lock for the duration of the block.

        Raises:
            OutputError: see `RunStore.open`.
        """
        with self._store.open(resume, force):
            for path in (self.work, *self.root.glob("work.*"), *self.root.glob(".work.*")):  # left by a killed run
                shutil.rmtree(path, ignore_errors=True)
            yield

    def __contains__(self, point: Table2Point) -> bool:
        return point.name in self._store

    def points(self) -> list[KeptPoint]:
        """Return all measured points."""
        names = (name for name in self._store.names() if name != ORIGINAL)
        return [kept for name in names if (kept := self._store.get(name, KeptPoint))]

    def keep(self, point: Table2Point, sums: Mapping[str, Sums]) -> None:
        """Store a point."""
        self._store.put(point.name, KeptPoint(point, dict(sums)))

    def original(self) -> KeptOriginal | None:
        """Return the original's measurements, or None if missing."""
        return self._store.get(ORIGINAL, KeptOriginal)

    def keep_original(self, kept: KeptOriginal) -> None:
        """Store the original's measurements."""
        self._store.put(ORIGINAL, kept)

    def write(self, report: Table2Report) -> None:
        """Write table2.json, table2.csv and table2.md."""
        codec.write(self.root / "table2.json", report)
        with atomic_file(self.root / "table2.csv") as path:
            report.to_frame().to_csv(path, index=False)
        with atomic_file(self.root / "table2.md") as path:
            path.write_text(markdown(report), encoding="utf-8")
        self._store.seal()


def markdown(report: Table2Report) -> str:
    """Format the table as Markdown: scores with intervals and verdicts, then all measures as median (min–max)."""
    rows = report.rows
    shown = [name for name in _HEADS if any(getattr(row.median, name) is not None for row in rows)]
    lines = [f"# Table 2 of {report.model}", "", _SAYS, ""]
    lines += _judged(report) if report.judgements else []
    head = ["ratio", "reached", "method", "allocation", "seeds", *(_HEADS[name] for name in shown)]
    lines += [_line(head), _line(["---"] * len(head))]
    lines += [_line(_cells(row, shown)) for row in rows]
    reasons = dict.fromkeys(f"{row.method} at {row.ratio:g}: {row.reason}" for row in rows if row.reason)
    lines += ["", *(f"- {reason}" for reason in reasons)] if reasons else []
    settings = ", ".join(f"{name} {value}" for name, value in report.settings.items() if value is not None)
    lines += ["", f"Measured with {settings}.", "", "Published (Table 2 of the paper, plain truncated SVD):", ""]
    head = ["ratio", "in-domain WQL", "MASE", "zero-shot WQL", "MASE", "overlap", "T5 LPPL", "overlap"]
    lines += [_line(head), _line(["---"] * len(head))]
    lines += [_line([f"{value:.3f}" for value in asdict(row).values()]) for row in PUBLISHED]
    return "\n".join(lines) + "\n"


def _judged(report: Table2Report) -> list[str]:
    margin = report.judgements[0].WQL_verdict.margin
    head = ["ratio", "method", "allocation"]
    for metric in ("WQL", "MASE"):
        head += [f"rel. {metric}", "95 %", "verdict", "worst set"]
    lines = [_line(head), _line(["---"] * len(head))]
    for row in report.rows:
        if (judged := row.judgement) is not None:
            method = row.method if row.heal_steps is None else f"{row.method}, {row.heal_steps} steps"
            wql = _scored(judged.relative_WQL, judged.WQL_interval, judged.WQL_verdict)
            mase = _scored(judged.relative_MASE, judged.MASE_interval, judged.MASE_verdict)
            lines.append(_line([f"{row.ratio:g}", method, row.allocation, *wql, *mase]))
    says = (
        "Scores are averaged over the seeds, then geometric means over data sets; intervals by bootstrap over data "
        f"sets and series; held: within {100 * margin:g} % by two one-sided tests at 5 %; better and worse: the 95 % "
        "interval is beyond 1."
    )
    return [*lines, "", says, "", "All measures, medians over the seeds (min–max):", ""]


def _scored(value: float, ends: tuple[float, float] | None, verdict: Verdict) -> list[str]:
    span = "–" if ends is None else f"{ends[0]:.3f}–{ends[1]:.3f}"
    there = "–" if verdict.worst_ratio is None else f"{verdict.worst} {verdict.worst_ratio:.3f}"
    return [f"{value:.3f}", span, verdict.word, there]


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cells(row: Table2Row, shown: list[str]) -> list[str]:
    reached = row.state if row.median.reached is None else _spread(row, "reached")
    method = row.method if row.heal_steps is None else f"{row.method}, {row.heal_steps} steps"
    first = [f"{row.ratio:g}", reached, method, row.allocation, " ".join(map(str, row.seeds)) or "–"]
    return [*first, *(_spread(row, name) for name in shown)]


def _spread(row: Table2Row, name: str) -> str:
    middle, low, high = (_number(name, one) for one in (row.median, row.low, row.high))
    return middle if low == high else f"{middle} ({low}–{high})"


def _number(name: str, measures: Measures) -> str:
    assert name in MEASURES
    value = getattr(measures, name)
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:,.0f}" if name in ("parameters", "bytes", "cache_bytes") else f"{value:.3f}"
