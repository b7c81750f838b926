"""TSMixup: convex combinations of mean-scaled series, weighted by Dirichlet's law."""

from __future__ import annotations

import numpy as np

from rankscope.train.data.mixup import mean_scaled, mix, mix_within, mixed_counts


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
