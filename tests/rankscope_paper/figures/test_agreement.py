"""Where docs/figures.md says that a figure agrees with the paper, or does not, its numbers do, or do not.

The truth is the direction of an effect that the paper shows; each test asks the numbers that a figure is drawn from.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest

from rankscope_paper.figures import FIGURES, Settings, draw
from rankscope_paper.figures.recipe import text_model

pytestmark = pytest.mark.skipif(not text_model(), reason="the bundled text model is not installed")

EMBEDDED = ("bundled", "bundled-bolt", "bundled-vit", *text_model())


@cache
def whole_frame(number: str, *models: str) -> pd.DataFrame:
    """Numbers of a figure, of all its parts, from bundled models and carried results."""
    made = draw(FIGURES[number], Settings(models=models, quick="quick" in FIGURES[number].takes))
    parts = made if isinstance(made, tuple) else (made,)
    return pd.concat([one.frame.assign(part=one.name) for one in parts], ignore_index=True)


def frame(number: str, *models: str) -> pd.DataFrame:
    """Numbers of trained networks."""
    rows = whole_frame(number, *models)
    return rows[rows["trained"].ne(False)] if "trained" in rows else rows  # parts without a start have NaN


def before(number: str, *models: str) -> pd.DataFrame:
    """Numbers of the same networks before training."""
    rows = whole_frame(number, *models)
    return rows[rows["trained"].eq(False)]


def share_above(sigma: pd.Series, eps: float = 0.1) -> float:
    return float((sigma > eps * sigma.max()).mean())


def query_ranks(number: str, *models: str) -> tuple[list[int], int]:
    """0.1-ranks of the encoder's W_Q, first layer to last, and the width."""
    rows = frame(number, *models)
    queries = rows[(rows["role"] == "self.q") & (rows["stack"] == "encoder")].sort_values("layer")
    return queries["eps_rank@0.1"].tolist(), int(queries["d_in"].iloc[0])


def mean_ranks(number: str, field: str, column: str = "mean_rank", eps: float = 0.1) -> pd.Series:
    rows = frame(number)
    rows = rows[(rows["group"] == "all") & np.isclose(rows["eps"], eps)]
    return rows.groupby(field)[column].mean().sort_index()


def embedded_shares(rows: pd.DataFrame) -> pd.Series:
    return rows.groupby("model")["relative_sigma"].agg(share_above)


def test_series_are_embedded_at_lower_rank_than_text_is() -> None:
    shares = embedded_shares(frame("2a", *EMBEDDED))
    bins, patches, text = shares["bundled"], shares["bundled-bolt"], shares[text_model()[0]]
    assert patches < 0.1
    assert patches < bins < text
    assert text > 0.9


def test_images_are_embedded_like_series_here() -> None:
    shares = embedded_shares(frame("2a", *EMBEDDED))
    assert shares["bundled-vit"] < 0.2 < shares["bundled"]


def test_patches_have_low_rank_before_training_and_bins_learn_theirs() -> None:
    shares, start = (embedded_shares(rows("2a", *EMBEDDED)) for rows in (frame, before))
    assert start["bundled-bolt"] < 0.2
    assert start["bundled"] > 0.9 > 0.8 > shares["bundled"]


def neighbours(rows: pd.DataFrame) -> float:
    """Mean distance of tokens that follow each other over that of tokens in random order."""
    rows = rows.sort_values("token_id")
    points = rows[["along_v1", "along_v2"]].to_numpy()[16:-16]  # special tokens, and bins that no value is in
    mixed = np.random.default_rng(0).permutation(points)
    steps = [np.linalg.norm(np.diff(one, axis=0), axis=1).mean() for one in (points, mixed)]
    return float(steps[0] / steps[1])


def test_a_vocabulary_of_values_is_ordered_along_its_curve_and_one_of_words_is_not() -> None:
    assert neighbours(frame("2b")) < 0.5
    assert neighbours(frame("2c")) > 0.8
    assert min(neighbours(before("2b")), neighbours(before("2c"))) > 0.8


def test_larger_patches_are_embedded_into_more_dimensions() -> None:
    for eps in (0.01, 0.001):
        counts = (
            frame("3a").groupby("patch_size")["relative_sigma"].agg(lambda sigma, eps=eps: int((sigma > eps).sum()))
        )
        assert counts.sort_index().is_monotonic_increasing
        assert counts.is_unique


def test_embedded_patches_are_closer_together_than_random_vectors() -> None:
    angles = frame("3b").groupby("map")["degrees"].mean()
    assert max(angles["sinusoids"], angles["white noise"]) < angles["random, d = 16"] < angles["random, d = 256"]


def test_the_rank_of_queries_grows_more_slowly_than_the_width() -> None:
    series, text = mean_ranks("4a", "model.d_model"), mean_ranks("4b", "model.d_model")
    share = series / series.index
    assert share.is_monotonic_decreasing
    assert series.iloc[-1] < 1.1 * series.iloc[-2]
    assert all(text[width] / width > share[width] for width in text.index)


def test_queries_behind_patches_have_low_rank_that_grows_with_depth_and_behind_words_and_bins_they_do_not() -> None:
    (text, width), (bins, d) = query_ranks("5b"), query_ranks("5a")
    for model in ("bundled-bolt", "bundled-2"):
        patches, _ = query_ranks("5a", model)
        assert patches[0] == min(patches) < 0.2 * d
        assert patches[-1] > 1.5 * patches[0]
        assert max(patches) / d < min(text) / width
    assert min(bins) / d > 0.5


def test_a_constant_signal_gains_rank_from_layer_to_layer() -> None:
    rows = frame("5c")
    rows = rows[(rows["quantity"] == "relative_sigma") & (rows["matrix"] == "input")]
    ranks, coarse = ([int((one["value"] > eps).sum()) for _, one in rows.groupby("layer")] for eps in (1e-5, 0.1))
    assert ranks[0] <= 2
    assert ranks == sorted(set(ranks))
    assert max(coarse) <= 2


@pytest.mark.slow
def test_sinusoids_are_embedded_at_lower_rank_than_noise() -> None:
    ranks = signal_ranks(frame("8"))
    for model in ("bundled", "bundled-bolt"):
        assert ranks[model, "sine"] < ranks[model, "noise"]
    for model in ("bundled-wavetoken", "bundled-time-moe"):
        assert 5 > ranks[model, "sine"] >= ranks[model, "noise"]
    start = signal_ranks(frame("8"), "spectrum before training")
    assert start["bundled-bolt", "sine"] < start["bundled-bolt", "noise"]


def signal_ranks(rows: pd.DataFrame, quantity: str = "spectrum") -> pd.Series:
    rows = rows[rows["quantity"] == quantity]
    return rows.groupby(["model", "signal"])["relative_sigma"].agg(lambda sigma: int((sigma > 0.1).sum()))


def test_singular_values_fall_faster_behind_patches_than_behind_words_and_in_queries_than_in_the_mlp() -> None:
    rows = frame("12")
    shares = rows.groupby(["model", "matrix"])["relative_sigma"].agg(lambda sigma: float((sigma > 0.1).mean()))
    text = text_model()[0]
    assert shares["bundled-bolt", "W_Q"] < 0.5 * shares[text, "W_Q"]
    assert shares["bundled", "W_Q"] > shares[text, "W_Q"]
    assert all(shares[model, "W_MLP"] < shares[text, "W_MLP"] for model in ("bundled", "bundled-bolt"))
    assert all(shares[model, "W_Q"] < shares[model, "W_MLP"] for model in (text, "bundled", "bundled-bolt"))


def test_leading_directions_grow_out_of_a_small_start() -> None:
    rows = frame("13")
    largest = rows.groupby(["layer", "step"])["sigma"].max().unstack("step")
    medians = rows.groupby(["layer", "step"])["sigma"].median().unstack("step")
    assert (largest.diff(axis=1).iloc[:, 1:] > 0).all().all()
    first, last = largest.columns[0], largest.columns[-1]
    assert (largest[last] > 10 * largest[first]).all()
    assert (medians[last] / largest[last] < 0.5 * medians[first] / largest[first]).all()


def test_rows_of_one_head_are_closer_to_each_other_than_to_those_of_other_heads() -> None:
    for name, rows in frame("14").groupby("model"):
        heads = int(str(name).removeprefix("h = "))
        width = (1 + int(rows[["row", "column"]].to_numpy().max())) // heads
        within = rows["row"] // width == rows["column"] // width
        assert rows[within]["degrees"].mean() < rows[~within]["degrees"].mean(), name


@pytest.mark.slow
def test_more_heads_give_queries_of_higher_rank_and_heads_of_lower() -> None:
    assert mean_ranks("16", "model.num_heads").is_monotonic_increasing
    assert mean_ranks("16", "model.num_heads", "mean_head_rank").is_monotonic_decreasing
