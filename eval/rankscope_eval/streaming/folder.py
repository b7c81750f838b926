"""Folder of forecast parts, with a record per part, the settings and the report."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rankscope.errors import DataError, OutputError
from rankscope.io import codec
from rankscope.io.atomic import atomic_file
from rankscope.io.run_store import RunStore
from rankscope.series.reader import BadRow
from rankscope_eval.streaming.job import Part

SCHEMA = "rankscope/forecast-parts@1"
RECORDS = "_parts.jsonl"
UNFINISHED = "_parts"
"""Folder of records while a run is unfinished."""
NAMED = 20
"""Maximum skipped rows in a report; the folder lists all."""


@dataclass(frozen=True)
class Record:
    """Record of a finished part."""

    number: int
    file: str
    bytes: int
    series: int
    nan_only: int
    left_out: tuple[BadRow, ...]


class PartFolder:
    """Folder of parts ``part-000000.parquet``, …, with records in ``_parts.jsonl`` and settings in ``_manifest.json``.

    Parts are written atomically, each followed by its record. A finished folder is a deterministic function of settings
    and input, byte for byte: it contains no timestamps, host names or traces of interruptions.

    Args:
        root: path of the folder.
        model: name of the model; not part of the settings that must match on resume.
        settings: settings that determine the forecasts.
    """

    def __init__(self, root: Path, model: str, settings: Mapping[str, Any]) -> None:
        self.root, self._format = root, settings["format"]
        facts, owns = {"model": model}, ("part-*", RECORDS)
        self._store = RunStore(root, "forecasts", SCHEMA, settings, facts=facts, items=UNFINISHED, owns=owns)
        self.records: dict[int, Record] = {}
        self.finished = False

    @contextlib.contextmanager
    def opened(self, resume: bool, force: bool) -> Iterator[None]:
        """Start or resume a run, holding a lock for the duration of the block.

        Raises:
            OutputError: the folder holds something else, was started with other settings, or is not writable.
            OptionError: both ``resume`` and ``force``.
        """
        with self._store.open(resume, force) as store:
            if store.finished:
                shutil.rmtree(self.root / UNFINISHED, ignore_errors=True)  # left by a process killed at the very end
                found = _records(self.root / RECORDS)
            else:
                found = [record for name in store.names() if (record := store.get(name, Record))]
            self.records = {one.number: one for one in found if self._is_whole(one)}
            self.finished = store.finished and len(self.records) == store.facts.get("parts")
            yield

    def add(self, part: Part) -> Record:
        """Write a part and its record."""
        name = f"part-{part.number:06d}"
        record = Record(part.number, f"{name}.{self._format}", len(part.content), part.series, part.nan_only, part.bad)
        with atomic_file(self.root / record.file) as path:
            path.write_bytes(part.content)
        self._store.put(name, record)
        self.records[part.number] = record
        return record

    def finish(self) -> None:
        """Mark the folder as complete."""
        records = [self.records[number] for number in sorted(self.records)]
        with atomic_file(self.root / RECORDS) as path:
            path.write_text("".join(f"{codec.text(record)}\n" for record in records), encoding="utf-8")
        self._store.seal(parts=len(records), series=sum(record.series for record in records))
        shutil.rmtree(self.root / UNFINISHED, ignore_errors=True)
        self.finished = True

    def _is_whole(self, record: Record) -> bool:
        path = self.root / record.file
        return path.is_file() and path.stat().st_size == record.bytes


def _records(file: Path) -> list[Record]:
    """Records of a finished folder.

    Raises:
        OutputError: the file is missing or damaged.
    """
    try:
        lines = file.read_text(encoding="utf-8").rstrip("\n").split("\n")  # ids may hold other separators of lines
        return [codec.parse(Record, codec.loads(line), RECORDS) for line in lines]
    except (OSError, ValueError, DataError) as error:
        raise OutputError(f"{file} is damaged ({error}): write the forecasts again with --force.") from error


@dataclass(frozen=True)
class StreamReport:
    """Report of a streaming run.

    Attributes:
        folder: output folder.
        model: name of the model.
        horizon: forecast horizon in steps.
        series: number of series forecast.
        parts: number of files.
        parts_kept: files finished by an earlier run.
        nan_only: series without values, with NaN forecasts.
        left_out: number of skipped rows.
        named: the first skipped rows.
        seconds: wall time of this run, including loading the model.
        series_per_second: throughput of this run, excluding loading (except on a cluster).
    """

    folder: str
    model: str
    horizon: int
    series: int
    parts: int
    parts_kept: int
    nan_only: int
    left_out: int
    named: tuple[BadRow, ...]
    seconds: float
    series_per_second: float

    SCHEMA: ClassVar = "rankscope/forecast-stream@1"
