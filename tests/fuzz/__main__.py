"""Fuzz for so many seconds: `make fuzz SECONDS=600 SEED=1`, or

    python -m tests.fuzz --seconds 600 --seed 1 --only csv,arrow.

Inputs are functions of the seed and a number, in processes of their own, which are stopped where an input takes longer
than ten seconds. What came out wrong is kept below `--keep`, one folder per kind of exception; the counts of `--out`
are continued if they are there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import queue
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests import counts
from tests.fuzz.child import MEMORY, changed, seeds, write
from tests.fuzz.kinds import ITSELF, KINDS

from rankscope.errors import printable

SECONDS = 10.0
"""Longest time of one input."""
START = 300.0
SPACE = 1 << 34
"""Address space of a process: what asks for more gets a MemoryError, or is killed."""


@dataclass
class Tally:
    """Inputs of a kind that were tried, those that came out wrong by what came out, and the largest resident memory of
    a process that tried them, in bytes, at least this process's own.
    """

    tried: int = 0
    wrong: Counter[str] = field(default_factory=Counter)
    peak: int = 0


def prepare(name: str, folder: Path) -> None:
    """Make the valid inputs of a kind."""
    (folder / name).mkdir(parents=True)
    KINDS[name].seeds(folder / name)


def limits() -> None:
    """Of a child."""
    resource.setrlimit(resource.RLIMIT_AS, (SPACE, SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Run:
    """One child, and what it says."""

    def __init__(self, name: str, folder: Path, seed: int, first: int, last: int) -> None:
        words = [sys.executable, "-m", "tests.fuzz.child", name, str(folder), str(seed), str(first), str(last)]
        settings = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONFAULTHANDLER": ""}
        settings["HF_DATASETS_CACHE"] = str(folder / ".cache")
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=settings, preexec_fn=limits
        )
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def end(self, tally: Tally, kill: bool = True) -> int:
        """Kill it, or let it end; its exit code."""
        if kill:
            self.process.kill()
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        tally.peak = max(tally.peak, usage.ru_maxrss * 1024)
        return self.process.returncode


def fuzz(name: str, folder: Path, options: argparse.Namespace, deadline: float, tally: Tally) -> None:
    """Try inputs of a kind until the deadline."""
    seed, keep, last = options.seed, options.keep, options.first + options.most
    at = options.first + tally.tried
    while at < last and time.monotonic() < deadline:
        run = Run(name, folder, seed, at, last)
        started, patience = False, START
        while True:
            try:
                line = run.lines.get(timeout=patience)
            except queue.Empty:
                run.end(tally)
                if not started:
                    raise SystemExit(f"{name}: a valid input takes longer than {START:.0f} s.") from None
                note(name, folder, seed, at, f"hang: longer than {options.patience:.0f} s", keep, tally)
                at += 1
                break
            if line is None:
                code = run.end(tally, kill=False)
                if not started:
                    raise SystemExit(f"{name}: a valid input ends with exit code {code}.")
                if code != MEMORY:
                    reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
                    note(name, folder, seed, at, f"crash: {reason}", keep, tally)
                at += 1
                break
            if line == "ready":
                started, patience = True, options.patience
            elif line == "done":
                run.end(tally)
                return
            elif line.startswith("{"):
                found = json.loads(line)
                note(name, folder, seed, found["number"], found["wrong"], keep, tally)
            else:
                at = int(line)
                tally.tried += 1
                if time.monotonic() > deadline:
                    run.end(tally)
                    return


def note(name: str, folder: Path, seed: int, number: int, wrong: str, keep: Path, tally: Tally) -> None:
    """Count what came out wrong, and keep the first input of its kind."""
    short = printable(wrong.strip().splitlines()[-1])[:160]
    where = re.findall(r'File "[^"]*?/((?:rankscope|rankscope_eval|rankscope_cli)/[^"]+)", line (\d+)', wrong)
    key = re.sub(r"0x[0-9a-f]+|\d+", "N", short) + (f" at {where[-1][0]}:{where[-1][1]}" if where else "")
    if not tally.wrong[key]:
        print(f"{name} {seed}/{number}: {short}" + (f" ({where[-1][0]}:{where[-1][1]})" if where else ""), flush=True)
        place = keep / name / hashlib.sha256(key.encode()).hexdigest()[:10]
        write(changed(KINDS[name], seeds(name, folder), seed, number), place)
        (place / "wrong.txt").write_text(f"seed {seed}, number {number}\n{wrong}\n", "utf-8", "backslashreplace")
    tally.wrong[key] += 1


def main() -> int:
    """Fuzz all kinds in turn, for equal times; 1 if anything came out wrong."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--seconds", type=float, default=600)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--first", type=int, default=0, help="number of the first input")
    words.add_argument("--most", type=int, default=10**9, help="inputs of a kind")
    words.add_argument("--only", default=",".join(one for one in KINDS if one != ITSELF), help="kinds, with commas")
    words.add_argument("--keep", type=Path, default=Path("fuzz-found"), help="folder for what came out wrong")
    words.add_argument("--patience", type=float, default=SECONDS, help="seconds that an input may take")
    words.add_argument("--out", type=Path, help="JSON file for the counts, continued if it is there")
    options = words.parse_args()
    names = options.only.split(",")
    settings = {"seed": options.seed, "first": options.first}
    earlier = counts.load(options.out, settings)
    tallies = {name: Tally(one["tried"], Counter(one["wrong"]), one["peak"]) for name, one in earlier.items()}
    with tempfile.TemporaryDirectory() as made:
        for at, name in enumerate(names):
            prepare(name, Path(made))
            begun = time.monotonic()
            left = options.seconds / len(names)
            tally = tallies.setdefault(name, Tally())
            before = tally.tried
            fuzz(name, Path(made), options, begun + left, tally)
            tried, took = tally.tried - before, time.monotonic() - begun
            wrong = sum(tally.wrong.values())
            print(f"[{at + 1}/{len(names)}] {name}: {tried:,} inputs in {took:.0f} s, {wrong} wrong", flush=True)
            if options.out is not None:
                counts.save(options.out, "tests.fuzz", settings, {name: vars(one) for name, one in tallies.items()})
    return int(any(tallies[name].wrong for name in names))


if __name__ == "__main__":
    sys.exit(main())
