"""Exit codes, and how every error becomes one line on stderr."""

from __future__ import annotations

import os
import sys
import traceback
from types import FrameType
from typing import Any

from rankscope.errors import RankscopeError

DEBUG = "--debug"
DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
_signals: list[int] = []


def unwind(signum: int, frame: FrameType | None) -> None:
    """Handle SIGTERM as Ctrl-C, so that partial output is removed.

    What is raised in a callback from C may come out as another error: `report_error` knows by the signal what it is.

    Raises:
        KeyboardInterrupt: always.
    """
    _signals.append(signum)
    raise KeyboardInterrupt


def report_error(error: BaseException, *, debug: bool = False) -> int:
    """Say on stderr what went wrong and return the exit code.

    Args:
        error: what a verb raised.
        debug: print the traceback before the line.

    Returns:
        0 where the reader of a pipe went away, 2 for bad input and for files that cannot be read or written, 130
        after Ctrl-C or SIGTERM, 1 for anything else, which is a fault of ours.
    """
    if isinstance(error, BrokenPipeError):
        _abandon_stdout()
        return DONE
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    if _signals or isinstance(error, KeyboardInterrupt):
        say("interrupted.")
        return INTERRUPTED
    if type(error).__name__ == "NoArgsIsHelpError":  # the help has been printed already
        return BAD_INPUT
    line, code = _explain(error)
    say(f"error: {line}")
    return code


def say(line: str) -> None:
    """Write one line to stderr; a closed stderr is no reason to fail."""
    try:
        print(" ".join(line.split()), file=sys.stderr, flush=True)  # noqa: T201
    except OSError:
        return


def _explain(error: BaseException) -> tuple[str, int]:
    if isinstance(error, RankscopeError):
        return str(error), BAD_INPUT
    if hasattr(error, "format_message"):  # a usage error of click, which Typer may carry under its own name
        return _usage(error), BAD_INPUT
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}", BAD_INPUT
    if isinstance(error, MemoryError):
        return "out of memory: choose a smaller model, batch or data set.", FAILED
    text = str(error).strip().splitlines()
    what = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
    return f"{what} (a fault in rankscope: run again with --debug for the traceback)", FAILED


def _usage(error: Any) -> str:
    context = getattr(error, "ctx", None)
    what = str(error.format_message()).rstrip(".").replace("Value error, ", "")  # pydantic's, which newer Typers show
    what += "" if what.endswith("?") else "."  # of a suggestion
    return f"{what} See '{context.command_path} --help'." if context is not None else what


def _abandon_stdout() -> None:
    """Point stdout at nothing, so that Python's own flush at exit does not complain about the closed pipe."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return
