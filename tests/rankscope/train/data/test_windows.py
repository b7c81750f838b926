"""Random windows of stored series."""

from __future__ import annotations

import numpy as np

from rankscope.train.data.windows import random_window


def test_every_window_of_a_long_series_has_equal_odds() -> None:
    rng = np.random.default_rng(0)
    values = np.arange(20, dtype=np.float32)
    found = np.stack([random_window(rng, values, 15, 1) for _ in range(6000)])
    assert (np.diff(found, axis=1) == 1).all()
    counts = np.bincount(found[:, 0].astype(int))
    assert len(counts) == 6
    assert (np.abs(counts - 1000) < 5 * np.sqrt(1000)).all()


def test_a_short_series_begins_late_and_ends_in_its_second_half() -> None:
    rng = np.random.default_rng(0)
    values = np.arange(10, dtype=np.float32)
    for least, earliest in ((3, 5), (8, 8)):
        found = np.stack([random_window(rng, values, 12, least) for _ in range(500)])
        seen = ~np.isnan(found)
        assert set(found[:, -1].astype(int) + 1) == set(range(earliest, 11))
        assert (seen.sum(axis=1) == found[:, -1] + 1).all()
        assert (np.diff(seen.astype(int), axis=1) >= 0).all()
