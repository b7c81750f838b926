"""The generated corpus: laws that its parts must keep."""

import numpy as np
import pytest

from rankscope.pretrain.data.kernels import BASE, draw, kernel_bank, random_kernel
from rankscope.pretrain.data.mixture import Mixture, corpus_batch, tsmixup
from rankscope.pretrain.data.seasonal import structured_series


def test_the_covariance_of_many_draws_is_the_kernel():
    t = np.linspace(0, 1, 12)
    kernel = np.exp(-0.5 * ((t[:, None] - t[None, :]) / 0.3) ** 2) + 0.1 * np.eye(12)
    paths = draw(np.random.default_rng(0), kernel, 60_000)
    assert paths.shape == (60_000, 12)
    # The standard error of a covariance over n draws is at most sqrt(2/n)·k(0) ≈ 0.0064.
    assert np.abs(paths.T @ paths / len(paths) - kernel).max() < 4.5 * 0.0064


@pytest.mark.parametrize("name", sorted(BASE))
def test_every_base_kernel_is_positive_semidefinite(name):
    kernel = BASE[name](np.random.default_rng(3), np.linspace(0, 1, 40))
    assert np.allclose(kernel, kernel.T)
    values = np.linalg.eigvalsh(kernel)
    assert values.min() > -1e-9 * values.max()


def test_a_periodic_kernel_repeats_after_its_period():
    for seed in range(5):
        kernel = BASE["periodic"](np.random.default_rng(seed), np.arange(400) / 400)
        period = int(
            np.random.default_rng(seed).choice((4, 5, 7, 12, 14, 24, 26, 30, 48, 52, 60, 96, 120, 144, 168, 336, 365))
        )
        assert np.allclose(kernel[0, period], kernel[0, 0])


def test_composed_kernels_stay_positive_semidefinite():
    rng = np.random.default_rng(5)
    for _ in range(10):
        values = np.linalg.eigvalsh(random_kernel(rng, 30))
        assert values.min() > -1e-8 * max(values.max(), 1e-12)


def test_the_bank_is_a_function_of_its_seed_and_standardised():
    bank = kernel_bank(7, kernels=3, draws=5, length=50)
    assert bank.shape == (15, 50)
    assert np.array_equal(bank, kernel_bank(7, 3, 5, 50))
    assert not np.array_equal(bank, kernel_bank(8, 3, 5, 50))
    assert np.allclose(bank.mean(axis=1), 0, atol=1e-4)


def test_structured_series_are_finite_and_their_seen_part_varies():
    span = np.full(200, 60)
    series = structured_series(np.random.default_rng(0), 200, 300, span)
    assert series.shape == (200, 300)
    assert np.isfinite(series).all()
    assert (series[:, -60:].std(axis=1) > 0).mean() > 0.97


def test_mixup_is_a_convex_combination_of_mean_scaled_series():
    rng = np.random.default_rng(0)
    pool = np.abs(rng.normal(size=(40, 10))) + 1
    scaled = pool / np.abs(pool).mean(axis=1, keepdims=True)
    mixed = tsmixup(np.random.default_rng(1), pool, share=1.0, concentration=1.5)
    assert (mixed >= scaled.min(axis=0) - 1e-12).all()
    assert (mixed <= scaled.max(axis=0) + 1e-12).all()
    assert np.allclose(mixed.mean(axis=1), 1.0)  # every part has mean |x| = 1 and all are positive
    assert tsmixup(np.random.default_rng(1), pool, share=0.0, concentration=1.5) is pool


def test_histories_are_shortened_and_punctured_as_asked():
    mixture = Mixture(kernel_share=0.3, mixup_share=0.3, short_share=1.0, shortest=5, missing_share=0.0)
    bank = kernel_bank(0, 2, 4, 80)
    history, future = corpus_batch(np.random.default_rng(0), 300, 48, 16, mixture, bank)
    assert history.shape == (300, 48)
    assert future.shape == (300, 16)
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
