"""One run in several processes: the main one writes and reports, the others wait, and an error ends them all."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.errors import RankscopeError

Result = TypeVar("Result")

RANKS = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
"""Variables in which torchrun, accelerate and the MPI launchers tell a process its number."""


class PeerFailed(RankscopeError):
    """Another process stopped the run and has said why: this one ends without a word."""


def is_main() -> bool:
    """Return True if this process writes and reports: the only one, or the first that a launcher started."""
    if joined():
        return int(torch.distributed.get_rank()) == 0
    return next((int(os.environ[name]) for name in RANKS if name in os.environ), 0) == 0


def count() -> int:
    """Number of processes that train together."""
    return int(torch.distributed.get_world_size()) if joined() else 1


def on_main(work: Callable[[], Result]) -> Result:
    """Let the main process do ``work`` while the others wait, and hand its result to all.

    Args:
        work: called in the main process only; what it returns must be picklable.

    Raises:
        PeerFailed: in every other process, where ``work`` raised in the main one (which raises the error itself).
    """
    if not joined():
        return work()
    answer: list[Any] = [None, False]
    error: Exception | None = None
    if is_main():
        try:
            answer[0] = work()
        except Exception as raised:
            error, answer[1] = raised, True
    torch.distributed.broadcast_object_list(answer, src=0)
    if error is not None:
        raise error
    if answer[1]:
        raise PeerFailed("the main process stopped: see its message.")
    return answer[0]


def together(work: Callable[[], Result]) -> Result:
    """Let every process do ``work``; if it fails in any of them, it fails in all.

    Args:
        work: called in every process; the processes may meet in it only before anything that fails in some of them.

    Raises:
        PeerFailed: in all processes but the first whose ``work`` raised (which raises the error itself).
    """
    if not joined():
        return work()
    result: Any = None
    error: Exception | None = None
    try:
        result = work()
    except Exception as raised:
        error = raised
    speaks = error is not None and not isinstance(error, PeerFailed)
    answers: list[Any] = [None] * count()
    torch.distributed.all_gather_object(answers, speaks)
    if error is not None and (not speaks or answers.index(True) == torch.distributed.get_rank()):
        raise error
    if True in answers:
        raise PeerFailed("another process stopped: see its message.")
    return result


def mean(value: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """Average of a number over all processes."""
    if not joined():
        return value
    total = value.clone()
    torch.distributed.all_reduce(total)
    return total / count()


def joined() -> bool:
    """Return True if a launcher's processes have been connected with each other."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def wait() -> None:
    """Wait until all processes have come here."""
    if joined():
        torch.distributed.barrier()


def leave() -> None:
    """Close the connection to the other processes, as torch asks for at the end of a program."""
    if joined():
        torch.distributed.destroy_process_group()
