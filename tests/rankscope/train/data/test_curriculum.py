"""Plain seasonal series and the curriculum that begins with them."""

import dataclasses

import numpy as np
import torch

from rankscope.train import ModelShape, PretrainConfig
from rankscope.train.data.mixture import Mixture, corpus_batch
from rankscope.train.data.structured import seasonal_series
from rankscope.train.stream import SeriesStream


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
