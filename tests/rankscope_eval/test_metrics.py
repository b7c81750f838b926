import math
from collections.abc import Sequence
from dataclasses import replace

import fev.metrics
import numpy as np
import pandas as pd
import pytest
from gluonts.dataset.split import split
from gluonts.ev.metrics import MASE, MSIS, ND, MeanWeightedSumQuantileLoss
from gluonts.model.evaluation import evaluate_forecasts_raw
from gluonts.model.forecast import QuantileForecast, SampleForecast

from rankscope.errors import DataError
from rankscope.series import Series
from rankscope_eval import metrics
from rankscope_eval.metrics import QUANTILES, Windows, score
from rankscope_eval.suites import Task

HORIZON = 4
TASK = Task(name="t", prediction_length=HORIZON, offset=-HORIZON)


def slow_scores(contexts: Sequence, labels: Sequence, quantiles: np.ndarray, season: int) -> tuple[float, float, int]:
    """MASE, WQL and the number of series without a scale, value by value. ``quantiles[series, level, "
    "time]``."""
    scaled, unscaled = [], 0
    for i, (context, label) in enumerate(zip(contexts, labels, strict=True)):
        lag = season if season <= len(context) else 1
        steps = [abs(context[t] - context[t - lag]) for t in range(lag, len(context))]
        steps = [step for step in steps if not math.isnan(step)]
        scale = sum(steps) / len(steps) if steps else 0.0
        if scale == 0:
            unscaled += 1
            continue
        for t, y in enumerate(label):
            if not math.isnan(y):
                scaled.append(abs(y - quantiles[i, 4, t]) / scale)
    losses = []
    for level, q in enumerate(QUANTILES):
        loss = total = 0.0
        for i, label in enumerate(labels):
            for t, y in enumerate(label):
                if not math.isnan(y):
                    error = y - quantiles[i, level, t]
                    loss += 2 * (q * error if error >= 0 else (q - 1) * error)
                    total += abs(y)
        losses.append(loss / total)
    return (sum(scaled) / len(scaled) if scaled else math.nan), sum(losses) / len(losses), unscaled


def awkward_targets() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    holes = rng.normal(5, 2, 40)
    holes[[0, 3, 4, 20, 37, 39]] = np.nan  # the last two lie in the label
    return [
        rng.normal(0, 1, 30),
        holes,
        np.concatenate([np.full(20, 3.0), [3.0, 4.0, 5.0, 3.0]]),  # constant context: no scale
        rng.normal(100, 1, 5 + HORIZON),  # shorter than a season: lag 1
        1e6 * rng.random(26),
        -rng.random(33),
    ]


@pytest.mark.parametrize("season", [1, 7, 12])
@pytest.mark.parametrize("kind", ["samples", "quantiles"])
def test_scores_are_those_of_the_slow_loop(season: int, kind: str) -> None:
    targets = awkward_targets()
    series = [Series(str(i), pd.Period("2020-01-01", "D"), t) for i, t in enumerate(targets)]
    contexts, labels = [t[:-HORIZON] for t in targets], [t[-HORIZON:] for t in targets]
    rng = np.random.default_rng(1)
    starts = [one.start + len(c) for one, c in zip(series, contexts, strict=True)]
    if kind == "samples":
        drawn = [rng.normal(np.nanmean(c), 1, (20, HORIZON)) for c in contexts]
        forecasts = [SampleForecast(d, start) for d, start in zip(drawn, starts, strict=True)]
        places = [int(np.round(19 * q)) for q in QUANTILES]  # GluonTS takes the nearest order statistic
        quantiles = np.stack([np.sort(d, axis=0)[places] for d in drawn])
    else:
        quantiles = np.sort(rng.normal(3, 2, (len(targets), len(QUANTILES), HORIZON)), axis=1)
        keys = [str(q) for q in QUANTILES]
        forecasts = [QuantileForecast(q, s, keys) for q, s in zip(quantiles, starts, strict=True)]
    windows = Windows(replace(TASK, season_length=season), series)
    ours = score(iter(forecasts), windows)
    mase, wql, unscaled = slow_scores(contexts, labels, quantiles, season)
    assert pytest.approx(mase, rel=1e-12) == ours.MASE
    assert pytest.approx(wql, rel=1e-12) == ours.WQL
    assert ours.unscaled == unscaled >= 1
    theirs = evaluate_forecasts_raw(
        forecasts,
        test_data=split([one.entry for one in series], offset=TASK.offset)[1].generate_instances(HORIZON),
        metrics=[MASE(), MeanWeightedSumQuantileLoss(QUANTILES), MSIS(), ND()],
        seasonality=season,
    )
    assert (theirs["MASE[0.5]"], theirs["mean_weighted_sum_quantile_loss"]) == (ours.MASE, ours.WQL)
    assert theirs["ND[0.5]"] == pytest.approx(ours.WAPE, rel=1e-12)
    assert theirs["MSIS"] == pytest.approx(ours.MSIS, rel=1e-12)
    sums = ours.sums.sum(axis=1)
    loss, total, scaled, count = sums.sum(axis=0)
    assert (scaled / count, loss / total) == pytest.approx((mase, wql), rel=1e-12)
    for i in range(len(series)):  # every window alone
        alone = slow_scores(contexts[i : i + 1], labels[i : i + 1], quantiles[i : i + 1], season)
        loss, total, scaled, count = sums[i]
        assert loss / total == pytest.approx(alone[1], rel=1e-12)
        assert count == (0 if alone[2] else np.isfinite(labels[i]).sum())
        assert alone[2] or scaled / count == pytest.approx(alone[0], rel=1e-12)


def test_further_scores_are_those_of_the_slow_loop_and_of_fev() -> None:
    targets = awkward_targets()
    series = [Series(str(i), pd.Period("2020-01-01", "D"), t) for i, t in enumerate(targets)]
    quantiles = np.sort(np.random.default_rng(1).normal(3, 2, (len(targets), len(QUANTILES), HORIZON)), axis=1)
    forecasts = [
        QuantileForecast(q, one.start + len(one) - HORIZON, [str(level) for level in QUANTILES])
        for q, one in zip(quantiles, series, strict=True)
    ]
    ours = score(forecasts, Windows(replace(TASK, season_length=1), series))
    labels = np.stack([t[-HORIZON:] for t in targets])
    inside = (labels >= quantiles[:, 0]) & (labels <= quantiles[:, -1])
    known = np.isfinite(labels)
    assert ours.coverage == pytest.approx(inside.sum() / known.sum())
    errors = np.abs(labels - quantiles[:, 4])
    assert pytest.approx(np.nansum(errors) / np.nansum(np.abs(labels))) == ours.WAPE
    for step in range(HORIZON):
        at = known[:, step]
        losses = [
            (2 * np.abs((labels - q) * ((labels <= q) - level)))[at, step].sum()
            for q, level in zip(quantiles.swapaxes(0, 1), QUANTILES, strict=True)
        ]
        assert ours.steps.WQL[step] == pytest.approx(np.mean(losses) / np.abs(labels[at, step]).sum())
        assert ours.steps.coverage[step] == pytest.approx(inside[at, step].mean())
        shares = (labels[:, None] <= quantiles)[at, :, step].mean(axis=0)
        assert ours.steps.calibration_error[step] == pytest.approx(np.abs(shares - QUANTILES).mean())
    lengths = np.array([len(t) - HORIZON for t in targets])
    past = np.concatenate([t[:-HORIZON] for t in targets])[:, None]
    theirs = fev.metrics.SQL()._per_quantile_level(
        y_true=labels[..., None],
        y_pred=quantiles[:, 4, :, None],
        y_past=past,
        y_past_lengths=lengths,
        q_pred=quantiles.swapaxes(1, 2)[:, :, None],
        seasonality=1,
        quantile_levels=list(QUANTILES),
    )
    assert pytest.approx(np.mean(theirs), rel=1e-9) == ours.SQL


def test_forecasts_are_read_as_they_come_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    targets = awkward_targets()
    series = [Series(str(i), pd.Period("2020-01-01", "D"), t) for i, t in enumerate(targets)]
    rng = np.random.default_rng(2)
    forecasts = [SampleForecast(rng.normal(size=(20, HORIZON)), one.start + len(one) - HORIZON) for one in series]
    windows = Windows(TASK, series)
    whole = score(forecasts, windows)
    monkeypatch.setattr(metrics, "BLOCK", 4)
    parts = score(iter(forecasts), windows)
    for name in ("MASE", "WQL", "SQL", "WAPE", "MSIS", "coverage"):
        assert getattr(parts, name) == pytest.approx(getattr(whole, name), rel=1e-12)
    np.testing.assert_array_equal(parts.sums, whole.sums)
    with pytest.raises(ValueError, match="5 forecasts of 6 windows"):
        score(forecasts[:5], windows)


def test_only_constant_series_have_no_mase_but_a_wql() -> None:
    series = [Series("flat", pd.Period("2020", "D"), np.full(20, 2.0))]
    forecasts = [SampleForecast(np.full((1, HORIZON), 3.0), series[0].start + 16)]
    ours = score(forecasts, Windows(TASK, series))
    assert math.isnan(ours.MASE)
    assert pytest.approx(0.5) == ours.WQL  # mean over levels of 2·(1 − q)·|2 − 3| / 2
    assert ours.unscaled == 1


def test_a_window_without_a_value_before_it_counts_in_no_score() -> None:
    target = np.arange(20.0)
    blind = np.where(np.arange(20) < 16, np.nan, target)
    series = [Series(name, pd.Period("2020", "D"), one) for name, one in (("a", target), ("b", blind))]
    forecasts = [SampleForecast(np.full((1, HORIZON), value), series[0].start + 16) for value in (18.0, 1e6)]
    both, alone = score(forecasts, Windows(TASK, series)), score(forecasts[:1], Windows(TASK, series[:1]))
    assert (both.WQL, both.MASE, both.coverage) == (alone.WQL, alone.MASE, alone.coverage)


def test_a_nan_forecast_is_refused() -> None:
    series = [Series("a", pd.Period("2020", "D"), np.arange(20.0))]
    forecasts = [SampleForecast(np.full((1, HORIZON), np.nan), series[0].start + 16)]
    with pytest.raises(DataError, match="NaN"):
        score(forecasts, Windows(TASK, series))


def test_scoring_writes_nothing(capfd: pytest.CaptureFixture) -> None:
    series = [Series("a", pd.Period("2020-01-01", "D"), np.arange(20.0))]
    score([SampleForecast(np.zeros((1, HORIZON)), series[0].start)], Windows(TASK, series))
    assert capfd.readouterr() == ("", "")
