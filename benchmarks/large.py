"""Time and peak memory of the verbs on models in published shapes, with random weights: nothing is said of accuracy.

Chronos-T5 large (709 M parameters), Chronos-Bolt base (205 M), Chronos-2 (119 M) and TimesFM 2.5 (231 M). Every verb
runs once, as a user would call it, in a process of its own; times include its imports. Models are saved one by one: the
same command goes on where it was stopped.

    python benchmarks/large.py --out benchmarks/results/large.json
    python benchmarks/large.py --quick     # Chronos-2 alone, 16 series of calibration
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from provenance import ROOT, conditions, earlier, memory_mb, origin, parser, save
from shapes import write_shape

PARTS = ("compress", "numerics", "lowrank", "measure", "forecast", "checkpoints", "engine/memory.py")
USED = tuple(f"src/rankscope/{part}" for part in PARTS)
CHRONOS = {
    "chronos-2": ("chronos-2", "base"),
    "chronos-bolt-base": ("chronos-bolt", "base"),
    "chronos-t5-large": ("chronos-t5", "large"),
}
TIMESFM = "timesfm-2.5"
EVERY = 0.05
"""Seconds between two looks at a process's memory."""
MODELS = (TIMESFM, *CHRONOS)
SERIES = ROOT / "docs" / "data" / "series.csv"
LOOK = {"spectrum": "spectrum {model} --eps 0.1 --json", "flow": "flow {model} --json"}
REST = {
    "calibrate": "calibrate {model} --calibration mixture:{series} --out {place}/moments.safetensors",
    "compress": "compress {model} --ratio 0.5 --method joint --calibration {place}/moments.safetensors "
    "--out {place}/small",
    "forecast": f"forecast {{model}} --input {SERIES} --horizon 24",
    "forecast, compressed": f"forecast {{place}}/small --input {SERIES} --horizon 24",
}


def write(name: str, folder: Path) -> None:
    """Write a checkpoint of random weights in a published shape."""
    if name in CHRONOS:
        write_shape(folder, *CHRONOS[name])
        return
    import torch
    from transformers import TimesFm2_5Config, TimesFm2_5ModelForPrediction

    torch.manual_seed(0)
    TimesFm2_5ModelForPrediction(TimesFm2_5Config()).save_pretrained(folder)


def run(words: str) -> dict[str, Any]:
    """Run a verb: seconds, peak resident memory in MB, that of it which no file backs, exit code."""
    begun, peaks = time.perf_counter(), {"VmHWM": 0.0, "RssAnon": 0.0}
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "rankscope_cli", *words.split()], stdout=subprocess.DEVNULL, stderr=said
        )
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            for key, most in peaks.items():
                peaks[key] = max(most, memory_mb(key, process.pid) or 0.0)
            time.sleep(EVERY)
        _, status, usage = ended
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        lines = said.read().decode("utf-8", "replace").splitlines()
    found = {
        "seconds": time.perf_counter() - begun,
        "processor_seconds": usage.ru_utime + usage.ru_stime,
        "peak_mb": peaks["VmHWM"],
        "peak_anonymous_mb": peaks["RssAnon"],
        "exit_code": process.returncode,
    }
    return found if not process.returncode else {**found, "said": lines[-1:]}


def main() -> None:
    """Run all verbs on all models, and save."""
    words = parser(__doc__, "Chronos-2 alone, 16 series of calibration", series=256)
    words.add_argument("--models", default=",".join(MODELS), help="with commas")
    words.add_argument("--write", metavar="MODEL", help=argparse.SUPPRESS)
    words.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = words.parse_args()
    if options.write:
        write(options.write, options.folder)
        return
    if options.quick:
        options.models, options.series = "chronos-2", 16
    facts = {**origin("large", *USED), "series": options.series}
    models = dict(earlier(options.out, facts, "series", "machine").get("models", {}))
    result = {**facts, "conditions": {"before": conditions()}, "models": models}
    for name in (one for one in options.models.split(",") if one not in models):
        with tempfile.TemporaryDirectory() as place:
            model = Path(place) / name
            command = [sys.executable, __file__, "--write", name, "--folder", str(model)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            rows = models[name] = {}
            for verb, line in {**LOOK, **(REST if name in CHRONOS else {})}.items():
                rows[verb] = run(line.format(model=model, place=place, series=options.series))
                print(
                    name, verb, {key: round(value, 1) for key, value in rows[verb].items() if key != "said"}, flush=True
                )
        result["conditions"]["after"] = conditions()
        save(result, options.out)


if __name__ == "__main__":
    main()
