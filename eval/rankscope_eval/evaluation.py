"""Models × tasks → scores."""

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
from rankscope_eval.report import EvalReport, EvalRow, summarise
from rankscope_eval.scorer import score_suite, score_task
from rankscope_eval.sources import LoadedSuite, read_suite
from rankscope_eval.suites import DEFAULT_SUITE, Suite, Task

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
    kept: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> EvalReport:
    """Forecast and score every task of a suite with every model.

    The protocol is that of chronos-forecasting's ``scripts/evaluation``: the last ``-offset`` values of each
    series are cut into ``num_rolls`` windows, all before a window is context, scores are MASE and WQL over
    all series, relative scores their geometric means with intervals (`rankscope_eval.relative`). The random
    state is set to the seed before each task, so rows do not depend on order or selection.

    Args:
        models: ``naive``, ``seasonal-naive``, ``auto-ets``, ``auto-theta``, or checkpoints.
        suite: a shipped suite, a YAML file, or or one at hand; what is loaded has its data, tasks and max_series.
        how: models forecast; its revision is theirs and not the baseline's.
        data: folder of local data files.
        tasks: names of tasks to keep.
        max_series: how many series of each data set to keep, the first ones; all in the published protocol.
        baseline: what relative scores divide by; seasonal-naive by default. It is evaluated too.
        kept: folder that holds every row as soon as it is measured, to be deleted when the report is safe; None keeps
            none.
        resume: take the rows that ``kept`` holds of the same models, tasks and settings, and measure the others.
        progress: called as ``progress(done, total, what)``.

    Raises:
        RankscopeError: a model, the suite, an option or the data cannot be used.
    """
    if isinstance(models, str) or not models:
        raise OptionError("models is empty: name at least one, such as 'seasonal-naive' or a checkpoint.")
    if resume and kept is None:
        raise OptionError("resume goes on with the rows of a folder: name it as kept.")
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
        """Row that is kept, or a new one, beside the published scores."""
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
        rows=tuple(rows),
        summary=summarise(rows, list(dict.fromkeys(_name(one) for one in models)), _name(base)),
        published=tuple(one for one in suite.suite.published if one.dataset in {row.dataset for row in rows}),
        skipped=tuple(skipped),
    )


def _name(model: str | Forecaster) -> str:
    return model.name if isinstance(model, Forecaster) else str(model)


@dataclass(frozen=True)
class KeptRow:
    """A row with its sums, which reports leave out."""

    row: EvalRow
    sums: Sums | None


def kept_rows(folder: str | Path) -> RunStore:
    """The store of rows in a folder; each has its `row_key` as name."""
    return RunStore(folder, "rows of an unfinished evaluation", ROWS_SCHEMA, {}, items="rows")


def row_key(settings: Mapping[str, Any], task: Task, files: Sequence[Path], forecaster: Forecaster) -> str | None:
    """Name of a row, the same for what has the same scores; None where the model does not say what it is.

    A row is taken again only where everything that decides its scores is the same: the settings, the task and its
    files, the model and its files (by size and time of change). A model that names no files is never taken again.
    """
    if forecaster.files is None:
        return None
    parts = [__version__, dict(settings), asdict(task), _states(files), forecaster.name, _states(forecaster.files)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _states(files: Sequence[Path]) -> list[tuple[str, int, int]]:
    states = [(path.name, path.stat()) for path in files]
    return [(name, state.st_size, state.st_mtime_ns) for name, state in states]
