"""Shard files: memory-mapped Arrow IPC, Parquet by row group, and their index.

Columns: ``item_id`` (string), ``start`` (timestamp in seconds, arbitrary: 2000-01-01) and ``target`` (list of
float32). gluonts' ``FileDataset`` (which the chronos training scripts read with, any ``freq``) and the ``arrow`` and
``parquet`` loaders of 🤗 datasets take such files as they are.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
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
"""Series per row group of a Parquet file, the unit of decoding."""
EPOCH = 946_684_800
"""2000-01-01 in seconds."""
INDEX = "shards.index.json"
"""Name of the index. The two suffixes keep gluonts' `FileDataset` from reading it as a file of series."""


@runtime_checkable
class ShardReader(Protocol):
    """Open shard: consecutive groups of series."""

    groups: Int[np.ndarray, " begins"]
    """Index of the first series of every group, and the number of series."""

    def group(self, index: int) -> tuple[Float[np.ndarray, " value"], Int[np.ndarray, " begins"]]:
        """Return the concatenated values of a group's series, and their start offsets with the final end.

        Raises:
            DataError: the group is damaged.
        """
        ...


def write_shard(
    path: Path,
    kind: str,
    first: int,
    series: Float[np.ndarray, "series time"],
    lengths: Int[np.ndarray, " series"],
) -> None:
    """Write series to a file in the format of its suffix; deterministic in its bytes.

    Args:
        path: ends in .arrow or .parquet.
        kind: first part of every ``item_id``.
        first: index of the first series, second part of ``item_id``.
        series: float32 array (series, time).
        lengths: values to write per series, from the end.
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
    """Open a shard by its footer; series are read lazily.

    Raises:
        DataError: truncated, not in the format of its suffix, or with other columns.
    """
    with _named(path):
        return READERS[path.suffix](path)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Convert the errors of a parser to `DataError` with the file."""
    import pyarrow as pa

    try:
        yield
    except (OSError, ValueError, LookupError, pa.ArrowException) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path} is damaged: {reason}") from error


class ArrowShard:
    """Memory-mapped Arrow IPC file."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        _check(reader.schema)
        self._path = path
        self._batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
        self._valid: dict[int, tuple[Float[np.ndarray, " value"], Int[np.ndarray, " begins"]]] = {}
        self.groups = _begins([batch.num_rows for batch in self._batches])

    def group(self, index: int) -> tuple[Float[np.ndarray, " value"], Int[np.ndarray, " begins"]]:
        """See `ShardReader`; the arrays are views of the file."""
        if index not in self._valid:
            with _named(self._path):
                self._batches[index].validate(full=True)  # damaged offsets would end the process
                self._valid[index] = _flat(self._batches[index].column(2))
        return self._valid[index]


class ParquetShard:
    """Parquet file, decoded by row group."""

    def __init__(self, path: Path) -> None:
        import pyarrow.parquet as pq

        self._path = path
        self._file = pq.ParquetFile(path)
        _check(self._file.schema_arrow)
        metadata = self._file.metadata
        self.groups = _begins([metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)])

    def group(self, index: int) -> tuple[Float[np.ndarray, " value"], Int[np.ndarray, " begins"]]:
        """See `ShardReader`."""
        with _named(self._path):
            return _flat(self._file.read_row_group(index, columns=["target"]).column(0).combine_chunks())


_NAME = re.compile(r"shard-\d{5,9}\.(arrow|parquet)")
READERS: dict[str, Callable[[Path], ShardReader]] = {".arrow": ArrowShard, ".parquet": ParquetShard}
"""Suffix → reader."""


def _schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema([("item_id", pa.string()), ("start", pa.timestamp("s")), ("target", pa.list_(pa.float32()))])


def _check(schema: pa.Schema) -> None:
    wanted = _schema()
    if schema.names != wanted.names or schema.types[-1] != wanted.types[-1]:
        raise ValueError(f"its columns are {', '.join(schema.names)}, not {', '.join(wanted.names)} of float32.")


def _begins(rows: list[int]) -> Int[np.ndarray, " begins"]:
    return np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)


def _flat(column: Any) -> tuple[Float[np.ndarray, " value"], Int[np.ndarray, " begins"]]:
    if hasattr(column, "chunks"):
        column = column.chunk(0)
    return column.values.to_numpy(zero_copy_only=True), column.offsets.to_numpy(zero_copy_only=True)


@dataclass(frozen=True)
class ShardFile:
    """Record of a finished shard.

    Attributes:
        name: file name.
        rows: number of series.
        shortest: length of the shortest series.
        bytes: file size.
        sha256: checksum.
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
    """Index of a folder of shards.

    Attributes:
        synthesis: settings that determine the series, together with the files' contents.
        sources: path of the user's files → checksum.
        left_out: skipped series of those files, by reason.
        files: the finished shards, in order.
    """

    synthesis: Synthesis
    sources: dict[str, str]
    left_out: dict[str, int]
    files: tuple[ShardFile, ...]

    SCHEMA: ClassVar = "rankscope/shards@1"

    @property
    def complete(self) -> bool:
        """True if all series have been written."""
        return sum(file.rows for file in self.files) == self.synthesis.n

    def write(self, folder: Path) -> None:
        """Write the index atomically."""
        codec.write(folder / INDEX, self)


def read_index(folder: Path) -> ShardIndex:
    """Read the index of a folder.

    Raises:
        DataError: no such folder, no index, or an index that is damaged or of another version.
    """
    file = folder / INDEX
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder of shards: write one with 'rankscope synth'.")
    if not file.exists():
        raise DataError(f"{folder} has no {INDEX}: it is not a folder that 'rankscope synth' has finished.")
    try:
        index = codec.read(ShardIndex, file)
    except DataError as error:
        raise DataError(f"{error} The index is damaged: write the shards anew.") from error
    for one in index.files:
        if not _NAME.fullmatch(one.name):
            raise DataError(
                f"{file} names {one.name[:40]!r}, which is not a shard. The index is damaged: write them anew."
            )
    return index
