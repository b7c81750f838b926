"""A checkpoint's scores on a suite as a few numbers, in a form that other processes can be given."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from rankscope.engine.device import resolve_device
from rankscope_eval.evaluation import BASELINE, evaluate
from rankscope_eval.forecasters import BATCH_SIZE, NUM_SAMPLES
from rankscope_eval.relative import geometric_mean
from rankscope_eval.report import ALL
from rankscope_eval.sources import check_local, data_folder
from rankscope_eval.suites import DEFAULT_SUITE, load_suite


def checkpoint_scorer(
    suite: str | Path = DEFAULT_SUITE,
    data: str | Path | None = None,
    max_series: int | None = None,
    *,
    num_samples: int = NUM_SAMPLES,
    batch_size: int = BATCH_SIZE,
    seed: int = 0,
    device: str = "auto",
) -> Callable[[Path], dict[str, float]]:
    """Make a function from a checkpoint folder to its scores; it can be pickled.

    The suite and its data are looked at now, so that what cannot be used is refused before hours of training.

    Args:
        suite: a shipped suite or a YAML file.
        data: folder of local data files; every process must see it.
        max_series: only the first series of each data set.
        num_samples: sample paths of a model that draws them.
        batch_size: series per forward pass.
        seed: random seed.
        device: where checkpoints run.

    Raises:
        RankscopeError: the suite or the data cannot be used.
    """
    loaded = load_suite(suite)
    check_local(loaded, data_folder(loaded, data), max_series)
    return partial(
        score_checkpoint,
        suite=str(Path(suite).resolve()) if Path(suite).is_file() else str(suite),
        data=None if data is None else str(Path(data).resolve()),
        max_series=max_series,
        num_samples=num_samples,
        batch_size=batch_size,
        seed=seed,
        device=device,
    )


def score_checkpoint(
    folder: Path,
    *,
    suite: str = DEFAULT_SUITE,
    data: str | None = None,
    max_series: int | None = None,
    num_samples: int = NUM_SAMPLES,
    batch_size: int = BATCH_SIZE,
    seed: int = 0,
    device: str = "auto",
) -> dict[str, float]:
    """Scores of one checkpoint on a suite.

    Returns:
        ``WQL`` and ``MASE``: geometric means over the data sets; ``relative_WQL`` and ``relative_MASE``: geometric
        means of the score over that of seasonal-naive; ``forecast_seconds``: wall time of the forecasts.
    """
    report = evaluate(
        [str(folder)],
        suite=suite,
        data=data,
        max_series=max_series,
        num_samples=num_samples,
        batch_size=batch_size,
        seed=seed,
        device=resolve_device(device),
    )
    rows = [row for row in report.rows if row.model != BASELINE]
    overall = next((one for one in report.summary if one.benchmark == ALL), report.summary[0])
    return {
        "WQL": geometric_mean(row.WQL for row in rows if row.WQL > 0),
        "MASE": geometric_mean(row.MASE for row in rows if row.MASE > 0),
        "relative_WQL": overall.relative_WQL,
        "relative_MASE": overall.relative_MASE,
        "forecast_seconds": sum(row.seconds for row in rows),
    }
