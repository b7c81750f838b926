"""Shared helpers of the benchmarks: options, cases in separate processes, and provenance of results."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import gc
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from digests import digest

ROOT = Path(__file__).resolve().parents[1]
UNITS = frozenset({"avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8"})


def parser(text: str, quick: str = "", **defaults: int | None) -> argparse.ArgumentParser:
    """Options of a benchmark: ``--out``, ``--quick`` where its help is given, and those that are whole numbers."""
    made = argparse.ArgumentParser(description=text.splitlines()[0])
    made.add_argument("--out", type=Path, help="JSON file to write")
    if quick:
        made.add_argument("--quick", action="store_true", help=quick)
    for name, value in defaults.items():
        made.add_argument(f"--{name}", type=int, default=value)
    return made


def suite_options(words: argparse.ArgumentParser) -> None:
    """Add ``--suite`` and ``--data``."""
    words.add_argument("--suite", default="embedded")
    words.add_argument("--data", help="folder of the suite's files")


def origin(benchmark: str, *used: str) -> dict[str, Any]:
    """First fields of a result: which benchmark, when, of which commit, how it was called, on which machine.

    Args:
        benchmark: name of the script.
        used: files and folders of the repository that the numbers depend on, besides the script: code, and the bundled
            models (`digests.bundled`). Name no more than that: the result is stale as soon as one of them changes.
    """
    script = f"benchmarks/{benchmark}.py"
    return {
        "benchmark": benchmark,
        **whence(command_line(script), script, "benchmarks/provenance.py", *used),
        "used": {path: digest(ROOT / path) for path in (script, *used)},
    }


def earlier(file: Path | None, facts: dict[str, Any], *same: str) -> dict[str, Any]:
    """The result in a file if it was measured with the same code and the same facts of these names, else nothing."""
    if file is None or not file.is_file():
        return {}
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found if all(found.get(name) == facts[name] for name in ("used", *same)) else {}


def work_folder(folder: Path, facts: dict[str, Any]) -> Path:
    """A folder in which work is left off: emptied first if it was begun with other code or models."""
    mark = folder.with_name(f"{folder.name}.used.json")
    used = json.dumps(facts["used"], indent=2)
    if not mark.is_file() or mark.read_text(encoding="utf-8") != used:
        shutil.rmtree(folder, ignore_errors=True)
        mark.write_text(used, encoding="utf-8")
    return folder


def whence(command: str, *used: str) -> dict[str, Any]:
    """Date, commit, command and machine; the commit is marked where the files used differ from it."""
    today = datetime.date.today().isoformat()
    return {"date": today, "commit": commit(*used), "command": command, "machine": machine()}


def command_line(script: str) -> str:
    """The command of this process, files by their place in the repository, DIR for the folder that ``--data`` names."""
    words = [word.replace(f"{ROOT}/", "") for word in sys.argv[1:]]
    data = words[words.index("--data") + 1] if "--data" in words[:-1] else None
    return " ".join(["python", script, *(word if data is None else word.replace(data, "DIR") for word in words)])


def commit(*used: str) -> str:
    """Commit the numbers belong to, marked where the files used differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()

    return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--", *used) else "")


def machine() -> dict[str, Any]:
    """Machine that the numbers were measured on.

    A virtual processor's name may be no more than its brand: family and model tell the generation, and ``units`` the
    vector and matrix units that decide how fast products are.
    """
    facts: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines():
            name, _, value = line.partition(":")
            facts[name.strip()] = value.strip()
    return {
        "cpu": facts.get("model name", ""),
        "family": facts.get("cpu family", ""),
        "model": facts.get("model", ""),
        "units": sorted(set(facts.get("flags", "").split()) & UNITS),
        "cores": len(os.sched_getaffinity(0)),
        "threads": os.environ.get("OMP_NUM_THREADS", "all"),
        "system": platform.platform(),
        "torch": version("torch"),
    }


def conditions() -> dict[str, Any]:
    """Other work of the machine: load over 1, 5 and 15 minutes, and the niceness of this process."""
    return {"load_average": [round(load, 2) for load in os.getloadavg()], "nice": os.nice(0)}


def memory_mb(key: str, process: int | str = "self") -> float | None:
    """A line of Linux' status of a process, in MB: ``VmRSS``, ``VmHWM``, ``RssAnon``; None where that is not told."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024 / 1e6
    return None


def peak_mb() -> float:
    """Peak resident memory of this process so far, in MB (10⁶ bytes).

    On Linux from VmHWM: ``ru_maxrss`` of a fresh process starts at the peak of the process that started it.
    """
    known = memory_mb("VmHWM")
    if known is not None:
        return known
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e6


def reset_peak_mb() -> float:
    """Reset the peak of `peak_mb`, where the system can; resident memory now, in MB."""
    gc.collect()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    return peak_mb()


def child(script: str, case: str, *words: object) -> dict[str, Any]:
    """Run one case of a script in a fresh process: the JSON object on the last line that it prints."""
    command = [sys.executable, script, "--case", case, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{case} failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def fastest(function: Callable[[], object], times: int = 10) -> float:
    """Shortest of several runs, in seconds."""
    function()
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        function()
        taken.append(time.perf_counter() - start)
    return min(taken)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, minimum and maximum."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def save(result: dict[str, Any], file: Path | None) -> None:
    """Write a result as JSON, where a file is named."""
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
