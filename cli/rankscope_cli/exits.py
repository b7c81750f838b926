"""Exit codes and one-line error reporting on stderr."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any, TextIO

from rankscope.errors import RankscopeError, nearest, printable

DEBUG = "--debug"
DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
_AGAIN = 0.01
"""Seconds after which an interrupt that waits is tried again."""
_signals: list[int] = []


def unwind(signum: int, frame: FrameType | None) -> None:
    """Handle Ctrl-C and SIGTERM alike, so that partial output is removed.

    While a module is imported the interrupt waits: extension modules abort the process on an exception in a callback.
    Other C code may replace the exception; `report_error` therefore checks the recorded signal.

    Raises:
        KeyboardInterrupt: unless a module is being imported.
    """
    if _importing(frame) and hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, unwind)
        signal.setitimer(signal.ITIMER_REAL, _AGAIN)
        return
    _signals.append(signum)
    raise KeyboardInterrupt


def ignore_late_interrupts() -> None:
    """Ignore Ctrl-C, SIGTERM and an interrupt that still waits: all is done, and the exit code must say so."""
    for signum in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(signum) is unwind:
            signal.signal(signum, signal.SIG_IGN)
    if hasattr(signal, "setitimer") and signal.getsignal(signal.SIGALRM) is unwind:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, 0)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None


def report_error(error: BaseException, *, debug: bool = False) -> int:
    """Print a one-line error message on stderr and return the exit code.

    Args:
        error: exception raised by a verb.
        debug: print the traceback first.

    Returns:
        0 for a closed pipe, 2 for bad input and I/O errors, 130 after Ctrl-C or SIGTERM, 1 for internal errors.
    """
    if isinstance(error, BrokenPipeError):
        abandon(sys.stdout)
        return DONE
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    if _signals or isinstance(error, KeyboardInterrupt):
        say("interrupted.")
        return INTERRUPTED
    if type(error).__name__ == "NoArgsIsHelpError":  # help has already been printed
        return BAD_INPUT
    line, code = _explain(error)
    say(f"error: {line}")
    return code


@contextlib.contextmanager
def warned() -> Iterator[None]:
    """Say what the library warns of in the block, once each, when it ends."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.filterwarnings("always", category=UserWarning, module="rankscope|chronos")
        try:
            yield
        finally:
            for line in dict.fromkeys(str(one.message) for one in caught):
                say(f"warning: {line}")


def say(line: str) -> None:
    """Write one line to stderr; ignore a closed stderr."""
    try:
        print(printable(" ".join(line.split())), file=sys.stderr, flush=True)  # noqa: T201
    except OSError:
        return


def _explain(error: BaseException) -> tuple[str, int]:
    if isinstance(error, RankscopeError):
        return str(error), BAD_INPUT
    if hasattr(error, "format_message"):  # a click usage error; Typer vendors click under its own name
        return _usage(error), BAD_INPUT
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}", BAD_INPUT
    if _ran_out(error):
        return "out of memory: choose a smaller model, batch or data set.", FAILED
    text = str(error).strip().splitlines()
    what = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
    return f"{what} (internal error in rankscope; rerun with --debug for the traceback)", FAILED


def _ran_out(error: BaseException) -> bool:
    """Return whether an error means out of memory; errors of torch cannot come from where it was never imported."""
    if isinstance(error, MemoryError) or "torch" not in sys.modules:
        return isinstance(error, MemoryError)
    from rankscope.forecast.batches import ran_out

    return ran_out(error)


def _usage(error: Any) -> str:
    context = getattr(error, "ctx", None)
    what = str(error.format_message()).rstrip(".")
    what = what.replace("Value error, ", "").replace("Input should be", "it must be")  # pydantic's words
    value, _, choices = what.partition(" is not one of ")
    if choices:
        guess = nearest(value.rsplit(": ", 1)[-1].strip("'"), re.findall(r"'([^']*)'", choices)).strip()
        what += f": {guess}" if guess else ""
    what += "" if what.endswith("?") else "."  # a suggestion ends in ?
    return f"{what} See '{context.command_path} --help'." if context is not None else what


def abandon(stream: TextIO) -> None:
    """Redirect a stream to devnull, so that later writes and Python's flush at exit do not fail on a closed pipe."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except (OSError, ValueError):
        return
