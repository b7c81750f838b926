"""A sweep on disk: one checkpoint folder per point, what is known of each, and the table of all."""

from __future__ import annotations

import shutil
from pathlib import Path

from rankscope.errors import DataError, OutputError
from rankscope.io import codec
from rankscope.io.atomic import atomic_file
from rankscope.io.run_store import RunStore, differences
from rankscope.measure.sweep import SweepReport, SweepRow
from rankscope.train.config import config_from_dict
from rankscope.train.sweeps.spec import Point, SweepSpec

REPORT = "sweep"
"""Stem of the files that hold the whole sweep: .json, .csv and .parquet."""


class SweepFolder:
    """Where everything of a sweep lies.

    ``points/<name>`` is a checkpoint (while it trains, its snapshots lie beside it), ``rows/<name>.json`` what is
    known of it, ``logs/<name>.log`` what its process printed, ``beats/<name>.json`` how far it is.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = RunStore(root, "the sweep", items="rows")

    def checkpoint(self, point: str) -> Path:
        """Folder of a point's checkpoint."""
        return self.root / "points" / point

    def log(self, point: str) -> Path:
        """File of what a point's process printed."""
        return self.root / "logs" / f"{point}.log"

    def beat(self, point: str) -> Path:
        """File that says how far a point is."""
        return self.root / "beats" / f"{point}.json"

    def row(self, point: str) -> SweepRow | None:
        """What is known of a point, None for nothing.

        Raises:
            OutputError: its file is damaged.
        """
        return self.store.get(point, SweepRow)

    def forget(self, point: str) -> None:
        """Delete a point's checkpoint, its snapshots and what is known of it."""
        for path in [self.checkpoint(point), *self.checkpoint(point).parent.glob(f"{point}.*")]:
            shutil.rmtree(path, ignore_errors=True)
        for file in (self.store.path(point), self.beat(point), self.log(point)):
            file.unlink(missing_ok=True)

    def report(self, spec: SweepSpec, points: tuple[Point, ...]) -> SweepReport:
        """All points with what is known of each."""
        rows = (self.row(p.name) or SweepRow(p.name, dict(p.fields), codec.plain(p.config)) for p in points)
        return SweepReport(spec.name, spec.about, str(self.root), spec.eps, tuple(rows))

    def write_report(self, report: SweepReport) -> None:
        """Write sweep.json, sweep.csv and sweep.parquet."""
        frame = report.to_frame()
        for suffix in (".json", ".csv", ".parquet"):
            with atomic_file(self.root / f"{REPORT}{suffix}") as path:
                if suffix == ".json":
                    path.write_text(codec.text(report, indent=1) + "\n", encoding="utf-8")
                elif suffix == ".csv":
                    frame.to_csv(path, index=False)
                else:
                    frame.to_parquet(path, index=False)

    def check(self, spec: SweepSpec, points: tuple[Point, ...]) -> None:
        """Refuse a folder that holds anything else than this sweep, before anything is written.

        Raises:
            OutputError: it is a file, has other content, holds another sweep, or a point of it was begun with another
                config.
        """
        self.store.check()
        earlier = self._earlier_name()
        if earlier is None and not self.store.empty:
            raise OutputError(f"--out {self.root} exists and holds no sweep: choose another place.")
        if earlier not in (None, spec.name):
            raise OutputError(
                f"--out {self.root} holds the sweep {earlier!r}, not {spec.name!r}: choose another place."
            )
        for point in points:
            row = self.row(point.name)
            if row is None and self.checkpoint(point.name).exists():
                raise OutputError(
                    f"{self.checkpoint(point.name)} was not trained by this sweep: move it away, or train the point "
                    "anew with --force."
                )
            for name, was, now in () if row is None else differences(config_from_dict(row.config), point.config):
                raise OutputError(
                    f"point {point.name!r} in {self.root} was begun with {name} {was!r}, not {now!r}: choose another "
                    "--out, or train it anew with --force."
                )

    def _earlier_name(self) -> str | None:
        file = self.root / f"{REPORT}.json"
        if not file.exists():
            return None
        try:
            data = codec.load(file)
        except DataError as error:
            raise OutputError(f"{file} is damaged: delete it; the points are kept in rows/.") from error
        if not isinstance(data, dict) or data.get("schema") != SweepReport.SCHEMA:
            raise OutputError(f"--out {self.root} exists and holds no sweep: choose another place.")
        return str(data["name"])
