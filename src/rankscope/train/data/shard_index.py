"""The index beside the shards of a folder: what they are a function of, and what each file must be."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankscope.errors import DataError
from rankscope.io import codec
from rankscope.io.atomic import atomic_file
from rankscope.train.data.synthesis import Synthesis

INDEX = "shards.index.json"
"""Name of the index. The two suffixes keep gluonts' `FileDataset` from reading it as a file of series."""
SCHEMA = "rankscope/shards@1"


@dataclass(frozen=True)
class ShardFile:
    """One finished file.

    Attributes:
        name: in the folder.
        rows: series in it.
        shortest: fewest values of a series in it.
        bytes: its size.
        sha256: its checksum.
    """

    name: str
    rows: int
    shortest: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class ShardIndex:
    """A folder of shards.

    Attributes:
        synthesis: what the series are a function of, together with the content of its files.
        sources: checksum of every file of the user's, by the path it was given as.
        left_out: series of those files that were left out, by reason.
        files: the finished shards, in order.
    """

    synthesis: Synthesis
    sources: dict[str, str]
    left_out: dict[str, int]
    files: tuple[ShardFile, ...]

    @property
    def complete(self) -> bool:
        """Whether every series has been written."""
        return sum(file.rows for file in self.files) == self.synthesis.n

    def write(self, folder: Path) -> None:
        """Put the index into a folder, replacing an earlier one atomically."""
        document = {
            "schema": SCHEMA,
            "synthesis": codec.plain(self.synthesis),
            "sources": self.sources,
            "left_out": self.left_out,
            "files": [dataclasses.asdict(file) for file in self.files],
        }
        with atomic_file(folder / INDEX) as path:
            path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def read_index(folder: Path) -> ShardIndex:
    """Read the index of a folder.

    Raises:
        DataError: there is no such folder, no index in it, or it is damaged or of another version.
    """
    file = folder / INDEX
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder of shards: write one with 'rankscope synth'.")
    if not file.exists():
        raise DataError(f"{folder} has no {INDEX}: it is no folder that 'rankscope synth' has finished.")
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise DataError(f"{file} has schema {document['schema']!r}, this version reads {SCHEMA!r}.")
        return _from_document(document)
    except DataError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{file} is damaged ({type(error).__name__}: {error}): write the shards anew.") from error


def checksum(file: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else _slow(stream)


def _slow(stream: Any) -> str:
    """What Python 3.10 has no function for."""
    digest = hashlib.sha256()
    while block := stream.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


def _from_document(document: dict[str, Any]) -> ShardIndex:
    settings = dict(document["synthesis"])
    synthesis = Synthesis(**{**settings, "files": tuple(settings["files"])})
    files = tuple(
        ShardFile(str(f["name"]), int(f["rows"]), int(f["shortest"]), int(f["bytes"]), str(f["sha256"]))
        for f in document["files"]
    )
    for file in files:
        if Path(file.name).name != file.name:
            raise ValueError(f"file name {file.name!r} leaves the folder")
    return ShardIndex(synthesis, dict(document["sources"]), dict(document["left_out"]), files)
