"""Run the command line in two connected processes: ``python ranks.py COMMANDS``, a JSON list of lists of arguments.

The processes are forks of this one, which has loaded everything: a launcher would load it anew in each. A command that
begins with ``kill N`` loses its first process by SIGKILL when it is about to log step N. Prints the exit codes of every
command as a JSON list.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from typing import Any

import chronos  # noqa: F401
import torch
import transformers.trainer  # noqa: F401

from rankscope.train import callbacks, logs
from rankscope_cli.app import run


def launch(arguments: list[str]) -> list[int]:
    """Run one command in two processes and end the second one where the first was killed, as a launcher does."""
    step = int(arguments[1]) if arguments[0] == "kill" else 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = [fork(rank, port, step, arguments[2:] if step else arguments) for rank in (0, 1)]
    codes = []
    for child in children:
        if any(codes):
            os.kill(child, signal.SIGTERM) if codes[0] < 0 else None
        _, status = os.waitpid(child, 0)
        codes.append(os.waitstatus_to_exitcode(status))
    return codes


def fork(rank: int, port: int, step: int, arguments: list[str]) -> int:
    child = os.fork()
    if child:
        return child
    place = {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "RANK": rank, "LOCAL_RANK": rank}
    os.environ.update({name: str(value) for name, value in place.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), ACCELERATE_USE_CPU="true")

    def log(file: Any, row: Any) -> None:
        if row["step"] == step:
            os.kill(os.getpid(), signal.SIGKILL)
        logs.append_row(file, row)

    callbacks.append_row = log
    os._exit(run(arguments))


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps([launch(arguments) for arguments in json.loads(sys.argv[1])]))  # noqa: T201
