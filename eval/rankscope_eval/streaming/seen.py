"""Names that were there before, in eight bytes each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class SeenIds:
    """A growing set of names, kept as hashes of 64 bits in sorted arrays.

    A million names take 8 MB, where a set of strings takes 100. Two different names share a hash with a chance of
    3·10⁻⁸ among a million of them, and of 3·10⁻⁴ among a hundred million.
    """

    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []

    def repeated(self, ids: Sequence[str]) -> np.ndarray:
        """Add names; true where one was there before, in this call or an earlier one."""
        import pandas as pd

        hashes = pd.util.hash_array(np.array(ids, dtype=object), categorize=False)
        found = np.ones(len(hashes), dtype=bool)
        found[np.unique(hashes, return_index=True)[1]] = False
        for run in self._runs:
            places = np.minimum(np.searchsorted(run, hashes), len(run) - 1)
            found |= run[places] == hashes
        if not found.all():
            self._runs.append(np.sort(hashes[~found]))
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            last = self._runs.pop()
            self._runs[-1] = np.sort(np.concatenate([self._runs[-1], last]))
        return found
