"""Client side of the benchmark worker processes."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import IO, Any

from rankscope.errors import OptionError, RankscopeError
from rankscope.io import codec
from rankscope_eval.bench.case import Case


class CaseError(RankscopeError):
    """A case failed; the message is one line."""


class Child:
    """Worker process with a line-based JSON protocol; killed at the end of the ``with`` block.

    It runs in its own process group, so that the parent can terminate it together with its children.

    Args:
        case: case to benchmark.
        module: module with the ``main`` function to run.
    """

    def __init__(self, case: Case, module: str = "rankscope_eval.bench.worker") -> None:
        self.case = case
        self._closed = False
        self._log: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        quiet = {"PYTHONSAFEPATH": "1", "TRANSFORMERS_VERBOSITY": "error"}
        if case.threads is not None:
            quiet |= {"OMP_NUM_THREADS": str(case.threads), "MKL_NUM_THREADS": str(case.threads)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {module} import main; main()", codec.text(case)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, **quiet},
            start_new_session=True,
        )
        self._answers: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, line: str, timeout: float) -> dict[str, Any]:
        """Send a line and wait for the response.

        Raises:
            OptionError: the worker rejected its input.
            CaseError: the worker failed, died or timed out; it is dead afterwards.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # a dead process is detected below
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        try:
            text = self._answer(timeout)
        except queue.Empty:
            self.close()
            raise CaseError(
                f"{self.case.label}: no response to {line.split()[0]} within {timeout:g} s: allow more (--timeout)."
            ) from None
        if text is None:
            raise CaseError(f"{self.case.label}: {self._cause()}.")
        found: dict[str, Any] = json.loads(text)
        if "error" in found:
            self.close()
            what = f"{self.case.label}: {found['error']}"
            raise OptionError(what) if found.get("bad_input") else CaseError(what)
        return found

    def _answer(self, timeout: float) -> str | None:
        """Return the next line, or None from a dead process, even if helpers that outlive it hold its stdout open."""
        ends = time.monotonic() + timeout
        while True:
            dead = self._process.poll() is not None
            try:
                return self._answers.get(timeout=max(0.0, min(0.5, ends - time.monotonic())))
            except queue.Empty:
                if dead:
                    return None
                if time.monotonic() >= ends:
                    raise

    def close(self) -> None:
        """Kill the process and its children, which outlive it where it was killed."""
        if not self._closed:
            self._closed = True
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        for pipe in (self._process.stdin, self._log):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError):
            for line in self._process.stdout:
                self._answers.put(line)
        self._answers.put(None)

    def _cause(self) -> str:
        """Describe why the process ended."""
        code = self._process.wait()
        self._log.seek(0)
        last = [line.strip() for line in self._log.read().splitlines() if line.strip()][-1:]
        self.close()
        if code < 0:
            name = signal.Signals(-code).name
            return f"its process was killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
        return f"its process ended with {code}" + (f": {last[0][:300]}" if last else "")
