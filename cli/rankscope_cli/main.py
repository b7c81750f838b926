"""Command-line entry point: set up signals and warnings, then run the app; imports only the standard library."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import NoReturn


def main(args: Sequence[str] | None = None) -> None:
    """Run the CLI and exit: 0 success, 1 failed check or internal error, 2 bad input, 130 interrupted."""
    words = list(sys.argv[1:] if args is None else args)
    try:
        from rankscope_cli.exits import DEBUG, ignore_late_interrupts, unwind

        signal.signal(signal.SIGTERM, unwind)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # background jobs of a shell ignore SIGINT
            signal.signal(signal.SIGINT, unwind)
        _quieten(debug=DEBUG in words)
        from rankscope_cli.app import run

        code = run(words)
        if code == 130:
            _leave(code)
        ignore_late_interrupts()
    except KeyboardInterrupt:  # while the app, which normally reports it, is imported or built
        sys.stderr.write("interrupted.\n")
        _leave(130)
    sys.exit(code)


def _leave(code: int) -> NoReturn:
    """Exit after an interrupt: CPython would end itself by SIGINT, with another code, where one met an import."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _quieten(debug: bool) -> None:
    """Silence third-party warnings and logs unless debugging or requested with ``-W``."""
    if debug or sys.warnoptions:
        return
    warnings.simplefilter("ignore")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    # The weight-loading bar of transformers would interfere with ours.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


if __name__ == "__main__":
    main()
