"""Series in blocks, so that the data of a run does not depend on how many processes share them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.utils.data import Dataset

BLOCK = 64
"""Most series that are generated in one go: more gain little speed, fewer would lose some."""


class Blocks(Dataset):
    """A stream read in whole blocks of fixed size.

    A generated batch is a function of its first index and its length, so two processes with half a batch each would
    see other series than one process with all of it. Read by whole blocks every index holds the same series however
    the indices are dealt out. A process generates series in vain only where its batch is no multiple of the block.
    """

    def __init__(self, stream: Any, batch: int) -> None:
        """Wrap ``stream``; ``batch`` is the number of series that all processes together take at a time."""
        self.stream = stream
        self.size = min(BLOCK, batch)

    def __len__(self) -> int:
        return len(self.stream)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Return the rows at ``indices``, generating every block that holds one of them once."""
        numbers = dict.fromkeys(index // self.size for index in indices)
        blocks = {n: self.stream.__getitems__(range(n * self.size, (n + 1) * self.size)) for n in numbers}
        return [blocks[index // self.size][index % self.size] for index in indices]
