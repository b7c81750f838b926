"""Folder of a Table 2 run: settings, calibration moments, one entry per point, and the table."""

from __future__ import annotations

import contextlib
import math
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict
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
)

SCHEMA = "rankscope/table2-settings@1"
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


class Table2Folder:
    """Folder of a Table 2 run.

    ``entries/<point>.json`` holds the result of a point, ``entries/original.json`` the original's scores,
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

    def points(self) -> list[Table2Point]:
        """Return all measured points."""
        names = (name for name in self._store.names() if name != ORIGINAL)
        return [point for name in names if (point := self._store.get(name, Table2Point))]

    def keep(self, point: Table2Point) -> None:
        """Store a point."""
        self._store.put(point.name, point)

    def original(self) -> Original | None:
        """Return the original's measurements, or None if missing."""
        return self._store.get(ORIGINAL, Original)

    def keep_original(self, original: Original) -> None:
        """Store the original's measurements."""
        self._store.put(ORIGINAL, original)

    def write(self, report: Table2Report) -> None:
        """Write table2.json, table2.csv and table2.md."""
        codec.write(self.root / "table2.json", report)
        with atomic_file(self.root / "table2.csv") as path:
            report.to_frame().to_csv(path, index=False)
        with atomic_file(self.root / "table2.md") as path:
            path.write_text(markdown(report), encoding="utf-8")
        self._store.seal()


def markdown(report: Table2Report) -> str:
    """Format the table as Markdown; with several seeds, as median (min–max)."""
    rows = report.rows
    shown = [name for name in _HEADS if any(getattr(row.median, name) is not None for row in rows)]
    lines = [f"# Table 2 of {report.model}", "", "Relative to the original; lower is better but for the overlap.", ""]
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
