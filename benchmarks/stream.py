"""Forecasts of a million short series in flat memory, killed at half and resumed.

Writes a Parquet file of random walks with a season (one row per series, a list in every row), forecasts it by
``rankscope forecast --out DIR`` in a process of its own, and reads that process' resident set from /proc every second.
A second run is killed (SIGKILL) when half of its parts are there, and resumed; the folders have to be equal byte for
byte. Every round does both, in alternating order; the rates are those of the processes, loading included, by the series
in the parts that each wrote.

    python benchmarks/stream.py --out benchmarks/results/stream.json
    python benchmarks/stream.py --series 2000 --chunk 128 --rounds 1
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from provenance import conditions, memory_mb, origin, save, spread

LENGTH = 64
HORIZON = 24
BLOCK = 10_000
USED = ("eval/rankscope_eval/streaming", "src/rankscope/forecast", "cli/rankscope_cli/verbs/forecast.py")


def write_series(path: Path, series: int, seed: int = 0) -> None:
    """A row group of 10,000 series at a time: an hour of day, a walk and noise."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    for first in range(0, series, BLOCK):
        rng = np.random.default_rng((seed, first))
        count = min(BLOCK, series - first)
        hours = np.arange(LENGTH) + rng.integers(24, size=(count, 1))
        values = 10 + 3 * np.sin(2 * np.pi * hours / 24) + 0.3 * rng.normal(size=(count, LENGTH)).cumsum(axis=1)
        ends = pa.array(np.arange(0, (count + 1) * LENGTH, LENGTH, dtype=np.int32))
        table = pa.table(
            {
                "item_id": [f"series-{number:07d}" for number in range(first, first + count)],
                "start": pa.array(["2024-01-01"] * count),
                "freq": pa.array(["h"] * count),
                "target": pa.ListArray.from_arrays(ends, pa.array(values.astype(np.float32).reshape(-1))),
            }
        )
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def run(command: list[str], out: Path, pace: float, kill_at: int | None = None) -> dict[str, Any]:
    """Run the forecast, sample its memory, and kill it when so many parts are there."""
    before = len(list(out.glob("part-*")))
    begun = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    samples = []
    while process.poll() is None:
        memory = memory_mb("VmRSS", process.pid)
        parts = len(list(out.glob("part-*"))) if out.exists() else 0
        if memory is not None:
            samples.append([round(time.monotonic() - begun, 2), round(memory, 1), parts])
        if kill_at is not None and parts >= kill_at:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(pace)
    seconds = time.monotonic() - begun
    text = process.communicate()[0]
    if kill_at is None and process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    report = json.loads(text.splitlines()[-1]) if text.strip() else None
    parts = len(list(out.glob("part-*"))) - before
    return {"seconds": round(seconds, 2), "parts": parts, "report": report, "samples": samples}


def flatness(samples: list[list[float]]) -> dict[str, float]:
    """Peak, and the median of the second and of the last tenth of the samples taken while parts were written."""
    memory = np.array([one[1] for one in samples if one[2] > samples[0][2]] or [one[1] for one in samples])
    tenth = max(1, len(memory) // 10)
    return {
        "peak_mb": float(max(one[1] for one in samples)),
        "second_tenth_mb": float(np.median(memory[tenth : 2 * tenth] if len(memory) > tenth else memory)),
        "last_tenth_mb": float(np.median(memory[-tenth:])),
    }


def same_bytes(first: Path, second: Path) -> bool:
    """True if two folders hold the same files."""
    names = [sorted(path.name for path in one.iterdir() if path.name != ".lock") for one in (first, second)]
    return names[0] == names[1] and all((first / n).read_bytes() == (second / n).read_bytes() for n in names[0])


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--series", type=int, default=1_000_000)
    parser.add_argument("--chunk", type=int, default=4096)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--model", default="bundled-bolt")
    parser.add_argument("--layout", default="rows", choices=("rows", "lists"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pace", type=float, default=1.0, help="seconds between two samples")
    parser.add_argument("--work", type=Path, help="folder for the series and the forecasts; a temporary one by default")
    parser.add_argument("--out", type=Path, help="JSON file of the result")
    options = parser.parse_args()
    work = options.work or Path(tempfile.mkdtemp(prefix="stream-"))
    work.mkdir(parents=True, exist_ok=True)
    data = work / f"series-{options.series}.parquet"
    if not data.exists():
        write_series(data, options.series)
    parts = -(-options.series // options.chunk)

    def command(out: Path, *more: str) -> list[str]:
        words = ["forecast", options.model, "--input", str(data), "--horizon", str(HORIZON), "--out", f"{out}/"]
        how = ["--chunk", str(options.chunk), "--batch-size", str(options.batch_size), "--layout", options.layout]
        return [sys.executable, "-m", "rankscope_cli", *words, *how, "--device", "cpu", "--json", *more]

    whole, broken = work / "whole", work / "broken"

    def undisturbed() -> dict[str, Any]:
        return {"whole": run(command(whole), whole, options.pace)}

    def interrupted() -> dict[str, Any]:
        killed = run(command(broken), broken, options.pace, kill_at=max(1, parts // 2))
        return {"killed": killed, "resumed": run(command(broken, "--resume"), broken, options.pace)}

    before, rounds, identical = conditions(), [], True
    for number in range(options.rounds):
        for folder in (whole, broken):
            shutil.rmtree(folder, ignore_errors=True)
        order = (undisturbed, interrupted) if number % 2 == 0 else (interrupted, undisturbed)
        rounds.append({name: one for work_ in order for name, one in work_().items()})
        identical = identical and same_bytes(whole, broken)
        print({name: one["seconds"] for name, one in rounds[-1].items()}, flush=True)
    names = ("whole", "killed", "resumed")
    wrote = {name: [min(options.series, options.chunk * one[name]["parts"]) for one in rounds] for name in names}
    took = {name: [one[name]["seconds"] for one in rounds] for name in names}
    detour = [killed + resumed for killed, resumed in zip(took["killed"], took["resumed"], strict=True)]
    result = {
        **origin("stream", *USED),
        "conditions": {"before": before, "after": conditions()},
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "series": options.series,
        "length": LENGTH,
        "horizon": HORIZON,
        "rounds": options.rounds,
        "input_mb": round(data.stat().st_size / 1e6, 1),
        "output_mb": round(sum(path.stat().st_size for path in whole.iterdir()) / 1e6, 1),
        "runs": rounds[0],
        "seconds": took,
        "series_per_second": {
            name: spread([count / seconds for count, seconds in zip(wrote[name], took[name], strict=True)])
            for name in names
        },
        "interrupted_over_whole": spread([two / one for two, one in zip(detour, took["whole"], strict=True)]),
        "memory": {name: flatness(one["samples"]) for name, one in rounds[0].items()},
        "identical": identical,
    }
    save(result, options.out)
    print(json.dumps({name: value for name, value in result.items() if name != "runs"}, indent=1))
    if options.work is None:
        shutil.rmtree(work)
    if not result["identical"]:
        raise SystemExit("the resumed run differs from the undisturbed one")


if __name__ == "__main__":
    main()
