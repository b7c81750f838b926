"""Rank-0 execution with error propagation."""

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
"""Environment variables with the rank, as set by torchrun, accelerate and MPI launchers."""


class PeerFailed(RankscopeError):
    """Failure in another process, which reports it; this one exits silently."""


def is_main() -> bool:
    """Return whether this is the main process (rank 0)."""
    if joined():
        return int(torch.distributed.get_rank()) == 0
    return next((int(os.environ[name]) for name in RANKS if name in os.environ), 0) == 0


def count() -> int:
    """Return the number of processes of the run."""
    return int(torch.distributed.get_world_size()) if joined() else 1


def on_main(work: Callable[[], Result]) -> Result:
    """Run ``work`` in the main process and broadcast its result.

    Args:
        work: called in the main process only; the result must be picklable.

    Raises:
        PeerFailed: in all other processes if ``work`` raised in the main one, which raises the original error.
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
    """Run ``work`` in every process; a failure in one fails all.

    Args:
        work: called in every process; collective operations in it must precede anything that may fail in only some.

    Raises:
        PeerFailed: in all processes but the first failing one, which raises the original error.
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
    """Average a scalar over all processes."""
    if not joined():
        return value
    total = value.clone()
    torch.distributed.all_reduce(total)
    return total / count()


def joined() -> bool:
    """Return whether the process group is initialised."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def wait() -> None:
    """Wait for all processes (barrier)."""
    if joined():
        torch.distributed.barrier()


def leave() -> None:
    """Destroy the process group at the end of the program."""
    if joined():
        torch.distributed.destroy_process_group()
