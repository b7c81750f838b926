"""How many numbers a matrix stores, dense or factored (Q7)."""

from __future__ import annotations

from collections.abc import Iterable

from rankscope.errors import OptionError

Shape = tuple[int, int]


def factoring_pays(shape: Shape, rank: int) -> bool:
    """Whether a rank-``rank`` factorisation of an m×n matrix stores fewer numbers: r(m+n) < mn.

    >>> factoring_pays((768, 768), 383), factoring_pays((768, 768), 384)
    (True, False)
    """
    rows, columns = shape
    return rank * (rows + columns) < rows * columns


def factored_parameters(shape: Shape, rank: int) -> int:
    """Numbers stored at rank ``rank``: r(m+n) where that is fewer than mn, else the dense mn.

    >>> factored_parameters((768, 768), 10), factored_parameters((768, 768), 700)
    (15360, 589824)
    """
    rows, columns = shape
    if rank < 0:
        raise OptionError(f"rank must be at least 0, not {rank}.")
    return rank * (rows + columns) if factoring_pays(shape, rank) else rows * columns


def size_ratio(shapes: Iterable[Shape], ranks: Iterable[int]) -> float:
    """Σ stored parameters after over before, of matrices of ``shapes`` kept at ``ranks`` (Q7); 1 for none.

    >>> size_ratio([(768, 768), (768, 768)], [96, 700])
    0.625
    """
    pairs = list(zip(shapes, ranks, strict=True))
    before = sum(rows * columns for (rows, columns), _ in pairs)
    after = sum(factored_parameters(shape, rank) for shape, rank in pairs)
    return after / before if before else 1.0
