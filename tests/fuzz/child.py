"""A process that tries changed inputs of one kind, one after the other, and says of each what it is about to do.

On standard output: ``ready``, then of every input its number before it is read, and a line of JSON after it where
something else came out than a result or an error that a user can act on.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

from tests.fuzz.kind import Files, Kind
from tests.fuzz.kinds import KINDS

from rankscope_eval.bench.worker import peak_bytes

MORE = 1 << 30
"""Bytes of memory that an input may take beyond what valid ones take."""
MEMORY = 77
"""Exit code of a process whose memory has grown: another one goes on."""


def seeds(kind: str, folder: Path) -> list[Files]:
    """Files of all valid inputs of a kind, in the order of their folders' names."""
    return [contents(one) for one in sorted((folder / kind).iterdir()) if one.is_dir()]


def contents(folder: Path) -> Files:
    """Files below a folder by their path in it."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def changed(kind: Kind, valid: list[Files], seed: int, number: int) -> Files:
    """One changed input, a function of its numbers."""
    rng = random.Random(f"{seed}/{number}")
    return kind.change(rng, rng.choice(valid))


def write(files: Files, folder: Path) -> None:
    """Put files into an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def outcome(kind: Kind, folder: Path) -> str:
    """Empty where a result or an error for the user comes out, else the exception."""
    from rankscope.errors import RankscopeError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind.use(folder)
    except RankscopeError:
        return ""
    except Exception:
        return traceback.format_exc()[-1_500:]
    return ""


def main(name: str, folder: str, seed: str, first: str, last: str) -> None:
    """Try a range of inputs."""
    kind, valid = KINDS[name], seeds(name, Path(folder))
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not a report
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as made:
        place = Path(made) / "input"
        for files in valid:
            write(files, place)
            kind.use(place)
        usual = peak_bytes("cpu")
        print("ready", file=out, flush=True)
        for number in range(int(first), int(last)):
            files = changed(kind, valid, int(seed), number)
            write(files, place)
            print(number, file=out, flush=True)
            wrong = outcome(kind, place)
            more = peak_bytes("cpu") - usual
            if more > MORE and not wrong:
                wrong = f"memory: {more / 1e9:.1f} GB more than valid inputs take"
            if wrong:
                print(json.dumps({"number": number, "wrong": wrong}), file=out, flush=True)
            if more > MORE:
                os._exit(MEMORY)
    print("done", file=out, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
