"""Evaluate models on a suite."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rankscope import __version__
from rankscope.engine import Progress, silent
from rankscope.errors import OptionError
from rankscope.io.run_store import RunStore
from rankscope.series import Series
from rankscope_eval.baselines import BASELINE
from rankscope_eval.forecasters import Forecaster, Forecasting, open_forecaster
from rankscope_eval.relative import Sums
from rankscope_eval.report import EvalReport, EvalRow, summarise, with_intervals
from rankscope_eval.scorer import score_suite, score_task
from rankscope_eval.sources import LoadedSuite, read_suite
from rankscope_eval.suites import DEFAULT_SUITE, Suite, Task
from rankscope_eval.verdict import MARGIN, check_margin

ROWS_SCHEMA = "rankscope/eval-rows@1"


def evaluate(
    models: Sequence[str | Forecaster],
    suite: str | Path | Suite | LoadedSuite = DEFAULT_SUITE,
    how: Forecasting | None = None,
    *,
    data: str | Path | None = None,
    tasks: Sequence[str] | None = None,
    max_series: int | None = None,
    baseline: str | Forecaster | None = None,
    margin: float = MARGIN,
    kept: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> EvalReport:
    """Evaluate models on every task of a suite.

    Follows chronos-forecasting's ``scripts/evaluation``: the last ``-offset`` values of each series are split into
    ``num_rolls`` windows with all previous values as context; scores are MASE and WQL over all series, and relative
    scores their geometric means with intervals (`rankscope_eval.relative`). The random state is reset to the seed
    before each task, so rows do not depend on order or selection.

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
        progress: called as ``progress(done, total, what)``.

    Raises:
        RankscopeError: invalid model, suite, option or data.
    """
    if isinstance(models, str) or not models:
        raise OptionError("models is empty; give at least one, such as 'seasonal-naive' or a checkpoint.")
    if resume and kept is None:
        raise OptionError("resume requires kept, the folder of finished rows.")
    check_margin(margin)
    started = time.perf_counter()
    how = how or Forecasting()
    if not isinstance(suite, LoadedSuite):
        suite = read_suite(suite, data, tasks=tasks, max_series=max_series)
    opened: dict[str, Forecaster] = {}
    for model in models:
        if _name(model) not in opened:
            opened[_name(model)] = model if isinstance(model, Forecaster) else open_forecaster(model, how)
    base = BASELINE if baseline is None else baseline
    if _name(base) not in opened:
        plain = replace(how, revision=None)
        opened[_name(base)] = base if isinstance(base, Forecaster) else open_forecaster(base, plain)
    published = {(one.dataset, one.model): one for one in suite.suite.published}
    store = None if kept is None else kept_rows(kept)
    shared = {**vars(how), "max_series": suite.max_series}

    def measured(forecaster: Forecaster, task: Task, series: Sequence[Series]) -> EvalRow:
        """Return a stored or new row, with the published scores."""
        key = None if store is None else row_key(shared, task, suite.files(task), forecaster)
        earlier = None if store is None or key is None else store.get(key, KeptRow)
        if earlier is not None:
            row = replace(earlier.row, sums=earlier.sums)
        else:
            row = score_task(forecaster, task, series)
            if store is not None and key is not None:
                store.put(key, KeptRow(row, row.sums))
        known = published.get((task.name, forecaster.name))
        return row if known is None else replace(row, published_MASE=known.MASE, published_WQL=known.WQL)

    with contextlib.nullcontext() if store is None else store.open(resume=resume, force=not resume):
        rows, skipped = score_suite(suite, list(opened.values()), progress or silent, measured)
    return EvalReport(
        suite=suite.suite.name,
        baseline=_name(base),
        seed=how.seed,
        num_samples=how.num_samples,
        batch_size=how.batch_size,
        max_series=suite.max_series,
        seconds=time.perf_counter() - started,
        rows=with_intervals(rows, _name(base)),
        summary=summarise(rows, list(dict.fromkeys(_name(one) for one in models)), _name(base), margin),
        published=tuple(one for one in suite.suite.published if one.dataset in {row.dataset for row in rows}),
        skipped=tuple(skipped),
    )


def _name(model: str | Forecaster) -> str:
    return model.name if isinstance(model, Forecaster) else str(model)


@dataclass(frozen=True)
class KeptRow:
    """Row with per-series sums, which reports omit."""

    row: EvalRow
    sums: Sums | None


def kept_rows(folder: str | Path) -> RunStore:
    """Open the row store of a folder; rows are named by `row_key`."""
    return RunStore(folder, "rows of an unfinished evaluation", ROWS_SCHEMA, {}, items="rows")


def row_key(settings: Mapping[str, Any], task: Task, files: Sequence[Path], forecaster: Forecaster) -> str | None:
    """Return the key of a row, a hash of everything that determines its scores; None for unidentifiable models.

    The key covers the settings, the task and its files, the model and its files (by size and modification time). Rows
    of models without known files are never reused.
    """
    if forecaster.files is None:
        return None
    parts = [__version__, dict(settings), asdict(task), _states(files), forecaster.name, _states(forecaster.files)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _states(files: Sequence[Path]) -> list[tuple[str, int, int]]:
    states = [(path.name, path.stat()) for path in files]
    return [(name, state.st_size, state.st_mtime_ns) for name, state in states]
