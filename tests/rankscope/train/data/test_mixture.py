"""The corpus: shares, curriculum, TSMixup, and histories that are cut and punctured."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from rankscope.errors import DataError, OptionError
from rankscope.train import ModelShape, PretrainConfig
from rankscope.train.data.kernelsynth import kernel_bank
from rankscope.train.data.mixture import (
    LONGEST_GROWTH,
    Mixture,
    corpus_batch,
    mean_scaled,
    mix,
    mix_within,
    mixed_counts,
)
from rankscope.train.data.pool import read_pool
from rankscope.train.data.structured import seasonal_series, structured_series
from rankscope.train.stream import SeriesStream

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
        ({"files": ("a.csv",)}, "give both, the share above 0, or neither"),
        ({"file_share": 0.5}, "give both, the share above 0, or neither"),
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


def test_a_mixture_is_the_slow_sum_of_its_scaled_parts() -> None:
    parts = np.random.default_rng(0).normal(5, 1, (6, 12))
    parts[4, :5] = np.nan
    counts = np.array([1, 2, 3])
    mixed = mix(np.random.default_rng(1), parts, counts)
    share = np.random.default_rng(1).standard_gamma(1.5, 6)
    for row, members in enumerate(([0], [1, 2], [3, 4, 5])):
        wanted = np.zeros(12)
        for member in members:
            weight = share[member] / sum(share[m] for m in members)
            wanted = wanted + weight * parts[member] / np.nanmean(np.abs(parts[member]))
        assert np.allclose(mixed[row], wanted, equal_nan=True)
    assert np.isnan(mixed[2, :5]).all()


def test_weights_have_the_moments_of_the_dirichlet_law() -> None:
    # Parts e₁, e₂, e₃ (mean |x| scaled to 1, so 3 e_k) show the weights themselves.
    counts = np.full(20_000, 3)
    mixed = mix(np.random.default_rng(2), np.tile(np.eye(3), (20_000, 1)), counts, 1.5) / 3
    assert np.allclose(mixed.sum(axis=1), 1)
    variance = (1 / 3) * (2 / 3) / (3 * 1.5 + 1)
    assert np.abs(mixed.mean(axis=0) - 1 / 3).max() < 5 * np.sqrt(variance / 20_000)
    assert np.abs(mixed.var(axis=0) / variance - 1).max() < 0.05


def test_one_two_or_three_series_are_mixed_with_equal_odds() -> None:
    counts = np.bincount(mixed_counts(np.random.default_rng(0), 9000), minlength=4)
    assert counts[0] == 0
    assert len(counts) == 4
    assert (np.abs(counts[1:] - 3000) < 5 * np.sqrt(2000)).all()


def test_scaling_looks_at_what_is_observed_and_leaves_zeros_alone() -> None:
    scaled = mean_scaled(np.array([[np.nan, 2.0, -4.0], [0.0, 0.0, 0.0]]))
    assert np.allclose(scaled, [[np.nan, 2 / 3, -4 / 3], [0, 0, 0]], equal_nan=True)


def test_mixing_within_a_batch_is_convex() -> None:
    pool = np.abs(np.random.default_rng(0).normal(size=(40, 10))) + 1
    scaled = pool / np.abs(pool).mean(axis=1, keepdims=True)
    mixed = mix_within(np.random.default_rng(1), pool, share=1.0, concentration=1.5)
    assert (mixed >= scaled.min(axis=0) - 1e-12).all()
    assert (mixed <= scaled.max(axis=0) + 1e-12).all()
    assert np.allclose(mixed.mean(axis=1), 1.0)  # every part has mean |x| = 1 and all are positive
    assert not any(np.allclose(row, one) for row in mixed for one in scaled)  # never a mixture of one
    assert mix_within(np.random.default_rng(1), pool, share=0.0, concentration=1.5) is pool


def test_plain_seasonal_series_repeat():
    series = seasonal_series(np.random.default_rng(0), 300, 576)
    assert series.shape == (300, 576)
    assert np.isfinite(series).all()
    # Some lag up to the longest period predicts the last part far better than the mean does, for nearly every series.
    last, spread = series[:, -64:], series[:, -64:].std(axis=1)
    lags = (4, 5, 7, 12, 24, 48, 52, 60, 96)
    errors = np.stack([np.abs(last - series[:, -64 - lag : -lag]).mean(axis=1) for lag in lags])
    assert (errors.min(axis=0) < 0.6 * spread).mean() > 0.75


def test_the_curriculum_fades_from_plain_seasons_to_the_mixture():
    mixture = Mixture(seasonal_share=0.25, curriculum=100, short_share=0.0, missing_share=0.0)
    assert [mixture.seasonal_share_at(step) for step in (0, 50, 100, 10_000)] == [1.0, 0.625, 0.25, 0.25]
    assert Mixture().seasonal_share_at(0) == 0.0

    def changed(step: int) -> float:
        """Share of series that are others than without plain ones."""
        plain, _ = corpus_batch(np.random.default_rng(3), 400, 48, 16, mixture, None, step=step)
        usual, _ = corpus_batch(
            np.random.default_rng(3), 400, 48, 16, Mixture(short_share=0.0, missing_share=0.0), None
        )
        return float((plain != usual).any(axis=1).mean())

    assert changed(0) == 1.0
    assert abs(changed(50) - 0.625) < 0.1
    assert abs(changed(1000) - 0.25) < 0.1


def test_the_curriculum_counts_steps_of_all_processes():
    config = PretrainConfig(
        family="chronos-bolt",
        context=32,
        horizon=8,
        batch_size=4,
        bank_kernels=0,
        model=ModelShape(patch_size=8),
        mixture=Mixture(curriculum=10),
    )
    alone = SeriesStream(dataclasses.replace(config, batch_size=8), None)
    shared = SeriesStream(config, None, processes=2)
    for one, other in zip(alone.__getitems__(range(40, 48)), shared.__getitems__(range(40, 48)), strict=True):
        assert torch.equal(one["target"], other["target"])


def test_smooth_growth_is_short_and_draws_nothing_where_it_has_no_share() -> None:
    def batch(**shares: float) -> tuple[np.ndarray, np.ndarray]:
        mixture = Mixture(kernel_share=0.0, mixup_share=0.0, short_share=0.0, missing_share=0.0, **shares)
        return corpus_batch(np.random.default_rng(3), 64, 256, 16, mixture, None)

    plain, mixed, grown = batch(), batch(growth_share=0.5), batch(growth_share=1.0)
    seen = [np.isfinite(history).sum(axis=1) for history, _ in (plain, mixed, grown)]
    assert (seen[0] == 256).all()
    assert 16 < (seen[1] < 256).sum() < 48
    np.testing.assert_array_equal(plain[0][seen[1] == 256], mixed[0][seen[1] == 256])
    assert 8 <= seen[2].min() < seen[2].max() <= LONGEST_GROWTH
    whole = np.concatenate(grown, axis=1).astype(np.float64)
    assert (whole[np.isfinite(whole)] > 0).all()
    rate = np.diff(np.log(whole[:, -LONGEST_GROWTH - 16 :]), axis=1)
    assert abs(np.nanmedian(rate)) < 0.1
    assert np.nanmedian(np.abs(np.diff(rate, axis=1))) < 0.03  # a season or noise alone would be far rougher
