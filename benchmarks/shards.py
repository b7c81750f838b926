"""Shards beside plain files of well-known libraries: seconds to write series, and to draw batches of them at random.

Shards are Arrow and Parquet files with an index; compared are one Parquet file, datasets' ``save_to_disk``, and a
``.npy`` file per shard (series of equal length only, mapped into memory). Every store writes the same series and draws
the same number of batches of 32; the stores take turns. Seconds are of the processor; a ratio is over Arrow shards in
the same round. What draws is checked to be what was written.

    python benchmarks/shards.py --out benchmarks/results/shards.json
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from provenance import ROOT, conditions, origin, parser, save, spread

USED = ("src/rankscope/train/data",)
BATCH = 32
Draw = Callable[[np.random.Generator, int], list[np.ndarray]]
Store = Callable[[Path, np.ndarray, np.ndarray], Callable[[], Draw]]
"""Writes series of the given lengths (from the end) to a folder; what it gives opens them."""


def shards(suffix: str) -> Store:
    """Rankscope's shards."""
    from rankscope.io.checksum import checksum
    from rankscope.train.data.shard_files import ShardFile, ShardIndex, write_shard
    from rankscope.train.data.shards import open_shards
    from rankscope.train.data.synthesis import Synthesis

    def write(folder: Path, series: np.ndarray, lengths: np.ndarray) -> Callable[[], Draw]:
        folder.mkdir()
        spec = Synthesis("kernelsynth", len(series), series.shape[1], shard_size=len(series), format=suffix)
        file = folder / f"shard-00000.{suffix}"
        write_shard(file, spec.kind, 0, series, lengths)
        made = ShardFile(file.name, len(series), int(lengths.min()), file.stat().st_size, checksum(file))
        ShardIndex(spec, {}, {}, (made,)).write(folder)
        return lambda: open_shards(folder).draw

    return write


def parquet(folder: Path, series: np.ndarray, lengths: np.ndarray) -> Callable[[], Draw]:
    """One Parquet file with pyarrow's own settings, read whole when it is opened."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    pq.write_table(pa.table({"target": pa.array(ragged(series, lengths))}), folder / "all.parquet")

    def opened() -> Draw:
        column = pq.read_table(folder / "all.parquet")["target"].combine_chunks()
        values, begins = column.values.to_numpy(), column.offsets.to_numpy()
        return lambda rng, n: [values[begins[i] : begins[i + 1]] for i in rng.integers(0, len(begins) - 1, n)]

    return opened


def hugging_face(folder: Path, series: np.ndarray, lengths: np.ndarray) -> Callable[[], Draw]:
    """🤗 datasets, mapped into memory."""
    import datasets

    datasets.disable_progress_bars()
    features = datasets.Features({"target": datasets.Sequence(datasets.Value("float32"))})
    datasets.Dataset.from_dict({"target": ragged(series, lengths)}, features).save_to_disk(str(folder))

    def opened() -> Draw:
        found = datasets.load_from_disk(str(folder)).with_format("numpy")
        return lambda rng, n: list(found[rng.integers(0, len(found), n)]["target"])

    return opened


def npy(folder: Path, series: np.ndarray, lengths: np.ndarray) -> Callable[[], Draw]:
    """A dense array, mapped into memory: no lengths."""
    folder.mkdir()
    np.save(folder / "all.npy", series)

    def opened() -> Draw:
        found = np.load(folder / "all.npy", mmap_mode="r")
        return lambda rng, n: list(found[rng.integers(0, len(found), n)])

    return opened


def ragged(series: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    """Series of their lengths."""
    return [one[len(one) - length :] for one, length in zip(series, lengths, strict=True)]


def measured(store: Store, place: Path, series: np.ndarray, lengths: np.ndarray, batches: int) -> dict[str, float]:
    """Processor seconds of one round, and the bytes on disk."""
    begun = time.process_time()
    opens = store(place, series, lengths)
    written = time.process_time()
    draw = opens()
    opened = time.process_time()
    rng, total = np.random.default_rng(1), 0.0
    sizes = {one[-8:].tobytes() for one in series}
    for _ in range(batches):
        drawn = draw(rng, BATCH)
        total += sum(float(one.sum()) for one in drawn)  # a mapped value is read here
    ended = time.process_time()
    assert {np.asarray(one, np.float32)[-8:].tobytes() for one in drawn} <= sizes
    size = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
    return {"write": written - begun, "open": opened - written, "draw": ended - opened, "bytes": size}


def main() -> None:
    """Measure all stores in turns, print a line each, write the JSON file."""
    options = parser(__doc__, n=8192, length=1024, batches=1000, rounds=5).parse_args()
    stores = {
        "arrow shards": shards("arrow"),
        "parquet shards": shards("parquet"),
        "parquet": parquet,
        "datasets": hugging_face,
        "npy": npy,
    }
    rng, before = np.random.default_rng(0), conditions()
    series = rng.standard_normal((options.n, options.length)).cumsum(1).astype(np.float32)
    lengths = rng.integers(options.length // 8, options.length + 1, options.n)
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in stores}
    for turn in range(options.rounds + 1):
        for name, store in stores.items():
            with tempfile.TemporaryDirectory() as place:
                found = measured(store, Path(place) / "store", series, lengths, options.batches)
            if turn:  # the first imports libraries
                rounds[name].append(found)
    rows: list[dict[str, Any]] = []
    for name, turns in rounds.items():
        row: dict[str, Any] = {"store": name, "bytes": turns[0]["bytes"]}
        for what in ("write", "open", "draw"):
            row[f"{what}_seconds"] = spread([one[what] for one in turns])
            ours = rounds["arrow shards"]
            row[f"{what}_ratio"] = spread([a[what] / b[what] for a, b in zip(turns, ours, strict=True)])
        rows.append(row)
        print(name, *(f"{w} {row[f'{w}_seconds']['median']:.3f} s" for w in ("write", "open", "draw")), row["bytes"])
    folder = ROOT / "src/rankscope/train/data"
    lines = {
        name: len((folder / name).read_text().splitlines())
        for name in ("shard_files.py", "shards.py", "shard_writer.py")
    }
    settings = {"series": options.n, "length": options.length, "batches": options.batches, "rounds": options.rounds}
    result = {**origin("shards", *USED), **conditions(), "before": before, "settings": settings, "lines": lines}
    save({**result, "rows": rows}, options.out)


if __name__ == "__main__":
    main()
