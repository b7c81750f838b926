"""Random access to folders of shards."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from rankscope.engine import Progress, silent
from rankscope.errors import DataError
from rankscope.io.checksum import checksum
from rankscope.train.data.shard_files import (
    ShardFile,
    ShardIndex,
    ShardReader,
    open_shard,
    read_index,
)

TOGETHER = 32
"""Series per batch drawn from the same Parquet row group, which is decoded as a whole."""


@dataclass
class Shards:
    """Valid shards of a folder. Open files are not pickled; each process opens its own.

    Attributes:
        folder: path of the folder.
        index: index of the folder.
        files: valid files.
        damaged: one message per skipped file.
    """

    folder: Path
    index: ShardIndex
    files: tuple[ShardFile, ...]
    damaged: tuple[str, ...]
    _open: dict[int, ShardReader] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._begins: Int[np.ndarray, " begins"] = np.concatenate([[0], np.cumsum([f.rows for f in self.files])])

    def __len__(self) -> int:
        return int(self._begins[-1])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}

    @property
    def shortest(self) -> int:
        """Length of the shortest series."""
        return min(file.shortest for file in self.files)

    def series(self, number: int) -> Float[np.ndarray, " time"]:
        """Read a series in float32, with NaN for missing values.

        Raises:
            DataError: the file was damaged after opening.
        """
        shard = int(np.searchsorted(self._begins, number, side="right")) - 1
        reader = self._reader(shard)
        row = number - int(self._begins[shard])
        group = int(np.searchsorted(reader.groups, row, side="right")) - 1
        return self._cut(shard, reader.group(group), row - int(reader.groups[group]))

    def draw(self, rng: np.random.Generator, n: int) -> list[Float[np.ndarray, " _"]]:
        """Draw ``n`` series uniformly with replacement.

        Series of Arrow files are drawn independently; those of Parquet files share row groups, up to `TOGETHER` per
        group. Series within a group are independent, so the distribution of batches is unchanged.

        Raises:
            DataError: a file was damaged after opening.
        """
        if self.index.synthesis.format == "arrow":
            return [self.series(int(number)) for number in rng.integers(0, len(self), n)]
        found = []
        for begin in range(0, n, TOGETHER):
            number = int(rng.integers(0, len(self)))  # groups are drawn in proportion to their size
            shard = int(np.searchsorted(self._begins, number, side="right")) - 1
            reader = self._reader(shard)
            group = int(np.searchsorted(reader.groups, number - self._begins[shard], side="right")) - 1
            whole = reader.group(group)
            rows = rng.integers(0, reader.groups[group + 1] - reader.groups[group], min(TOGETHER, n - begin))
            found += [self._cut(shard, whole, int(row)) for row in rows]
        return found

    def _reader(self, shard: int) -> ShardReader:
        if shard not in self._open:
            self._open[shard] = open_shard(self.folder / self.files[shard].name)
        return self._open[shard]

    def _cut(
        self, shard: int, group: tuple[Float[np.ndarray, " value"], Int[np.ndarray, " begins"]], row: int
    ) -> Float[np.ndarray, " time"]:
        values, starts = group
        begin, end = (int(starts[row]), int(starts[row + 1])) if row + 1 < len(starts) else (0, 0)
        if not 0 <= begin < end <= len(values) or end - begin < self.files[shard].shortest:
            raise DataError(
                f"{self.folder / self.files[shard].name} is damaged: a series in it has no proper length. Check the "
                "folder with 'rankscope synth --verify --out FOLDER'."
            )
        return values[begin:end]


def open_shards(
    folder: Path | str, *, skip_damaged: bool = False, verify: bool = False, progress: Progress = silent
) -> Shards:
    """Open the shards of a folder.

    Checks the presence, size and footer of every file. This does not detect flipped bits inside a file; ``verify``
    compares checksums, which reads all files.

    Args:
        folder: folder written by ``rankscope synth``.
        skip_damaged: skip damaged files and list them in `Shards.damaged`, instead of raising.
        verify: compare the checksum of every file.
        progress: progress callback.

    Raises:
        DataError: no such folder, no index, an unfinished folder, a damaged file, or no valid file.
    """
    path = Path(folder)
    index = read_index(path)
    if not index.complete:
        raise DataError(f"{path} is not finished: go on with 'rankscope synth --resume'.")
    good: list[ShardFile] = []
    damaged: list[str] = []
    for number, file in enumerate(index.files):
        problem = _problem(path, file, verify)
        if problem is None:
            good.append(file)
        elif not skip_damaged:
            raise DataError(f"{problem} Write it anew, or leave it out with --skip-damaged.")
        else:
            damaged.append(problem)
        progress(number + 1, len(index.files), "checking shards")
    if not good:
        what = f"{path} has no usable shard ({len(damaged)} damaged)"
        raise DataError(f"{what}: {damaged[0]} Write them anew with --force.")
    return Shards(path, index, tuple(good), tuple(damaged))


def _problem(folder: Path, file: ShardFile, verify: bool) -> str | None:
    path = folder / file.name
    if not path.is_file():
        return f"{path} is missing."
    size = path.stat().st_size
    if size != file.bytes:
        return f"{path} is damaged: it has {size} bytes, not {file.bytes}."
    try:
        rows = int(open_shard(path).groups[-1])
    except DataError as error:
        return str(error) if str(error).endswith(".") else f"{error}."
    if rows != file.rows:
        return f"{path} is damaged: it has {rows} series, not {file.rows}."
    if verify and checksum(path) != file.sha256:
        return f"{path} is damaged: its checksum is not the one in the index."
    return None
