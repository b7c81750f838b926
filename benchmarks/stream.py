"""Forecasts of a million short series in flat memory, killed at half and resumed.

Writes a Parquet file of random walks with a season (one row per series, a list in every row), forecasts it by
``rankscope forecast --out DIR`` in a process of its own, and reads that process' resident set from /proc every second.
A second run is killed (SIGKILL) when half of its parts are there, and resumed; the folders have to be equal byte for
byte.

    python benchmarks/stream.py --out benchmarks/results/stream-DATE.json --figure figures/out/stream
    python benchmarks/stream.py --series 2000 --chunk 128
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
from provenance import conditions, origin, save

LENGTH = 64
HORIZON = 24
BLOCK = 10_000
USED = ("eval/rankscope_eval", "src/rankscope/forecast", "cli/rankscope_cli/verbs/forecast.py")


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


def resident_mb(pid: int) -> float | None:
    """Resident set of a process, None once it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmRSS")), None)


def run(command: list[str], out: Path, pace: float, kill_at: int | None = None) -> dict[str, Any]:
    """Run the forecast, sample its memory, and kill it when so many parts are there."""
    begun = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    samples = []
    while process.poll() is None:
        memory = resident_mb(process.pid)
        parts = len(list(out.glob("part-*"))) if out.exists() else 0
        if memory is not None:
            samples.append([round(time.monotonic() - begun, 2), round(memory, 1), parts])
        if kill_at is not None and parts >= kill_at:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(pace)
    text = process.communicate()[0]
    if kill_at is None and process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    report = json.loads(text.splitlines()[-1]) if text.strip() else None
    return {"seconds": round(time.monotonic() - begun, 2), "report": report, "samples": samples}


def series_per_second(one: dict[str, Any], chunk: int) -> float:
    """Rate of a run by the parts that it added: of the killed and the resumed run too."""
    return round(chunk * (one["samples"][-1][2] - one["samples"][0][2]) / one["samples"][-1][0], 1)


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
    parser.add_argument("--pace", type=float, default=1.0, help="seconds between two samples")
    parser.add_argument("--work", type=Path, help="folder for the series and the forecasts; a temporary one by default")
    parser.add_argument("--out", type=Path, help="JSON file of the result")
    parser.add_argument("--figure", type=Path, metavar="STEM", help="figure of memory over time")
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
    for folder in (whole, broken):
        shutil.rmtree(folder, ignore_errors=True)
    result = {
        **origin("stream", *USED),
        "conditions": conditions(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "series": options.series,
        "length": LENGTH,
        "horizon": HORIZON,
        "input_mb": round(data.stat().st_size / 1e6, 1),
        "runs": {
            "whole": run(command(whole), whole, options.pace),
            "killed": run(command(broken), broken, options.pace, kill_at=max(1, parts // 2)),
            "resumed": run(command(broken, "--resume"), broken, options.pace),
        },
    }
    result["output_mb"] = round(sum(path.stat().st_size for path in whole.iterdir()) / 1e6, 1)
    result["series_per_second"] = {name: series_per_second(one, options.chunk) for name, one in result["runs"].items()}
    result["memory"] = {name: flatness(one["samples"]) for name, one in result["runs"].items()}
    result["identical"] = same_bytes(whole, broken)
    if options.figure is not None:
        from rankscope.plots import memory_over_time, save_figure

        save_figure(memory_over_time(result), options.figure)
    save(result, options.out)
    shown = {name: value for name, value in result.items() if name != "runs"}
    shown["runs"] = {name: {key: one[key] for key in ("seconds", "report")} for name, one in result["runs"].items()}
    print(json.dumps(shown, indent=1))
    if options.work is None:
        shutil.rmtree(work)
    if not result["identical"]:
        raise SystemExit("the resumed run differs from the undisturbed one")


if __name__ == "__main__":
    main()
