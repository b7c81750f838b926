"""Series of shards as a function of their number, and windows of stored series."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rankscope.errors import OptionError
from rankscope.train.data.pool import random_window, read_pool
from rankscope.train.data.synthesis import CHUNK, KINDS, Synthesis, shard_series


def ramps(tmp_path: Path, length: int) -> str:
    """Two user series of one length: 1, 2, 3 … and the same backwards."""
    up = list(range(1, length + 1))
    rows = [f'{{"item_id": "{name}", "target": {values}}}' for name, values in (("up", up), ("down", up[::-1]))]
    (tmp_path / "ramps.jsonl").write_text("\n".join(rows) + "\n")
    return str(tmp_path / "ramps.jsonl")


@pytest.mark.parametrize("kind", KINDS)
def test_a_shard_is_a_function_of_seed_and_number(kind: str) -> None:
    spec = Synthesis(kind, 20, 40, seed=1, shard_size=8)
    series, lengths = shard_series(spec, 1, None)
    assert series.shape == (8, 40)
    assert series.dtype == np.float32
    assert np.isfinite(series).all()
    assert (lengths == 40).all()
    again, _ = shard_series(Synthesis(kind, 20, 40, seed=1, shard_size=8), 1, None)
    assert np.array_equal(series, again)
    for spec_, shard in ((spec, 0), (Synthesis(kind, 20, 40, seed=2, shard_size=8), 1)):
        other, _ = shard_series(spec_, shard, None)
        assert not np.array_equal(series, other)
    assert shard_series(spec, 2, None)[0].shape == (4, 40)


@pytest.mark.parametrize("kind", KINDS)
def test_lengths_are_equally_likely_between_the_limits(kind: str) -> None:
    spec = Synthesis(kind, 400, 12, min_length=8, shard_size=400)
    series, lengths = shard_series(spec, 0, None)
    counts = np.bincount(lengths, minlength=13)
    assert counts[:8].sum() == 0
    assert (np.abs(counts[8:] - 80) < 5 * np.sqrt(80)).all()
    seen = np.arange(12)[None, :] >= (12 - lengths)[:, None]
    assert np.isfinite(series[seen]).all()


def test_progress_counts_every_series_once() -> None:
    told: list[int] = []
    shard_series(Synthesis("structured", CHUNK + 5, 8, shard_size=CHUNK + 5), 0, None, told.append)
    assert told == [CHUNK, 5]


def test_mixtures_of_user_series_are_convex_over_their_own_length(tmp_path: Path) -> None:
    file = ramps(tmp_path, 30)
    spec = Synthesis("tsmixup", 200, 30, min_length=10, shard_size=200, files=(file,), file_share=1.0)
    series, lengths = shard_series(spec, 0, read_pool([file], 10))
    shares = np.zeros(2, dtype=int)
    for row, length in zip(series.astype(float), lengths, strict=True):
        values = row[30 - length :]
        assert np.isfinite(values).all()
        assert values.mean() == pytest.approx(1.0, abs=1e-5)  # all parts are positive with mean 1 over this length
        assert np.abs(np.diff(values, 2)).max() < 1e-5  # a mixture of straight lines is one
        shares[0 if values[-1] > values[0] else 1] += 1
    assert shares.min() > 50


def test_a_mixture_begins_with_its_shortest_part(tmp_path: Path) -> None:
    file = ramps(tmp_path, 20)
    spec = Synthesis("tsmixup", 50, 32, min_length=12, shard_size=50, files=(file,), file_share=1.0)
    series, lengths = shard_series(spec, 0, read_pool([file], 12))
    assert lengths.max() == 20
    assert lengths.min() >= 12
    for row, length in zip(series, lengths, strict=True):
        assert np.isfinite(row[32 - length :]).all()


def test_the_asked_share_of_a_mixture_is_the_users(tmp_path: Path) -> None:
    file = ramps(tmp_path, 60)
    spec = Synthesis("mixture", 400, 30, shard_size=400, files=(file,), file_share=0.4)
    series, _ = shard_series(spec, 0, read_pool([file], 30))
    steps = np.diff(series.astype(float), axis=1)
    straight = (np.abs(steps) == 1).all(axis=1)
    wanted = 400 * 0.4 * 0.85  # 15 % of all series are mixtures
    assert abs(straight.sum() - wanted) < 5 * np.sqrt(wanted)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "kernelsinth"}, "did you mean 'kernelsynth'"),
        ({"format": "csv"}, "arrow, parquet"),
        ({"n": 0}, "n is 0"),
        ({"length": 0}, "length is 0"),
        ({"length": 2**21}, "at most 1048576"),
        ({"shard_size": 0}, "shard_size is 0"),
        ({"shard_size": 2**22}, "lower shard_size to 2097151"),
        ({"min_length": 2000}, "from 1 to length, 1024"),
        ({"seed": -1}, "seed is -1"),
        ({"files": ("a.csv",), "file_share": 0.5}, "choose tsmixup or mixture"),
        ({"kind": "mixture", "files": ("a.csv",)}, "file_share is 0"),
        ({"kind": "mixture", "file_share": 0.5}, "file_share is 0.5"),
    ],
)
def test_bad_settings_get_one_line(changes: dict, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        Synthesis(**{"kind": "kernelsynth", "n": 10, **changes})
    assert "\n" not in str(caught.value)


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
