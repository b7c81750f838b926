"""Entry point of the command line: prepares the process, then runs the app; only the standard library is loaded."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Sequence


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit code: 0 done, 1 a check failed, 2 bad input, 130 interrupted."""
    words = list(sys.argv[1:] if args is None else args)
    try:
        from rankscope_cli.exits import DEBUG, unwind

        signal.signal(signal.SIGTERM, unwind)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell's background jobs ignore it
            signal.signal(signal.SIGINT, unwind)
        _quieten(debug=DEBUG in words)
        from rankscope_cli.app import run
    except KeyboardInterrupt:  # so early that the app, which reports it otherwise, is not there yet
        sys.exit(130)
    sys.exit(run(words))


def _quieten(debug: bool) -> None:
    """Keep other libraries' chatter out of the terminal unless the user debugs or asked for it."""
    if debug or sys.warnoptions:
        return
    warnings.simplefilter("ignore")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    # transformers draws a bar while it loads weights, which would fight with ours; downloads say what they fetch.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


if __name__ == "__main__":
    main()
