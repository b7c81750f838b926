"""How many seeds of a setting a GPU has room for in one stack."""

from __future__ import annotations

from rankscope_lab.data.channels import LENGTH
from rankscope_lab.encoders.cell import Cell
from rankscope_lab.encoders.objective import BATCH

MEMORY_SHARE = 0.8
"""Of the free memory of a GPU, what a stack is sized for."""
_PER_SCORE, _PER_NUMBER, _SECOND_GRAPH = 16.2, 119.0, 1.4
"""Numbers alive at the peak of a step per attention weight of a head, and per number of a token, all three blocks
together: counted from the storages of one step of eleven settings; the last, smaller batch has a graph of its own."""


def stack_bytes(cell: Cell, seeds: int) -> int:
    """Peak memory of a step of so many seeds in a stack, in bytes.

    Attention weights are kept for the gradient, which ``vmap`` takes without recomputing them: tokens² of each head.
    """
    sequences, tokens = BATCH, LENGTH
    if cell.encoder == "ci":
        sequences *= cell.channels
    elif cell.encoder == "cat":
        tokens *= cell.channels
    per_sequence = _PER_SCORE * cell.heads * tokens**2 + _PER_NUMBER * tokens * cell.d_model
    return int(4 * seeds * sequences * per_sequence)


def stack_size(cell: Cell, free: int) -> int:
    """Seeds that fit into the free memory of a GPU, in bytes; at least one."""
    return max(1, int(MEMORY_SHARE * free / (_SECOND_GRAPH * stack_bytes(cell, 1))))
