"""Shard files: Arrow IPC, read in place, and Parquet, read by row group; and the index that lies beside them.

Columns: ``item_id`` (string), ``start`` (timestamp in seconds, arbitrary: 2000-01-01) and ``target`` (list of
float32). gluonts' ``FileDataset`` (which the chronos training scripts read with, any ``freq``) and the ``arrow`` and
``parquet`` loaders of 🤗 datasets take such files as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from rankscope.errors import DataError
from rankscope.io import codec
from rankscope.train.data.synthesis import Synthesis

if TYPE_CHECKING:
    import pyarrow as pa


BATCH_ROWS = 1024
"""Series per record batch of an Arrow file."""
GROUP_ROWS = 256
"""Series per row group of a Parquet file: one group is decoded at a time."""
EPOCH = 946_684_800
"""2000-01-01 in seconds."""
INDEX = "shards.index.json"
"""Name of the index. The two suffixes keep gluonts' `FileDataset` from reading it as a file of series."""


@runtime_checkable
class ShardReader(Protocol):
    """An open shard: groups of series, one after the other."""

    groups: Int[np.ndarray, " begins"]
    """Number of the first series of every group, and the number of series."""

    def group(self, index: int) -> tuple[Float[np.ndarray, " value"], Int[np.ndarray, " begins"]]:
        """Values of a group's series, one after the other, and where each begins, with the end of the last."""
        ...


def write_shard(
    path: Path,
    kind: str,
    first: int,
    series: Float[np.ndarray, "series time"],
    lengths: Int[np.ndarray, " series"],
) -> None:
    """Write series to a file in the format that its suffix names; the bytes are a function of the arguments.

    Args:
        path: ends in .arrow or .parquet.
        kind: first part of every ``item_id``.
        first: number of the first series, second part of ``item_id``.
        series: float32 array (series, time).
        lengths: how many of the last values of each are written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows, length = series.shape
    values = series[np.arange(length)[None, :] >= (length - lengths)[:, None]]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    columns = [
        pa.array([f"{kind}-{first + row:09d}" for row in range(rows)], pa.string()),
        pa.array(np.full(rows, EPOCH), pa.int64()).cast(pa.timestamp("s")),
        pa.ListArray.from_arrays(offsets, pa.array(values, pa.float32())),
    ]
    table = pa.Table.from_arrays(columns, schema=_schema())
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=GROUP_ROWS, use_dictionary=False, write_statistics=False)
        return
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=BATCH_ROWS)


def open_shard(path: Path) -> ShardReader:
    """Open a shard by its footer; the series are read when they are asked for.

    Raises:
        DataError: it is truncated, of another format than its suffix says, or has other columns.
    """
    try:
        return READERS[path.suffix](path)
    except (OSError, ValueError, KeyError) as error:  # pyarrow's errors are among these
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(f"{path} is damaged: {reason}") from error


class ArrowShard:
    """An Arrow IPC file, mapped into memory: reading a series touches its pages only."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        _check(reader.schema)
        self._batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
        self.groups = _begins([batch.num_rows for batch in self._batches])

    def group(self, index: int) -> tuple[Float[np.ndarray, " value"], Int[np.ndarray, " begins"]]:
        """See `ShardReader`; the arrays are views of the file."""
        return _flat(self._batches[index].column(2))


class ParquetShard:
    """A Parquet file: reading a series decodes its row group."""

    def __init__(self, path: Path) -> None:
        import pyarrow.parquet as pq

        self._file = pq.ParquetFile(path)
        _check(self._file.schema_arrow)
        metadata = self._file.metadata
        self.groups = _begins([metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)])

    def group(self, index: int) -> tuple[Float[np.ndarray, " value"], Int[np.ndarray, " begins"]]:
        """See `ShardReader`."""
        return _flat(self._file.read_row_group(index, columns=["target"]).column(0).combine_chunks())


READERS: dict[str, Callable[[Path], ShardReader]] = {".arrow": ArrowShard, ".parquet": ParquetShard}
"""Suffix → what opens such a file."""


def _schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema([("item_id", pa.string()), ("start", pa.timestamp("s")), ("target", pa.list_(pa.float32()))])


def _check(schema: pa.Schema) -> None:
    wanted = _schema()
    if schema.names != wanted.names or str(schema.field("target").type.value_type) != "float":
        raise ValueError(f"its columns are {', '.join(schema.names)}, not {', '.join(wanted.names)} of float32.")


def _begins(rows: list[int]) -> Int[np.ndarray, " begins"]:
    return np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)


def _flat(column: Any) -> tuple[Float[np.ndarray, " value"], Int[np.ndarray, " begins"]]:
    if hasattr(column, "chunks"):
        column = column.chunk(0)
    return column.values.to_numpy(zero_copy_only=True), column.offsets.to_numpy(zero_copy_only=True)


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
        """True if every series has been written."""
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
    """SHA-256 in pieces: Python 3.10 has no function for it."""
    digest = hashlib.sha256()
    while block := stream.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()
