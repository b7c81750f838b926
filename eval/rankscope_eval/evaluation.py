"""Evaluate models on a suite."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rankscope.engine import Progress, silent
from rankscope.engine.pool import Engine
from rankscope_eval.baselines import BASELINE
from rankscope_eval.forecasters import Forecaster, Forecasting, model_name, open_forecaster
from rankscope_eval.kept import check_run, open_all, opened_store, put, row_key, states, stored
from rankscope_eval.relative import Bands
from rankscope_eval.report import Comparison, EvalReport, EvalRow
from rankscope_eval.scorer import score_suite
from rankscope_eval.slices import worst_slices
from rankscope_eval.sources import LoadedSuite, read_suite
from rankscope_eval.suites import DEFAULT_SUITE, PublishedScore, Suite, Task
from rankscope_eval.verdict import MARGIN

if TYPE_CHECKING:
    from rankscope.checkpoints import Checkpoint


def evaluate(
    models: Sequence[str | Path | Checkpoint | Forecaster],
    suite: str | Path | Suite | LoadedSuite = DEFAULT_SUITE,
    how: Forecasting | None = None,
    *,
    data: str | Path | None = None,
    tasks: Sequence[str] | None = None,
    max_series: int | None = None,
    baseline: str | Path | Checkpoint | Forecaster | None = None,
    margin: float = MARGIN,
    kept: str | Path | None = None,
    resume: bool = False,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> EvalReport:
    """Evaluate models on every task of a suite.

    Follows chronos-forecasting's ``scripts/evaluation``: the last ``-offset`` values of each series are split into
    ``num_rolls`` windows with all previous values as context; scores are MASE and WQL over all series, and relative
    scores their geometric means with intervals (`rankscope_eval.relative`). What is sampled begins at the
    seed in each task, so rows do not depend on order or selection.

    Args:
        models: ``naive``, ``seasonal-naive``, ``auto-ets``, ``auto-theta``, or checkpoints.
        suite: shipped suite, YAML file, or a loaded suite, which defines data, tasks and max_series.
        how: forecasting settings; the revision applies to the models, not to the baseline.
        data: folder with local data files.
        tasks: names of the tasks to run (default: all).
        max_series: use only the first series of each data set (published protocol: all).
        baseline: denominator of relative scores, also evaluated (default: seasonal-naive).
        margin: relative difference that verdicts count as none (`rankscope_eval.verdict`).
        kept: folder to store finished rows in until the report is written; None stores none.
        resume: reuse rows in ``kept`` with the same models, tasks and settings.
        engine: where rows are computed, and how many at a time (default: one after the other in this process); models
            are then to be given by name.
        progress: called as ``progress(done, total, what)``.

    Raises:
        RankscopeError: invalid model, suite, option or data.
    """
    check_run(models, kept, resume, margin)
    started = time.perf_counter()
    how = how or Forecasting()
    if not isinstance(suite, LoadedSuite):
        suite = read_suite(suite, data, tasks=tasks, max_series=max_series)
    base = BASELINE if baseline is None else baseline
    forecasters = open_all(models, base, how, _opened)
    settings = {**vars(how), "max_series": suite.max_series}
    with opened_store(kept, resume) as store:

        def key(forecaster: Forecaster, task: Task) -> str | None:
            if store is None:
                return None
            return row_key("eval", forecaster.name, forecaster.files, settings, asdict(task), states(suite.files(task)))

        def known(forecaster: Forecaster, task: Task) -> EvalRow | None:
            wanted = forecaster.name, task.benchmark, task.name
            earlier = stored(
                store,
                key(forecaster, task),
                KeptRow,
                lambda one: (one.row.model, one.row.benchmark, one.row.dataset) == wanted,
            )
            return None if earlier is None else replace(earlier.row, bands=earlier.bands)

        def keep(forecaster: Forecaster, task: Task, row: EvalRow) -> None:
            put(store, key(forecaster, task), KeptRow(row, row.bands))

        rows, skipped = score_suite(
            suite, forecasters, progress or silent, known=known, keep=keep, engine=engine or Engine(jobs=1)
        )
    _warn_of_blind(suite, forecasters, {(row.benchmark, row.dataset) for row in rows})
    rows = _with_published(rows, suite.suite.published)
    names = list(dict.fromkeys(model_name(one) for one in models))
    compared = Comparison(rows, model_name(base))
    return EvalReport(
        suite=suite.suite.name,
        baseline=model_name(base),
        seed=how.seed,
        num_samples=how.num_samples,
        batch_size=how.batch_size,
        max_series=suite.max_series,
        seconds=time.perf_counter() - started,
        rows=compared.with_intervals(),
        summary=compared.summaries(names, margin),
        published=tuple(one for one in suite.suite.published if one.dataset in {row.dataset for row in rows}),
        skipped=tuple(skipped),
        slices=worst_slices(rows, suite, names, model_name(base)),
        dtype=None if how.dtype is None else str(how.dtype).removeprefix("torch."),
        runtime=how.runtime,
        revision=how.revision,
        margin=margin,
    )


def _warn_of_blind(suite: LoadedSuite, forecasters: Sequence[Forecaster], scored: set[tuple[str, str]]) -> None:
    """Warn of windows in whose context a model saw no value: by the protocol they count, whatever it forecasts."""
    for task in suite.suite.tasks:
        series = suite.series(task) if (task.benchmark, task.name) in scored else []
        known = [there for one in series if not (there := np.isfinite(one.target)).all()]
        ends = [task.offset + roll * task.prediction_length for roll in range(task.num_rolls)]
        histories = [history for one in known for end in ends if (history := one[:end]).any()]
        for forecaster in forecasters:
            context = forecaster.context
            blind = 0 if context is None else sum(not one[-context:].any() for one in histories)
            if blind:
                warnings.warn(
                    f"in {blind:,} of {len(series) * task.num_rolls:,} windows of {task.name} the last {context:,} "
                    f"values, which {forecaster.name} reads, are all missing: its forecasts there are arbitrary, and "
                    "are scored.",
                    stacklevel=3,
                )


def _opened(model: str | Path | Checkpoint | Forecaster, how: Forecasting) -> Forecaster:
    return model if isinstance(model, Forecaster) else open_forecaster(model, how)


def _with_published(rows: Sequence[EvalRow], published: Sequence[PublishedScore]) -> list[EvalRow]:
    """Rows with the published scores of their models."""
    known = {(one.benchmark, one.dataset, one.model): one for one in published}
    return [
        row if one is None else replace(row, published_MASE=one.MASE, published_WQL=one.WQL)
        for row in rows
        for one in [known.get((row.benchmark, row.dataset, row.model), known.get(("", row.dataset, row.model)))]
    ]


@dataclass(frozen=True)
class KeptRow:
    """Row with the sums of its series, which reports omit."""

    row: EvalRow
    bands: Bands | None
