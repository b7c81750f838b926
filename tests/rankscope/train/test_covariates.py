"""A small Chronos-2, trained on groups, makes use of what it is told, and ignores what says nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rankscope import load_pipeline
from rankscope.train import ModelShape, PretrainConfig, pretrain
from rankscope.train.data import groups
from rankscope.train.data.groups import SPARE, Drawn, GroupKind
from rankscope.train.data.mixture import Mixture
from rankscope.train.data.structured import structured_series

CONTEXT, HORIZON, SERIES = 64, 16, 150


def follows(rng: np.random.Generator, parts: np.ndarray) -> Drawn:
    """Draw a target that is its known covariate, and a little of its own."""
    return np.stack([parts[1] + 0.3 * parts[0], parts[1]])[:, SPARE:], np.array([False, True])


def strangers(rng: np.random.Generator, parts: np.ndarray) -> Drawn:
    """Draw two targets that have nothing to do with each other."""
    return parts[:, SPARE:], np.array([False, False])


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Learn from series alone, and from pairs: a target and a known covariate that drives it, or strangers."""
    config = PretrainConfig(
        family="chronos-2",
        model=ModelShape(d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, patch_size=8, start="recency"),
        context=CONTEXT, horizon=HORIZON, bank_kernels=0, max_steps=400, batch_size=32, learning_rate=3e-3,
        mixture=Mixture(kernel_share=0.0, group_share=0.8, largest_group=2, short_share=0.0, missing_share=0.0),
        warmup_steps=50, decay_steps=100, schedule="warmup_stable_decay", save_steps=400, precision="fp32",
    )  # fmt: skip
    kinds = {"driven": GroupKind(follows, 3.0), "strangers": GroupKind(strangers, 1.0)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "GROUP_KINDS", kinds)
        pretrain(config, out := tmp_path_factory.mktemp("trained") / "model", device="cpu")
    return load_pipeline(out)


def errors(pipeline: Any, pairs: np.ndarray, second: str) -> np.ndarray:
    """Mean absolute error of the median of each pair's first series; the second is known, beside it, or left out."""
    past, future = pairs[..., :CONTEXT], pairs[..., CONTEXT:]
    if second == "known":
        tasks = [
            {"target": own, "past_covariates": {"x": other}, "future_covariates": {"x": next_}}
            for (own, other), (_, next_) in zip(past, future, strict=True)
        ]
    else:
        tasks = [{"target": pair if second == "beside" else pair[:1]} for pair in past]
    quantiles, _ = pipeline.predict_quantiles(tasks, prediction_length=HORIZON, quantile_levels=[0.5])
    found = torch.stack(quantiles)[:, 0, :, 0].numpy()
    return np.abs(found - future[:, 0]).mean(axis=1)


def pairs_of(draw: Any) -> np.ndarray:
    """Pairs that the model has not seen; the first series is the target."""
    found = []
    for seed in range(SERIES):
        rng = np.random.default_rng([seed, 77])
        parts = structured_series(rng, 2, CONTEXT + HORIZON + SPARE).astype(float)
        parts = (parts - parts.mean(axis=1, keepdims=True)) / parts.std(axis=1, keepdims=True).clip(1e-6)
        found.append(draw(rng, parts)[0])
    return np.stack(found).astype(np.float32)


@pytest.mark.slow
def test_a_covariate_that_drives_the_target_helps(pipeline: Any) -> None:
    pairs = pairs_of(follows)
    told, alone = errors(pipeline, pairs, "known"), errors(pipeline, pairs, "alone")
    assert told.mean() < 0.7 * alone.mean()


@pytest.mark.slow
def test_a_member_that_says_nothing_does_not_hurt(pipeline: Any) -> None:
    pairs = pairs_of(strangers)
    alone = errors(pipeline, pairs, "alone")
    worse = errors(pipeline, pairs, "beside") - alone
    assert worse.mean() < 0.03 * alone.mean() + 2 * worse.std() / SERIES**0.5
