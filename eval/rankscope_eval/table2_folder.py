"""A table 2 on disk: its settings, the moments of every seed, one entry per point, and the table itself."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rankscope.errors import OutputError
from rankscope.io.atomic import atomic_file, refuse_workplace
from rankscope.measure.table2 import (
    MEASURES,
    PUBLISHED,
    Measures,
    Original,
    Table2Point,
    Table2Report,
    Table2Row,
    original_from_json,
    point_from_json,
)

LOCK = "table2.lock"
SETTINGS = "settings.json"
SCHEMA = "rankscope/table2-settings@1"
ENDINGS = (".json", ".csv", ".md", ".png", ".svg")
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
class Table2Folder:
    """Where everything of a table lies.

    ``entries/<point>.json`` is what is known of a point, ``calibration/seed-<n>.safetensors`` the moments of a seed,
    ``original.json`` the original's own scores, ``settings.json`` what all of it is a function of.
    """

    root: Path

    def moments(self, seed: int) -> Path:
        """File of the moments of a seed."""
        return self.root / "calibration" / f"seed-{seed}.safetensors"

    @property
    def work(self) -> Path:
        """Folder of the model that is measured now; it is emptied when a run begins."""
        return self.root / "work"

    def check(self, settings: Mapping[str, Any], resume: bool, force: bool) -> None:
        """Refuse a folder that holds anything else than this table, before anything is written.

        Raises:
            OutputError: it exists and neither ``resume`` nor ``force`` is given, holds no table, or one that was
                measured otherwise.
        """
        refuse_workplace(self.root)
        if not self.root.exists():
            return
        if not self.root.is_dir():
            raise OutputError(f"--out {self.root} is a file: name a folder.")
        earlier = self._settings()
        if earlier is None:
            if any(path.name != LOCK for path in self.root.iterdir()):
                raise OutputError(f"--out {self.root} exists and holds no table 2: choose another place.")
            return
        if force:
            return
        if not resume:
            raise OutputError(f"--out {self.root} holds a table 2: --resume goes on with it, --force measures it anew.")
        for name, value in json.loads(json.dumps(settings)).items():
            if earlier.get(name) != value:
                raise OutputError(
                    f"the table 2 in {self.root} was measured with {name} {earlier.get(name)!r}, not {value!r}: choose "
                    "another --out, or measure it anew with --force."
                )

    def begin(self, settings: Mapping[str, Any], force: bool) -> None:
        """Write the settings; what a killed run left half done, and with ``force`` all else, is removed."""
        if force:
            for name in ("entries", "calibration"):
                shutil.rmtree(self.root / name, ignore_errors=True)
            (self.root / "original.json").unlink(missing_ok=True)
            for ending in ENDINGS:
                (self.root / f"table2{ending}").unlink(missing_ok=True)
        for path in (self.work, *self.root.glob("work.*"), *self.root.glob(".work.*")):
            shutil.rmtree(path, ignore_errors=True)
        _write(self.root / SETTINGS, {"schema": SCHEMA, **settings})

    def point(self, name: str) -> Table2Point | None:
        """What is known of a point, None for nothing."""
        file = self.root / "entries" / f"{name}.json"
        return point_from_json(_read(file)) if file.exists() else None

    def points(self) -> list[Table2Point]:
        """Every point that is known."""
        files = sorted((self.root / "entries").glob("*.json"))
        return [point_from_json(_read(file)) for file in files if not file.name.startswith(".")]

    def keep(self, point: Table2Point) -> None:
        """Remember a point."""
        _write(self.root / "entries" / f"{point.name}.json", asdict(point))

    def original(self) -> Original | None:
        """What is known of the original, None for nothing."""
        file = self.root / "original.json"
        return original_from_json(_read(file)) if file.exists() else None

    def keep_original(self, original: Original) -> None:
        """Remember the original's own scores."""
        _write(self.root / "original.json", asdict(original))

    def write(self, report: Table2Report) -> list[Path]:
        """Write table2.json, table2.csv and table2.md."""
        files = [self.root / f"table2{ending}" for ending in (".json", ".csv", ".md")]
        _write(files[0], report.to_json())
        with atomic_file(files[1]) as path:
            report.to_frame().to_csv(path, index=False)
        with atomic_file(files[2]) as path:
            path.write_text(markdown(report), encoding="utf-8")
        return files

    def _settings(self) -> dict[str, Any] | None:
        file = self.root / SETTINGS
        if not file.exists():
            return None
        found = _read(file)
        if found.get("schema") != SCHEMA:
            raise OutputError(f"--out {self.root} exists and holds no table 2: choose another place.")
        return found


def markdown(report: Table2Report) -> str:
    """The table in Markdown; where a row has several seeds, the median and in brackets minimum and maximum."""
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


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise OutputError(f"{file} is damaged: delete it, and --resume measures it anew.") from error
    if not isinstance(found, dict):
        raise OutputError(f"{file} is damaged: delete it, and --resume measures it anew.")
    return found


def _write(file: Path, content: Mapping[str, Any]) -> None:
    with atomic_file(file) as path:
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
