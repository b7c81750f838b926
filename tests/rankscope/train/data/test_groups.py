"""Groups of series: the laws that tie their members, and what of it reaches a batch."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import OptionError
from rankscope.train.config import ModelShape, PretrainConfig
from rankscope.train.data import groups
from rankscope.train.data.groups import (
    EFFECTS,
    GROUP_KINDS,
    SPARE,
    GroupKind,
    cointegrated,
    driven,
    group_batch,
    group_layout,
    leading,
    plainly_driven,
    shared_factors,
    sums,
)
from rankscope.train.data.mixture import Mixture, corpus_batch
from rankscope.train.data.structured import plan_series, structured_series
from rankscope.train.stream import Blocks, GroupCollator, SeriesStream
from rankscope.train.trainer import training_run

LENGTH = 256
MIXTURE = Mixture(kernel_share=0.0, group_share=0.6, missing_share=0.2)
CONFIG = PretrainConfig(
    family="chronos-2", model=ModelShape(patch_size=8), context=64, horizon=32, mixture=MIXTURE, bank_kernels=0,
    batch_size=24,
)  # fmt: skip


def parts(seed: int, members: int) -> np.ndarray:
    return np.random.default_rng([seed, 1]).standard_normal((members, LENGTH + SPARE))


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**31), st.integers(1, 70), st.sampled_from([1, 4, 16, 64]), st.floats(0, 1), st.integers(2, 9))
def test_groups_are_neighbours_of_a_unit_and_have_two_to_the_most_members(seed, n, unit, share, largest):
    leaders = group_layout(np.random.default_rng(seed), n, unit, share, largest)
    assert leaders.shape == (n,)
    assert (np.diff(leaders) >= 0).all()
    for first, size in zip(*np.unique(leaders, return_counts=True), strict=True):
        assert leaders[first] == first
        assert size <= largest
        assert first // unit == (first + size - 1) // unit


def test_the_share_of_grouped_series_is_the_one_asked_for():
    found = [group_layout(np.random.default_rng(seed), 64, 64, 0.5, 8) for seed in range(400)]
    shares = [np.mean(np.bincount(leaders)[leaders] > 1) for leaders in found]
    # A group that would have one member is left out: at most one series of 64 per batch.
    assert 0.5 - 1 / 64 - 4 * np.std(shares) / 20 < np.mean(shares) < 0.5 + 4 * np.std(shares) / 20


@pytest.mark.parametrize("n", [1, 33])
def test_without_groups_the_corpus_is_what_it_was(n):
    mixture = Mixture(kernel_share=0.0)
    history, future, leaders, known = group_batch(np.random.default_rng(3), n, n, 64, 16, mixture, None)
    expected = corpus_batch(np.random.default_rng(3), n, 64, 16, mixture, None)
    np.testing.assert_array_equal(history, expected[0])
    np.testing.assert_array_equal(future, expected[1])
    assert leaders.tolist() == list(range(n))
    assert not known.any()


def test_series_of_a_group_share_their_periods():
    leaders = np.array([0, 0, 0, 3, 4, 4])
    plan = plan_series(np.random.default_rng(0), 6, 64, alike=leaders)
    free = plan_series(np.random.default_rng(0), 6, 64)
    for name in ("inner", "outer", "third"):
        np.testing.assert_array_equal(getattr(plan.periods, name), getattr(free.periods, name)[leaders])
    own = structured_series(np.random.default_rng(1), 5, 64, alike=np.arange(5))
    np.testing.assert_array_equal(own, structured_series(np.random.default_rng(1), 5, 64))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("factors", [1, 3])
def test_a_noiseless_group_has_the_rank_of_its_factors(seed, factors):
    series, known = shared_factors(np.random.default_rng(seed), parts(seed, 6), factors, own=0.0)
    assert series.shape == (6, LENGTH)
    centred = series - series.mean(axis=1, keepdims=True)
    assert np.linalg.matrix_rank(centred, tol=1e-8 * np.linalg.norm(centred)) == factors
    assert not known.any()
    noisy, _ = shared_factors(np.random.default_rng(seed), parts(seed, 6), factors, own=0.1)
    assert np.linalg.matrix_rank(noisy) == 6


@pytest.mark.parametrize("seed", range(10))
def test_followers_repeat_the_leader(seed):
    series, _ = leading(np.random.default_rng(seed), parts(seed, 5), own=0.0)
    for follower in series[1:]:
        errors = [
            min(np.abs(follower[lag:] - sign * series[0, : LENGTH - lag]).max() for sign in (-1, 1))
            for lag in range(1, SPARE + 1)
        ]
        assert min(errors) < 1e-12


def test_the_first_member_is_the_sum_of_the_others():
    series, _ = sums(np.random.default_rng(0), parts(0, 5))
    np.testing.assert_allclose(series[0], series[1:].sum(axis=0))


def test_members_around_a_common_walk_are_cointegrated():
    """Engle and Granger's test (statsmodels) rejects for pairs of a group, and for independent walks does not."""
    from statsmodels.tsa.stattools import coint

    def rejected(pairs):
        return np.mean([coint(*pair)[1] < 0.05 for pair in pairs])

    tied = [cointegrated(np.random.default_rng(seed), parts(seed, 2))[0] for seed in range(40)]
    free = [np.cumsum(parts(seed, 2)[:, SPARE:], axis=1) for seed in range(40)]
    assert rejected(tied) > 0.8
    assert rejected(free) < 0.25


@pytest.mark.parametrize("effect", EFFECTS)
def test_effects_follow_their_causes(effect):
    driver, other = np.random.default_rng(0).standard_normal((2, LENGTH))
    changed = driver.copy()
    changed[200:] += 1.0
    before, after = (EFFECTS[effect](np.random.default_rng(1), one, other) for one in (driver, changed))
    np.testing.assert_array_equal(before[:200], after[:200])
    assert np.abs(before[200:] - after[200:]).max() > 0.01


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_target_without_anything_of_its_own_is_a_function_of_its_covariates(effect):
    components = parts(2, 4)
    for seed in range(20):
        first, known = driven(np.random.default_rng(seed), components, [effect], own=0.0)
        other = components.copy()
        other[~known] = parts(3, 4)[~known]
        again, _ = driven(np.random.default_rng(seed), other, [effect], own=0.0)
        np.testing.assert_array_equal(first, again)
        mixed, _ = driven(np.random.default_rng(seed), components, [effect], own=1.0)
        assert np.abs(mixed[~known] - first[~known]).max() > 0.1


@pytest.mark.parametrize("seed", range(10))
def test_a_linear_target_lies_in_the_span_of_its_covariates(seed):
    series, known = driven(np.random.default_rng(seed), parts(seed, 4), ["linear"], own=0.0)
    basis = np.vstack([series[known], np.ones(LENGTH)]).T
    for target in series[~known]:
        fitted = basis @ np.linalg.lstsq(basis, target, rcond=None)[0]
        np.testing.assert_allclose(fitted, target, atol=1e-9)


@pytest.mark.parametrize("kind", GROUP_KINDS)
@pytest.mark.parametrize("members", [2, 3, 8])
def test_every_kind_draws_finite_series_and_leaves_something_to_forecast(kind, members):
    for seed in range(30):
        series, known = GROUP_KINDS[kind].draw(np.random.default_rng(seed), parts(seed, members))
        assert series.shape == (members, LENGTH)
        assert np.isfinite(series).all()
        assert not known.all()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.55, 1.0])
def test_some_groups_are_plainly_driven(share, monkeypatch):
    """Nothing is known of the groups of the corpus here, so that plainly driven ones can be told apart."""
    monkeypatch.setattr(groups, "GROUP_KINDS", {"sums": GroupKind(sums, 1.0)})
    mixture = dataclasses.replace(MIXTURE, group_share=1.0, largest_group=2, plain_groups=share)
    _, _, leaders, known = group_batch(np.random.default_rng(0), 2000, 2000, 64, 16, mixture, None, None, 0)
    plain = known.sum() / len(np.unique(leaders))
    assert abs(plain - share) <= 5 * (share * (1 - share) / 1000) ** 0.5


@pytest.mark.parametrize("seed", range(10))
def test_plainly_driven_targets_follow_their_covariates(seed):
    series, known = plainly_driven(np.random.default_rng(seed), own := parts(seed, 4))
    basis = np.vstack([series[known], np.ones(LENGTH)]).T
    for row in np.flatnonzero(~known):
        left = series[row] - basis @ np.linalg.lstsq(basis, series[row], rcond=None)[0]
        assert 0 < left.std() <= 0.2 * own[row, SPARE:].std()


def test_known_covariates_reach_the_future_and_nothing_else_does():
    stream, collate = SeriesStream(CONFIG, None), GroupCollator(8)
    some = 0
    for step in range(8):
        batch = collate(stream.__getitems__(range(24 * step, 24 * step + 24)))
        rng = np.random.default_rng([CONFIG.seed, 5, 24 * step])
        CONFIG.mixture.draw_context(rng, 64, step, 8)
        if rng.random() >= 0.5:
            rng.integers(1, 33)
        _, future, leaders, known = group_batch(rng, 24, 24, 64, 32, MIXTURE, None, None, step)
        steps = batch["future_target"].shape[1]
        assert steps == 8 * batch["num_output_patches"]
        assert batch["group_ids"].tolist() == (24 * step + leaders).tolist()
        target, given = batch["future_target"].numpy(), batch["future_covariates"].numpy()
        np.testing.assert_array_equal(target[~known], future[~known, :steps])
        assert np.isnan(given[~known]).all()
        shown = ~np.isnan(given)
        np.testing.assert_array_equal(given[shown], future[:, :steps][shown])
        assert not (shown & ~np.isnan(target)).any()
        some += int(shown[known].any(axis=1).sum())
        for group in set(leaders[known]):
            assert not known[leaders == group].all()
    assert some > 8


def test_the_stock_loss_counts_targets_only():
    from rankscope.train.models import new_model

    torch.manual_seed(0)
    shape = ModelShape(d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, patch_size=8)
    model = new_model(dataclasses.replace(CONFIG, model=shape))
    rows = SeriesStream(CONFIG, None).__getitems__(range(24))
    batch = GroupCollator(8)(rows)
    loss = model(**batch).loss
    other = {**batch, "future_target": torch.where(batch["future_target"].isnan(), 99.0, batch["future_target"])}
    other["future_target"][batch["future_covariates"].isnan() & batch["future_target"].isnan()] = torch.nan
    assert torch.allclose(model(**other).loss, loss)


def test_series_and_groups_do_not_depend_on_how_they_are_dealt_out():
    stream = Blocks(SeriesStream(CONFIG, None), 24)
    whole = stream.__getitems__(range(48))
    halves = [row for begin in (0, 12, 24, 36) for row in stream.__getitems__(range(begin, begin + 12))]
    for one, other in zip(whole, halves, strict=True):
        assert one["group"] == other["group"]
        for name in ("context", "target", "known"):
            assert torch.equal(one[name].nan_to_num(-7.0), other[name].nan_to_num(-7.0))
    groups = [row["group"] for row in whole]
    assert set(groups[:24]).isdisjoint(groups[24:])


@pytest.mark.parametrize("size", [96, 100, 128, 97])
def test_a_batch_of_many_blocks_has_one_length_of_histories_and_of_targets(size):
    mixture = dataclasses.replace(MIXTURE, short_batches=0.7)
    config = dataclasses.replace(CONFIG, batch_size=size, context=256, mixture=mixture)
    stream, collate = Blocks(SeriesStream(config, None), size), GroupCollator(8)
    lengths = set()
    for begin in range(0, 8 * size, size):
        rows = stream.__getitems__(range(begin, begin + size))
        assert len({len(row["context"]) for row in rows}) == 1
        assert len({len(row["target"]) for row in rows}) == 1
        lengths.add(len(rows[0]["context"]))
        targets = collate(rows)["future_target"]
        assert len(targets) == size
        observed = targets[~targets.isnan()]
        assert len(set(observed.tolist())) > 0.5 * len(observed)  # no block is drawn twice
    assert len(lengths) > 1


def test_runs_from_before_there_were_groups_or_parts_to_train_go_on(tmp_path):
    for share, named in ((0.0, False), (0.5, True)):
        config = dataclasses.replace(CONFIG, mixture=dataclasses.replace(MIXTURE, group_share=share))
        settings = training_run(config, tmp_path / "out", "fp32", 1).store.settings
        assert ({"group_share", "largest_group"} <= set(settings["mixture"])) == named
        assert "trainable" not in settings


@pytest.mark.parametrize(
    ("family", "mixture", "message"),
    [
        ("chronos-bolt", {"group_share": 0.5}, "mixture.group_share is 0.5: Chronos-Bolt reads every series alone"),
        ("chronos-2", {"group_share": 1.5}, "mixture.group_share is 1.5: it is a share, from 0 to 1."),
        ("chronos-2", {"plain_groups": 1.5}, "mixture.plain_groups is 1.5: it is a share, from 0 to 1."),
        ("chronos-2", {"largest_group": 1}, "mixture.largest_group is 1: a group has at least 2 series."),
    ],
)
def test_groups_that_cannot_be_are_refused(family, mixture, message):
    with pytest.raises(OptionError, match=message):
        PretrainConfig(family=family, mixture=Mixture(**mixture))
