"""A folder of forecasts in parts: what is there whole, and what it belongs to."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rankscope.errors import OptionError, OutputError
from rankscope.io.atomic import atomic_file
from rankscope.io.run_store import locked
from rankscope_eval.streaming.convert import BadRow
from rankscope_eval.streaming.job import Part

SCHEMA = "rankscope/forecast-parts@1"
MANIFEST = "_manifest.json"  # readers of folders (pandas, Arrow, Spark, Ray Data) skip names that begin so
RECORDS = "_parts.jsonl"
LOCK = ".lock"


@dataclass(frozen=True)
class Record:
    """What is known of a finished part."""

    number: int
    file: str
    bytes: int
    series: int
    nan_only: int
    left_out: tuple[BadRow, ...]


class PartFolder:
    """Parts ``part-000000.parquet`` and on, a line on each in ``_parts.jsonl``, their settings in ``_manifest.json``.

    A part is written whole or not at all, its line after it. A finished folder is a function of the settings and the
    input, byte for byte: nothing in it tells when it was written, in how many goes, or by whom.

    Args:
        root: the folder.
        model: name of the model; another name for the same weights is no other model.
        settings: what the forecasts depend on.
    """

    def __init__(self, root: Path, model: str, settings: Mapping[str, Any]) -> None:
        self.root, self._model = root, model
        self._settings: dict[str, Any] = json.loads(json.dumps(settings))
        self.records: dict[int, Record] = {}
        self.finished = False

    @contextlib.contextmanager
    def opened(self, resume: bool, force: bool) -> Iterator[None]:
        """Begin, or go on with what is there; nobody else can until the block ends.

        Raises:
            OutputError: what stands there is something else, was begun with other settings, or cannot be written to.
            OptionError: both ``resume`` and ``force``.
        """
        if resume and force:
            raise OptionError("--resume goes on and --force starts anew: give one of them.")
        self._check(resume, force)
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"cannot write {self.root}: {error.strerror or error}.") from error
        with locked(self.root / LOCK, f"{self.root} is written"):
            if force:
                self._clear()
            else:
                self._recall()
            yield

    def add(self, part: Part) -> Record:
        """Write a part, then its record."""
        name = f"part-{part.number:06d}.{self._settings['format']}"
        with atomic_file(self.root / name) as path:
            path.write_bytes(part.content)
        record = Record(part.number, name, len(part.content), part.series, part.nan_only, part.bad)
        with (self.root / RECORDS).open("a", encoding="utf-8") as file:
            file.write(_line(record))
            file.flush()
            os.fsync(file.fileno())
        self.records[part.number] = record
        return record

    def finish(self) -> None:
        """Say that all parts are there."""
        self._write_records()
        self._write_manifest("finished")
        self.finished = True

    def _check(self, resume: bool, force: bool) -> None:
        if self.root.exists() and not self.root.is_dir():
            raise OutputError(f"--out {self.root} is a file: name a folder.")
        found = self._manifest()
        if found is None:
            if self.root.is_dir() and any(not path.name.startswith(".") for path in self.root.iterdir()):
                raise OutputError(f"--out {self.root} exists and holds no forecasts: choose another place.")
            return
        if not (resume or force):
            raise OutputError(
                f"--out {self.root} holds forecasts already: --resume goes on with them, --force starts anew."
            )
        if resume:
            self._check_same(found)

    def _check_same(self, found: dict[str, Any]) -> None:
        was = found["settings"]
        for name in {**was, **self._settings}:
            if was.get(name) != self._settings.get(name):
                raise OutputError(
                    f"{self.root} was begun with {name} {was.get(name)!r}, not {self._settings.get(name)!r}: go on as "
                    "it was begun, name another folder, or start anew with --force."
                )

    def _manifest(self) -> dict[str, Any] | None:
        file = self.root / MANIFEST
        if not file.is_file():
            return None
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise OutputError(f"{file} is damaged: delete the folder, or name another.") from error
        if not isinstance(found, dict) or found.get("schema") != SCHEMA:
            raise OutputError(f"--out {self.root} exists and holds no forecasts: choose another place.")
        return found

    def _recall(self) -> None:
        """Records of the parts that are there whole; what a killed run left half-written is removed."""
        found = self._manifest()
        for rest in [*self.root.glob(".part-*"), *self.root.glob("._*")]:
            rest.unlink(missing_ok=True)
        if (self.root / RECORDS).is_file():
            for text in (self.root / RECORDS).read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(ValueError, KeyError, TypeError):  # a line that was being written
                    record = _record(json.loads(text))
                    path = self.root / record.file
                    if path.is_file() and path.stat().st_size == record.bytes:
                        self.records[record.number] = record
        self.finished = found is not None and found["state"] == "finished" and len(self.records) == found["parts"]
        if not self.finished:
            self._write_records()
            self._write_manifest("unfinished")

    def _clear(self) -> None:
        for path in [*self.root.glob("part-*"), *self.root.glob(".part-*"), self.root / RECORDS]:
            path.unlink(missing_ok=True)
        self._write_manifest("unfinished")

    def _write_records(self) -> None:
        with atomic_file(self.root / RECORDS) as path:
            path.write_text("".join(_line(self.records[number]) for number in sorted(self.records)), encoding="utf-8")

    def _write_manifest(self, state: str) -> None:
        records = self.records.values()
        document = {
            "schema": SCHEMA,
            "model": self._model,
            "settings": self._settings,
            "state": state,
            "parts": len(records) if state == "finished" else None,
            "series": sum(one.series for one in records) if state == "finished" else None,
        }
        with atomic_file(self.root / MANIFEST) as path:
            path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _line(record: Record) -> str:
    return json.dumps(asdict(record), ensure_ascii=False) + "\n"


def _record(found: dict[str, Any]) -> Record:
    return Record(**{**found, "left_out": tuple(BadRow(**row) for row in found["left_out"])})
