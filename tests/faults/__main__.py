"""Let every write, fsync and rename of a verb fail in turn, and look at what is left: `make test-faults`, or

    python -m tests.faults --only compress,eval --sample 20
    python -m tests.faults --only pretrain,sweep,table2 --kills 50

Where one fails by lack of space, an I/O error or after half of the bytes, a verb ends with exit code 2 and one line
that names the place (or succeeds, where nothing hung on it); what it was to replace is whole, and nothing else is left
but what the verb goes on from. Where the process ends at once, the old output is whole, too. In all cases the same
command, with ``--resume`` where the verb has that, then makes what an undisturbed run makes, and leaves no other file.
With ``--kills`` a verb is killed at random moments instead, and goes on, again and again.

The process is its own server: it starts again with the shim loaded, imports the command line, and forks for every run.
What the first run of a verb imports beside, it imports, too, before the others.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import ctypes
import fnmatch
import hashlib
import importlib
import multiprocessing
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from tests import counts
from tests.faults.verbs import VERBS, Verb, inputs, named

KINDS = {"no space": 1, "I/O error": 2, "short write": 3, "death": 4}
DIED = 99
"""Exit code of the shim's deaths."""
STATE = struct.Struct("qqiiii")
PATIENCE = 120
"""Seconds of one run."""
SECONDS = re.compile(rb'"\w*seconds\w*": [\d.e+-]+')
"""Times in JSON, which equal runs write differently."""
TIMED = "inference_time_s"
"""Column of times in CSV."""
SHIM = Path(__file__).with_name("shim.c")
PRELOAD = "LD_PRELOAD"
Files = Mapping[str, str]
"""Digest of every file below a folder, by path; folders that are empty are there too."""


@dataclass
class Done:
    """How a run ended.

    Attributes:
        code: exit code, or minus the signal.
        said: standard error.
        points: calls that could have failed.
        fired: whether the fault was met.
        connections: to other machines, and look-ups of their names.
        modules: what it imported.
    """

    code: int
    said: str
    points: int
    fired: bool
    connections: int
    modules: tuple[str, ...] = ()


@dataclass
class Row:
    """What was found of a verb."""

    points: int = 0
    connections: int = 0
    runs: int = 0
    losses: list[str] = field(default_factory=list)
    litter: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


def run(
    words: str, folder: Path, at: int = 0, kind: int = 0, module: str = Verb.main, patience: float = PATIENCE
) -> Done:
    """Run a command in a folder, in a fork of this process; its call number ``at`` meets a fault.

    After ``patience`` seconds it is killed, with the processes that it started.
    """
    with tempfile.TemporaryDirectory() as place:
        state, said, imported = (Path(place) / name for name in ("state", "said", "imported"))
        state.write_bytes(STATE.pack(0, at, kind, 0, 0, 0))
        said.touch()  # it may be killed before it can say anything
        child = os.fork()
        if not child:
            _become(words, folder, state, said, imported, module)
        deadline = time.monotonic() + patience
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                break
            if time.monotonic() > deadline:
                with contextlib.suppress(ProcessLookupError):  # it may not have a group of its own yet
                    os.killpg(child, signal.SIGKILL)
                os.kill(child, signal.SIGKILL)
                _, status = os.waitpid(child, 0)
                break
            time.sleep(0.002)
        points, _, _, fired, _, connections = STATE.unpack(state.read_bytes())
        return Done(
            os.waitstatus_to_exitcode(status),
            said.read_text("utf-8", "replace"),
            points,
            bool(fired),
            connections,
            tuple(imported.read_text().split()) if imported.exists() else (),
        )


def _become(words: str, folder: Path, state: Path, said: Path, imported: Path, module: str) -> None:
    """Run the command and end; of the child."""
    code, before = 70, {*sys.modules}
    try:
        os.setsid()
        os.chdir(folder)
        out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        null = os.open(os.devnull, os.O_RDWR)
        for number, target in ((0, null), (1, null), (2, out)):
            os.dup2(target, number)
        os.environ |= {"FAULTS_STATE": str(state), "FAULTS_ROOT": str(folder.resolve())}
        begin = ctypes.CDLL(None).faults_begin
        if begin(os.fsencode(state), os.fsencode(folder.resolve())):
            os._exit(71)
        importlib.import_module(module).main(words.split())
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else 0
    finally:
        sys.stderr.flush()
        imported.write_text("\n".join(name for name in sys.modules if name not in before))
        os._exit(code)


def listing(folder: Path) -> dict[str, str]:
    """Files and empty folders."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file():
            content = path.read_bytes()
            content = SECONDS.sub(b"", content) if path.suffix == ".json" else content
            content = _untimed(content) if path.suffix == ".csv" else content
            found[name] = hashlib.sha256(content).hexdigest()
        elif path.is_dir() and not any(path.iterdir()):
            found[name] = "folder"
    return found


def _untimed(content: bytes) -> bytes:
    """CSV without its column of times."""
    rows = list(csv.reader(content.decode().splitlines()))
    if not rows or TIMED not in rows[0]:
        return content
    at = rows[0].index(TIMED)
    return repr([row[:at] + row[at + 1 :] for row in rows]).encode()


def different(one: Files, two: Files, apart: set[str]) -> list[str]:
    """Names that only one has, or whose content differs where it does not differ between equal runs."""
    return sorted(
        name
        for name in {*one, *two}
        if (name in one) != (name in two) or (name not in apart and one[name] != two[name])
    )


def trials(points: int, sample: int | None, rng: random.Random) -> Iterator[tuple[int, str]]:
    """Calls and kinds of fault: the end of the process at each, and one of the errors in turn; or so many of these."""
    *errors, death = KINDS
    every = [(at, kind) for at in range(1, points + 1) for kind in (errors[at % len(errors)], death)]
    yield from every if sample is None or sample >= len(every) else sorted(rng.sample(every, sample))


class Bench:
    """One verb: its folders before and after an undisturbed run."""

    def __init__(self, verb: Verb, home: Path) -> None:
        self.verb, self.home = verb, home
        self.before = self._folder("before")
        if verb.earlier:
            self._succeed(verb.earlier, self.before)
        self.start = self.listing(self.before)
        first, second = self._copy("first"), self._copy("second")
        begun = time.monotonic()
        undisturbed = self._succeed(verb.words, first)
        self.seconds = time.monotonic() - begun
        self.points, self.connections = undisturbed.points, undisturbed.connections
        for name in undisturbed.modules:
            with contextlib.suppress(ImportError):  # a name that only stands for a module
                importlib.import_module(name)
        self._succeed(verb.words, second)
        self.whole = self.listing(first)
        other = self.listing(second)
        if self.whole.keys() != other.keys():
            raise SystemExit(f"equal runs make different files: {sorted(self.whole.keys() ^ other.keys())}")
        self.apart = {name for name in self.whole if self.whole[name] != other[name]}

    def _folder(self, name: str) -> Path:
        made = self.home / name
        made.mkdir()
        return made

    def _copy(self, name: str) -> Path:
        return Path(shutil.copytree(self.before, self.home / name))

    def _succeed(self, words: str, folder: Path) -> Done:
        done = run(words, folder, module=self.verb.main)
        if done.code:
            raise SystemExit(f"{words}: exit code {done.code} without a fault\n{done.said}")
        return done

    def listing(self, folder: Path) -> dict[str, str]:
        """Files and empty folders, without those that tell what happened."""
        found = listing(folder)
        return {
            name: one for name, one in found.items() if not any(fnmatch.fnmatch(name, p) for p in self.verb.history)
        }

    def names_target(self, line: str) -> bool:
        """Whether a line has the name of a file or folder that the verb writes, as part of a path."""
        return any(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", line) for name in self.verb.targets)

    def trial(self, at: int, kind: str, row: Row) -> None:
        """Let one call fail, look, and run again."""
        work = self._copy("work")
        done = run(self.verb.words, work, at, KINDS[kind], self.verb.main)
        row.runs += 1
        where = f"call {at}, {kind}"
        died = kind == "death"
        if not done.fired:
            row.messages.append(f"{where}: was not met ({done.points} calls)")
        # after a death 2 where the process that died was one that the verb had started
        if done.code not in ((DIED, 2) if died else (0, 2, self.verb.fails)):
            row.messages.append(f"{where}: exit code {done.code}: {done.said.strip()[-300:]}")
        errors = [line for line in done.said.splitlines() if line.startswith("error")]
        if done.code == 2 and len(errors) != 1:
            row.messages.append(f"{where}: {len(errors)} lines of error: {done.said.strip()[-300:]}")
        elif done.code == 2 and not died and not any(self.names_target(line) for line in errors):
            row.messages.append(f"{where}: names none of {', '.join(self.verb.targets)}: {errors[0]}")
        left = self.listing(work)
        for name, old in self.start.items():
            if left.get(name) not in (old, self.whole.get(name)) and not (name in self.apart and name in left):
                row.losses.append(f"{where}: {name} was neither kept nor replaced")
        if done.code == 0 and (wrong := different(left, self.whole, self.apart)):
            row.losses.append(f"{where}: succeeded with other files: {wrong[:3]}")
        if done.code == 2:
            allowed = [f"{pattern}{more}" for pattern in self.verb.kept for more in ("", "/*")]
            for name in left.keys() - self.start.keys():
                if not any(fnmatch.fnmatch(name, pattern) for pattern in allowed):
                    row.litter.append(f"{where}: left {name}")
        if not different(left, self.whole, self.apart):  # all is there, which the same command may refuse to replace
            shutil.rmtree(work)
            return
        again = run(f"{self.verb.words} {self.verb.again}", work, module=self.verb.main)
        if again.code:
            row.losses.append(f"{where}: then exit code {again.code}: {again.said.strip()[-300:]}")
        elif wrong := different(self.listing(work), self.whole, self.apart):
            more = [name for name in wrong if name not in self.whole]
            row.litter += [f"{where}: left {name} after a second run" for name in more]
            row.losses += [f"{where}: {name} differs after a second run" for name in wrong if name not in more]
        shutil.rmtree(work)

    def kill(self, count: int, rng: random.Random, row: Row) -> None:
        """Kill the verb so many times, at any moment, and let it go on; begin anew whenever it comes to its end."""
        work, first = self._copy("work"), True
        while row.runs < count or not first:
            ending = row.runs >= count
            patience = PATIENCE if ending else rng.uniform(0, 1.1 * self.seconds)
            words = self.verb.words if first else f"{self.verb.words} {self.verb.again}"
            done = run(words, work, module=self.verb.main, patience=patience)
            first = False
            if done.code == -signal.SIGKILL and not ending:
                row.runs += 1
                continue
            if done.code:
                row.losses.append(f"after {row.runs} kills: exit code {done.code}: {done.said.strip()[-300:]}")
            elif wrong := different(self.listing(work), self.whole, self.apart):
                row.losses.append(f"after {row.runs} kills: other files: {wrong[:3]}")
            shutil.rmtree(work)
            work, first = self._copy("work"), True
        shutil.rmtree(work)


def serve(options: argparse.Namespace) -> int:
    """Try all verbs; 1 where anything came out wrong."""
    import chronos  # noqa: F401 - so that no fork imports it anew
    import gluonts.model.evaluation  # noqa: F401
    import matplotlib.pyplot  # noqa: F401
    import pandas  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import statsforecast  # noqa: F401
    import torch
    import transformers  # noqa: F401
    from tqdm import tqdm

    import rankscope_cli.app  # noqa: F401
    import rankscope_eval  # noqa: F401

    with contextlib.suppress(ImportError):
        import fev  # noqa: F401

    torch.set_num_threads(1)
    tqdm.set_lock(threading.RLock())  # forks share its own lock, which one that is killed within would hold for ever
    settings = {"seed": options.seed, "sample": options.sample, "kills": options.kills}
    tried = counts.load(options.out, settings)
    wrong = 0
    with tempfile.TemporaryDirectory() as made:
        home = Path(made).resolve()

        def make(words: str, folder: Path) -> None:
            done = run(words, folder)
            if done.code:
                raise SystemExit(f"{words}: exit code {done.code}\n{done.said}")

        inputs(home / "inputs", make)
        names = [name for name in named(options.only) if name not in tried]
        with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("fork")) as pool:
            ended = as_completed([pool.submit(_try, name, home, options) for name in names])
            for number, (name, row, seconds) in enumerate((one.result() for one in ended), 1):
                found = [*row.losses, *row.litter, *row.messages]
                found += [f"connected, or looked up a name, {row.connections} times"] if row.connections else []
                wrong += len(found)
                print(
                    f"[{number}/{len(names)}] {name}: {row.points} points, {row.runs} runs, {len(row.losses)} losses, "
                    f"{len(row.litter)} litter, {len(row.messages)} messages wrong, {seconds:.0f} s",
                    flush=True,
                )
                for said, count in Counter(found).most_common(options.show):
                    print(f"    {said}" + (f" ({count} times)" if count > 1 else ""), flush=True)
                if options.out is not None:
                    tried[name] = {one: many if isinstance(many, int) else len(many) for one, many in vars(row).items()}
                    counts.save(options.out, "tests.faults", settings, tried)
    return int(wrong > 0)


def _try(name: str, home: Path, options: argparse.Namespace) -> tuple[str, Row, float]:
    """Try one verb; its name, what was found, and seconds."""
    begun, place = time.monotonic(), home / name
    place.mkdir()
    (place / "inputs").symlink_to(home / "inputs")
    bench, row, rng = Bench(VERBS[name], place), Row(), random.Random(f"{options.seed} {name}")
    row.points, row.connections = bench.points, bench.connections
    if options.kills:
        bench.kill(options.kills, rng, row)
    for at, kind in () if options.kills else trials(bench.points, options.sample, rng):
        bench.trial(at, kind, row)
    shutil.rmtree(place)
    return name, row, time.monotonic() - begun


def main() -> int:
    """Build the shim, start again with it, and serve."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--only", default="", help="verbs, with commas")
    words.add_argument("--sample", type=int, help="faults of a verb; all by default")
    words.add_argument("--kills", type=int, help="kill each verb so many times instead")
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--jobs", type=int, default=os.cpu_count(), help="verbs at once (default: one per core)")
    words.add_argument("--show", type=int, default=8, help="findings of a verb to print")
    words.add_argument("--out", type=Path, help="JSON file for the counts; verbs that are in it are left out")
    options = words.parse_args()
    if "faults.so" in os.environ.get(PRELOAD, ""):
        return serve(options)
    with tempfile.TemporaryDirectory() as made:
        library = Path(made) / "faults.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, SHIM, "-ldl"], check=True)
        settings = {**os.environ, PRELOAD: str(library), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        settings["HF_DATASETS_CACHE"] = str(Path(made) / "datasets")
        return subprocess.run([sys.executable, "-m", "tests.faults", *sys.argv[1:]], env=settings).returncode


if __name__ == "__main__":
    sys.exit(main())
