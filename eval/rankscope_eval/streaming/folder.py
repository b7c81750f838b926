"""A folder of forecasts in parts: a record of each, their common settings, and the report of a run."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rankscope.io import codec
from rankscope.io.atomic import atomic_file
from rankscope.io.run_store import RunStore
from rankscope.series.reader import BadRow
from rankscope_eval.streaming.job import Part

SCHEMA = "rankscope/forecast-parts@1"
RECORDS = "_parts.jsonl"
UNFINISHED = "_parts"
"""Folder of the records until all are there."""
NAMED = 20
"""Rows that a report names; the folder names all."""


@dataclass(frozen=True)
class Record:
    """A finished part."""

    number: int
    file: str
    bytes: int
    series: int
    nan_only: int
    left_out: tuple[BadRow, ...]


class PartFolder:
    """Parts ``part-000000.parquet`` and on, a line on each in ``_parts.jsonl``, their settings in ``_manifest.json``.

    A part is written whole or not at all, its record after it. A finished folder is a function of the settings and the
    input, byte for byte: nothing in it tells when it was written, in how many goes, or by whom.

    Args:
        root: the folder.
        model: name of the model; another name for the same weights is no other model.
        settings: what the forecasts depend on.
    """

    def __init__(self, root: Path, model: str, settings: Mapping[str, Any]) -> None:
        self.root, self._format = root, settings["format"]
        facts, owns = {"model": model}, ("part-*", RECORDS)
        self._store = RunStore(root, "forecasts", SCHEMA, settings, facts=facts, items=UNFINISHED, owns=owns)
        self.records: dict[int, Record] = {}
        self.finished = False

    @contextlib.contextmanager
    def opened(self, resume: bool, force: bool) -> Iterator[None]:
        """Begin, or go on with what is there; nobody else can until the block ends.

        Raises:
            OutputError: what stands there is something else, was begun with other settings, or cannot be written to.
            OptionError: both ``resume`` and ``force``.
        """
        with self._store.open(resume, force) as store:
            if store.finished:
                shutil.rmtree(self.root / UNFINISHED, ignore_errors=True)  # of a process killed at the very end
                lines = (self.root / RECORDS).read_text(encoding="utf-8").splitlines()
                found = [codec.parse(Record, json.loads(line), RECORDS) for line in lines]
            else:
                found = [record for name in store.names() if (record := store.get(name, Record))]
            self.records = {one.number: one for one in found if self._is_whole(one)}
            self.finished = store.finished and len(self.records) == store.facts["parts"]
            yield

    def add(self, part: Part) -> Record:
        """Write a part, then its record."""
        name = f"part-{part.number:06d}"
        record = Record(part.number, f"{name}.{self._format}", len(part.content), part.series, part.nan_only, part.bad)
        with atomic_file(self.root / record.file) as path:
            path.write_bytes(part.content)
        self._store.put(name, record)
        self.records[part.number] = record
        return record

    def finish(self) -> None:
        """Say that all parts are there."""
        records = [self.records[number] for number in sorted(self.records)]
        with atomic_file(self.root / RECORDS) as path:
            path.write_text("".join(f"{codec.text(record)}\n" for record in records), encoding="utf-8")
        self._store.seal(parts=len(records), series=sum(record.series for record in records))
        shutil.rmtree(self.root / UNFINISHED, ignore_errors=True)
        self.finished = True

    def _is_whole(self, record: Record) -> bool:
        path = self.root / record.file
        return path.is_file() and path.stat().st_size == record.bytes


@dataclass(frozen=True)
class StreamReport:
    """A finished folder of forecasts.

    Attributes:
        folder: where the parts are.
        model: its name.
        horizon: steps.
        series: forecasts in the folder.
        parts: files.
        parts_kept: files that an earlier run had finished.
        nan_only: series without a number, whose forecasts are NaN.
        left_out: rows that could not be used.
        named: the first of these.
        seconds: that this run took, opening the model included.
        series_per_second: of this run, once the model is open; on a cluster its opening counts.
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
