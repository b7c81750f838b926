"""The index beside the shards of a folder: what they are a function of, and what each file must be."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rankscope.errors import DataError
from rankscope.io import codec
from rankscope.train.data.synthesis import Synthesis

INDEX = "shards.index.json"
"""Name of the index. The two suffixes keep gluonts' `FileDataset` from reading it as a file of series."""


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

    def __post_init__(self) -> None:
        if Path(self.name).name != self.name:
            raise DataError(f"file name {self.name!r} leaves the folder.")


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

    SCHEMA: ClassVar = "rankscope/shards@1"

    @property
    def complete(self) -> bool:
        """Whether every series has been written."""
        return sum(file.rows for file in self.files) == self.synthesis.n

    def write(self, folder: Path) -> None:
        """Put the index into a folder, replacing an earlier one atomically."""
        codec.write(folder / INDEX, self)


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
        return codec.read(ShardIndex, file)
    except DataError as error:
        raise DataError(f"{error} The index is damaged: write the shards anew.") from error


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
