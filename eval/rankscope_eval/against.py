"""A model's WQL against another's, for searches that measure one candidate after the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rankscope.engine.progress import Progress
from rankscope_eval.evaluation import evaluate
from rankscope_eval.forecasters import Forecaster
from rankscope_eval.relative import relative_scores


def relative_wql(
    original: str | Forecaster, *, progress: Progress | None = None, **settings: Any
) -> Callable[[Path], float]:
    """Measure a model now, and return what measures a folder relative to it.

    The value is the geometric mean over data sets of WQL / WQL of the original: 1 where both are alike, NaN where no
    data set can be compared.

    Args:
        original: the model that candidates are compared with.
        progress: called as ``progress(done, total, what)`` while the original is measured.
        settings: further arguments of `rankscope_eval.evaluate`: suite, data, seed and so on.

    Raises:
        RankscopeError: the model, the suite or its data cannot be used.
    """

    def measured(model: str | Forecaster, told: Progress | None = None) -> dict[str, float]:
        report = evaluate([model], baseline=model, progress=told, **settings)
        return {f"{row.benchmark}/{row.dataset}": row.WQL for row in report.rows}

    reference = measured(original, progress)
    return lambda folder: relative_scores(measured(str(folder)), reference).value
