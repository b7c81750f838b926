"""The corpus of a training run: laws that its parts must keep."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rankscope.errors import DataError, OptionError
from rankscope.train.data.kernels import kernel_bank
from rankscope.train.data.mixture import Mixture, corpus_batch
from rankscope.train.data.pool import read_pool
from rankscope.train.data.structured import structured_series

PLAIN = {"kernel_share": 0.0, "mixup_share": 0.0, "short_share": 0.0, "missing_share": 0.0}


def write_ramps(file: Path, *lengths: int) -> Path:
    """A file whose series of L values is 1000 L, 1000 L + 1, …: every value says where it stood."""
    rows = [f"s{n},{t},{1000 * n + t}" for n in lengths for t in range(n)]
    file.write_text("item_id,time,value\n" + "\n".join(rows) + "\n")
    return file


def test_structured_series_are_finite_and_their_seen_part_varies() -> None:
    span = np.full(200, 60)
    series = structured_series(np.random.default_rng(0), 200, 300, span)
    assert series.shape == (200, 300)
    assert np.isfinite(series).all()
    assert (series[:, -60:].std(axis=1) > 0).mean() > 0.97


def test_histories_are_shortened_and_punctured_as_asked() -> None:
    mixture = Mixture(kernel_share=0.3, mixup_share=0.3, short_share=1.0, shortest=5, missing_share=0.0)
    bank = kernel_bank(0, 2, 4, 80)
    history, future = corpus_batch(np.random.default_rng(0), 300, 48, 16, mixture, bank)
    assert history.shape == (300, 48)
    seen = (~np.isnan(history)).sum(axis=1)
    assert seen.min() >= 4
    assert np.median(seen) < 25
    # Only the past end is cut: once a series begins it has no gaps.
    begun = np.maximum.accumulate(~np.isnan(history), axis=1)
    assert not np.isnan(history[begun]).any()
    assert np.isfinite(future).all()
    punctured, _ = corpus_batch(
        np.random.default_rng(0), 300, 48, 16, Mixture(short_share=0.0, missing_share=1.0), None
    )
    share = np.isnan(punctured).mean()
    assert 0.05 < share < 0.2
    assert not np.isnan(punctured[:, -1]).any()


def test_the_asked_share_comes_from_the_files_and_the_rest_stays_the_generated_one(tmp_path: Path) -> None:
    file = write_ramps(tmp_path / "ramps.csv", 100, 120)
    some = Mixture(files=(str(file),), file_share=0.3, **PLAIN)
    pool = read_pool(some.files, 24)
    history, future = corpus_batch(np.random.default_rng(0), 400, 48, 16, some, None, pool)
    whole = np.concatenate([history, future], axis=1)
    ramp = (np.diff(whole, axis=1) == 1).all(axis=1) & (whole[:, 0] >= 100_000)
    assert abs(ramp.sum() - 120) < 5 * np.sqrt(400 * 0.3 * 0.7)
    without, _ = corpus_batch(np.random.default_rng(0), 400, 48, 16, Mixture(**PLAIN), None)
    assert np.array_equal(history[~ramp], without[~ramp])
    begins = whole[ramp, 0] % 1000
    assert begins.min() < 4
    assert begins.max() > 50


def test_short_series_of_a_file_begin_late_and_mix_where_all_parts_are(tmp_path: Path) -> None:
    pool = read_pool([write_ramps(tmp_path / "short.csv", 30)], 20)
    only = Mixture(files=("short.csv",), file_share=1.0, **PLAIN)
    history, future = corpus_batch(np.random.default_rng(0), 50, 48, 8, only, None, pool)
    whole = np.concatenate([history, future], axis=1)
    seen = (~np.isnan(whole)).sum(axis=1)
    assert seen.min() == 20
    assert seen.max() == 30
    assert not np.isnan(whole[:, -20:]).any()
    assert (whole[:, -1] == 30_000 + seen - 1).all()  # what is there begins with the series' first value


def test_a_history_without_any_observation_asks_for_nothing(tmp_path: Path) -> None:
    gap, many = ",".join(["null"] * 40), ",".join(map(str, range(60)))
    (tmp_path / "gap.jsonl").write_text(f'{{"item_id": "a", "target": [{many}, {gap}, 5, 6, 7, 8]}}\n')
    only = Mixture(files=("gap.jsonl",), file_share=1.0, **PLAIN)
    pool = read_pool([tmp_path / "gap.jsonl"], 8)
    history, future = corpus_batch(np.random.default_rng(0), 200, 20, 4, only, None, pool)
    unseen = np.isnan(history).all(axis=1)
    assert unseen.any()
    assert np.isnan(future[unseen]).all()
    assert not np.isnan(future[~unseen]).all(axis=1).all()


def test_what_cannot_teach_is_left_out_and_counted(tmp_path: Path) -> None:
    rows = [
        f"{{'item_id': '{name}', 'target': {values}}}".replace("'", '"')
        for name, values in {
            "short": [1, 2],
            "gaps": "[1, null, null, null, 2]",
            "flat": [3, 3, 3, 3, 3],
            "good": [1, 2, 3, 4, 5],
        }.items()
    ]
    (tmp_path / "some.jsonl").write_text("\n".join(rows) + "\n")
    pool = read_pool([tmp_path / "some.jsonl"], 4)
    assert (len(pool), pool.short, pool.constant) == (1, 2, 1)
    assert pool.values.tolist() == [1, 2, 3, 4, 5]
    with pytest.raises(
        DataError, match=r"some.jsonl has no series.*of 4, 4 have fewer than 6 .*longest has 5"
    ) as caught:
        read_pool([tmp_path / "some.jsonl"], 6)
    assert "\n" not in str(caught.value)


def test_every_file_has_the_same_weight(tmp_path: Path) -> None:
    many = write_ramps(tmp_path / "many.csv", *range(40, 80))
    one = write_ramps(tmp_path / "one.csv", 100)
    pool = read_pool([many, one], 30)
    windows = pool.windows(np.random.default_rng(0), 1000, 30)
    assert abs((windows[:, 0] >= 100_000).sum() - 500) < 5 * np.sqrt(250)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"files": ("a.csv",)}, "belong together"),
        ({"file_share": 0.5}, "belong together"),
        ({"kernel_share": 1.5}, "kernel_share is 1.5"),
        ({"shortest": 0}, "at least 1"),
        ({"concentration": 0.0}, "above 0"),
    ],
)
def test_bad_mixtures_get_one_line(changes: dict, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Mixture(**changes)


def test_a_bare_file_name_is_no_list_of_files() -> None:
    mixture = Mixture()
    object.__setattr__(mixture, "files", "a.csv")  # as YAML gives it, past the tests' type checker
    with pytest.raises(OptionError, match="list of files"):
        mixture.__post_init__()
