"""Run models on GIFT-Eval."""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rankscope.engine import Progress, silent
from rankscope.errors import DataError
from rankscope.series.frequency import quiet
from rankscope_eval.baselines import BASELINE
from rankscope_eval.forecasters import Forecaster, Forecasting, open_forecaster, quiet_imports
from rankscope_eval.gift_eval.report import METRICS, GiftReport, GiftRow, compare
from rankscope_eval.gift_eval.sets import Configuration, Loaded, configurations, load, place
from rankscope_eval.kept import check_run, open_all, opened_store, reused, row_key, states
from rankscope_eval.local_models import MODELS, forecast_locally
from rankscope_eval.metrics import QUANTILES
from rankscope_eval.verdict import MARGIN

BATCH = 512
"""Windows that are scored at a time."""


def evaluate_gift(
    models: Sequence[str],
    data: str | Path,
    how: Forecasting | None = None,
    *,
    tasks: Sequence[str] | None = None,
    baseline: str | None = None,
    margin: float = MARGIN,
    kept: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> GiftReport:
    """Evaluate models on GIFT-Eval.

    Horizons are the frequency's, ten and fifteen times it at medium and long terms; the last tenth of the shortest
    series is forecast in at most 20 windows, each from all values before it; of M4 the last window alone. Variates are
    forecast one by one. Scores are GluonTS' over all values.

    Args:
        models: ``naive``, ``seasonal-naive``, ``auto-ets``, ``auto-theta`` (statsforecast's, with its intervals), or
            checkpoints.
        data: folder of the benchmark's Arrow data sets, such as ``DATA/ett1/H``; files of series of the same names are
            read, too (``DATA/m4_hourly.parquet``).
        how: forecasting settings.
        tasks: names of configurations, such as ``m4_hourly/H/short`` (default: all whose data are there).
        baseline: model of the comparisons, also evaluated (default: seasonal-naive).
        margin: relative difference that verdicts count as none.
        kept: folder to store finished rows in until the report is written; None stores none.
        resume: reuse rows in ``kept`` with the same models, data and settings.
        progress: called as ``progress(done, total, what)``.

    Raises:
        RankscopeError: invalid model, option or data; none of the data sets is there.
    """
    check_run(models, kept, resume, margin)
    folder = Path(data)
    if not folder.is_dir():
        raise DataError(f"data folder {data} does not exist.")
    report, begun, how = progress or silent, time.perf_counter(), how or Forecasting()
    base = baseline or BASELINE
    places = {one: place(one.source, folder) for one in configurations(tasks)}
    chosen = {one: path for one, path in places.items() if path is not None}
    missing = tuple(one.name for one in places if one not in chosen)
    if not chosen:
        raise DataError(f"{data} holds none of the data sets of {len(missing)} configurations, {missing[0]} first.")
    opened = open_all(models, base, how, _opened)
    rows: list[GiftRow] = []
    quiet_imports()
    last: Path | None = None
    with opened_store(kept, resume) as store:
        for one, path in chosen.items():
            if path != last:
                last, loaded = path, load(path)
            for forecaster in opened:
                report(len(rows), len(chosen) * len(opened), f"{one.name}: {forecaster.name}")
                settings = vars(how), one.name, states([path])
                key = row_key("gift-eval", forecaster.name, forecaster.files, *settings)
                make = partial(score, forecaster, one, loaded)
                rows.append(reused(store, key, GiftRow, make, partial(_fits, forecaster.name, one.name)))
    report(len(rows), len(rows), "done")
    seconds = time.perf_counter() - begun
    return GiftReport(base, how.seed, seconds, tuple(rows), compare(rows, base, margin), missing)


def _fits(model: str, name: str, row: GiftRow) -> bool:
    """True if a row is of this model and configuration, with all scores."""
    return (row.model, row.dataset, row.scores.keys()) == (model, name, set(METRICS))


def _opened(model: str, how: Forecasting) -> Forecaster:
    """Open a checkpoint, or a local model as in the published results, the last value for what that leaves out."""
    if model not in MODELS:
        return open_forecaster(model, how)

    def run(entries: Sequence[Any], horizon: int, season: int, levels: Sequence[float]) -> list[Any]:
        import numpy as np
        from gluonts.model.forecast import QuantileForecast
        from gluonts.transform.feature import LastValueImputation

        point, quantiles = forecast_locally(model, [one["target"] for one in entries], horizon, season, levels)
        keys = [*(str(level) for level in levels), "mean"]
        arrays = np.stack([*quantiles, point], axis=1)  # (series, levels and mean, horizon)
        last = LastValueImputation()
        ends = [last(np.array(one["target"], dtype=float))[-1] for one in entries]
        arrays = np.where(np.isnan(arrays), np.reshape(ends, (-1, 1, 1)), arrays)  # shorter than a season
        return [
            QuantileForecast(array, forecast_keys=keys, start_date=one["start"] + len(one["target"]))
            for array, one in zip(arrays, entries, strict=True)
        ]

    return Forecaster(model, run, how.seed, files=(), samples=False)


def score(forecaster: Forecaster, one: Configuration, loaded: Loaded) -> GiftRow:
    """Score a model on a configuration.

    Raises:
        DataError: the series are too short, or a forecast is NaN.
    """
    from gluonts.dataset.split import split
    from gluonts.ev import metrics as ev
    from gluonts.model.evaluation import evaluate_forecasts
    from gluonts.time_feature import get_seasonality

    horizon, windows = loaded.horizon(one), loaded.windows(one)
    with quiet():
        season = get_seasonality(loaded.freq)
    measures = [
        *(ev.MSE(forecast_type="mean"), ev.MSE(forecast_type=0.5), ev.MAE(), ev.MASE(), ev.MAPE(), ev.SMAPE()),
        *(ev.MSIS(), ev.RMSE(), ev.NRMSE(), ev.ND(), ev.MeanWeightedSumQuantileLoss(quantile_levels=QUANTILES)),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, template = split(loaded.entries, offset=-horizon * windows)
        test_data = template.generate_instances(horizon, windows=windows, distance=horizon)
        entries = list(test_data.input)
        begun = time.perf_counter()
        forecasts = list(forecaster.forecast(entries, horizon, season))
        seconds = time.perf_counter() - begun
        try:
            with contextlib.redirect_stderr(io.StringIO()):  # GluonTS' progress bar
                found = evaluate_forecasts(
                    forecasts,
                    test_data=test_data,
                    metrics=measures,
                    batch_size=BATCH,
                    axis=None,
                    mask_invalid_label=True,
                    allow_nan_forecast=False,
                    seasonality=season,
                )
        except ValueError as error:
            raise DataError(f"{forecaster.name} on {one.name}: {str(error).splitlines()[0]}") from error
    scores = {metric: float(found[metric].iloc[0]) for metric in METRICS}
    source = one.source
    size = len(loaded.entries), windows, horizon, seconds
    return GiftRow(one.name, forecaster.name, scores, source.domain, source.variates, *size)
