"""Loads that no test can take: ten million series, a hundred thousand files, one series of 10⁸ values, killed workers.

- ``series``: short series by the seasonal naive, in parts;
- ``model``: the first 100,000 of them by `bundled-bolt`, and how long all of them would take;
- ``files``: a folder with a CSV file for every series;
- ``long``: one series, in the long layout, a value in every row;
- ``workers``: forecasts on a Ray cluster of two workers, one of which is killed every few seconds; the folder has to be
  what one process writes, byte for byte.

Each is the command line in a process of its own, whose resident set is read from /proc.

    python benchmarks/load.py --only series,model,files --out benchmarks/results/load.json    # 20 minutes
    python benchmarks/load.py --only long,workers --out benchmarks/results/load-beyond.json   # 15 minutes, 15 GB
    python benchmarks/load.py --quick
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import stream
from provenance import conditions, origin, parser, save

USED = ("eval/rankscope_eval/streaming", "src/rankscope/series", "src/rankscope/engine", "benchmarks/stream.py")
HORIZON = 12
SAMPLE = 100_000
BLOCK = 1_000_000


def command(model: str, data: Path, out: Path, *more: str) -> list[str]:
    """Words of a forecast."""
    words = [model, "--input", str(data), "--horizon", str(HORIZON), "--out", f"{out}/", "--json", *more]
    return [sys.executable, "-m", "rankscope_cli", "forecast", *words]


def measured(model: str, data: Path, out: Path, *more: str) -> dict[str, Any]:
    """Forecast a file: seconds, memory over time, and bytes read and written."""
    shutil.rmtree(out, ignore_errors=True)
    done = stream.run(command(model, data, out, *more), out, 1.0)
    read = [data] if data.is_file() else list(data.iterdir())
    return {
        "seconds": done["seconds"],
        "parts": done["parts"],
        "input_mb": round(sum(one.stat().st_size for one in read) / 1e6, 1),
        "output_mb": round(sum(one.stat().st_size for one in out.iterdir()) / 1e6, 1),
        "memory": stream.flatness(done["samples"]),
    }


def many_series(options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Short series by the seasonal naive."""
    data = work / "series.parquet"
    stream.LENGTH = 24
    stream.write_series(data, options.series)
    found = measured("seasonal-naive", data, work / "out", "--chunk", "8192", "--layout", "lists")
    data.unlink()
    return {"series": options.series, **found}


def by_a_model(options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """A sample by `bundled-bolt`; seconds of all by that rate."""
    data, count = work / "sample.parquet", min(SAMPLE, options.series)
    stream.LENGTH = 24
    stream.write_series(data, count)
    how = ("--chunk", "8192", "--batch-size", "256", "--layout", "lists", "--device", "cpu")
    found = measured("bundled-bolt", data, work / "out", *how)
    return {"series": count, **found, "seconds_of_all": found["seconds"] * options.series / count}


def many_files(options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """A CSV file of 24 days for every series."""
    data = work / "files"
    data.mkdir()
    for number in range(options.files):
        rows = (f"s{number:06d},2024-01-{day + 1:02d},{(number + day) % 7}\n" for day in range(24))
        (data / f"{number:06d}.csv").write_text("item_id,timestamp,target\n" + "".join(rows), encoding="utf-8")
    return {"files": options.files, **measured("seasonal-naive", data, work / "out")}


def long_series(options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """A value every second."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    data, writer = work / "long.parquet", None
    for first in range(0, options.values, BLOCK):
        at = np.arange(first, min(options.values, first + BLOCK))
        columns = {
            "item_id": pa.DictionaryArray.from_arrays(np.zeros(len(at), dtype=np.int32), ["a"]).cast(pa.string()),
            "timestamp": np.datetime64("1970-01-01T00:00:00", "s") + at,
            "target": (10 + 3 * np.sin(2 * np.pi * at / 3600)).astype(np.float32),
        }
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(data, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()
    found = measured("bundled-bolt", data, work / "out", "--device", "cpu")
    data.unlink()
    return {"values": options.values, **found}


def killed_workers(options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Kill one of two Ray workers every few seconds, forecast after forecast, until the minutes are over."""
    data, count = work / "some.parquet", 20_000
    stream.write_series(data, count)
    how = ("--chunk", "256", "--device", "cpu")
    stream.run(command("bundled-bolt", data, work / "alone", *how), work / "alone", 1.0)
    draw, begun, kills, forecasts, failed, same = random.Random(0), time.monotonic(), 0, 0, 0, True
    while time.monotonic() - begun < 60 * options.minutes:
        out = work / f"ray-{forecasts}"
        done = False
        resume: tuple[str, ...] = ()
        while not done:
            words = command("bundled-bolt", data, out, *how, "--engine", "ray", *resume)
            process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while process.poll() is None:
                time.sleep(draw.uniform(2, 6))
                alive = workers(process.pid)
                if alive and any(out.glob("part-*")):
                    os.kill(draw.choice(alive), signal.SIGKILL)
                    kills += 1
            done, resume = process.returncode == 0, ("--resume",)
            failed += not done
        same = same and stream.same_bytes(work / "alone", out)
        forecasts += 1
        shutil.rmtree(out)
        print(f"workers: {forecasts} forecasts, {kills} kills", flush=True)
    return {
        "series": count,
        "minutes": (time.monotonic() - begun) / 60,
        "forecasts": forecasts,
        "kills": kills,
        "resumed": failed,
        "identical": same,
    }


def workers(root: int) -> list[int]:
    """Processes below ``root`` in which Ray runs a task."""
    below, parents = {root}, {}
    names: dict[int, str] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(place.name)] = int((place / "stat").read_text().rsplit(")", 1)[1].split()[1])
            names[int(place.name)] = (place / "cmdline").read_text().replace("\0", " ")
        except (OSError, IndexError):
            continue  # it has ended
    for _ in range(6):
        below |= {one for one, parent in parents.items() if parent in below}
    return sorted(one for one in below if names.get(one, "").startswith("ray::"))


CASES: dict[str, Callable[[argparse.Namespace, Path], dict[str, Any]]] = {
    "series": many_series,
    "model": by_a_model,
    "files": many_files,
    "long": long_series,
    "workers": killed_workers,
}


def main() -> None:
    """Run the cases one after the other, and save after each."""
    words = parser(__doc__, "a hundredth of all", series=10_000_000, files=100_000, values=10**8, minutes=10)
    words.add_argument("--only", default=",".join(CASES), help="cases, with commas")
    options = words.parse_args()
    if options.quick:
        options.series, options.files, options.values, options.minutes = 100_000, 1_000, 10**6, 1
    result: dict[str, Any] = {**origin("load", *USED), "conditions": {"before": conditions()}}
    for name in options.only.split(","):
        with tempfile.TemporaryDirectory() as place:
            result[name] = CASES[name](options, Path(place))
        print(name, result[name], flush=True)
        result["conditions"]["after"] = conditions()
        save(result, options.out)


if __name__ == "__main__":
    main()
