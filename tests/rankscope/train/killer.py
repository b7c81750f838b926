"""Kill runs at their file operations: ``python killer.py CONFIG FOLDER SEED``.

One undisturbed run goes into FOLDER/whole, others into FOLDER/0, 1, …: these are killed at operations drawn at random,
again and again, and resumed until they are done. Every attempt is a fork of this process, which has loaded everything,
so that it takes a second and not ten.

An operation is a file opened for writing, renamed or removed below FOLDER, and a ``torch.save``, which is killed when
half of its file is on disk. Every third attempt counts the latter only.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import chronos  # noqa: F401
import torch
import transformers.trainer  # noqa: F401

import rankscope.train
from rankscope_cli.app import run

KILLS = 18
OPERATIONS, SAVES = 70, 7


class Counter:
    """Counts operations, and kills this process at the last of ``limit``."""

    def __init__(self, limit: int, saves: bool) -> None:
        self.limit, self.saves, self.seen = limit, saves, 0

    def count(self, what: str) -> bool:
        self.seen += 1
        if self.seen == self.limit:
            say(f"killed at {what} ({self.seen})")
        return self.seen == self.limit

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        if self.saves:
            return
        writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
        if not writes and event not in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree"):
            return
        if str(args[0]).startswith(str(FOLDER)) and self.count(f"{event} {args[0]}"):
            os.kill(os.getpid(), signal.SIGKILL)

    def save(self, content: Any, path: Any, *args: Any, **kwargs: Any) -> None:
        original(content, path, *args, **kwargs)
        if self.count(f"half of {path}"):
            os.truncate(path, os.path.getsize(path) // 2)
            os.kill(os.getpid(), signal.SIGKILL)


def say(line: str) -> None:
    os.write(1, (line + "\n").encode())  # reaches the pipe even if the next instruction is the last


def attempt(out: Path, limit: int = 0, saves: bool = False) -> int:
    """Run once in a child that dies at operation ``limit``, or never at 0; return its exit code, -9 if it died."""
    child = os.fork()
    if child == 0:
        counter = Counter(limit, saves)
        torch.save = counter.save
        sys.addaudithook(counter.hook)
        begun = out.exists() or (out.with_name(f"{out.name}.run") / "config.json").exists()
        code = run(["pretrain", CONFIG, "--out", str(out), "--device", "cpu", *(["--resume"] if begun else [])])
        os._exit(code)
    _, status = os.waitpid(child, 0)
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def main() -> None:
    assert attempt(FOLDER / "whole") == 0
    drawn = random.Random(SEED)
    killed = name = 0
    while killed < KILLS:
        saves = killed % 3 == 0
        code = attempt(FOLDER / str(name), drawn.randint(1, SAVES if saves else OPERATIONS), saves)
        assert code in (0, -9), code
        killed += code == -9
        name += code == 0
    assert attempt(FOLDER / str(name)) == 0


if __name__ == "__main__":
    CONFIG, FOLDER, SEED = sys.argv[1], Path(sys.argv[2]).resolve(), int(sys.argv[3])
    torch.set_num_threads(1)
    original = torch.save
    assert rankscope.train.pretrain
    main()
