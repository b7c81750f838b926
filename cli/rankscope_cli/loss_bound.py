"""Loss of a compressed folder over the original with its upper bound, for ``compress --max-loss``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.engine import Progress
from rankscope.errors import OptionError
from rankscope_cli.exits import say

if TYPE_CHECKING:
    from rankscope.checkpoints import Checkpoint
    from rankscope.compress import CompressOptions
    from rankscope.compress.to_loss import Measured
    from rankscope_eval import LoadedSuite, Scorer

FEW = 10
"""Sources of data below which a search by loss warns."""


def bounded_score(
    checkpoint: Checkpoint, options: CompressOptions, suite: LoadedSuite, progress: Progress
) -> Callable[[Path], Measured]:
    """Score the original and return a function that scores a folder relative to it, with its upper bound.

    Raises:
        OptionError: the data are too few for a bound.
    """
    from rankscope_eval import Forecasting, Scorer

    tasks = suite.suite.tasks
    count, units = len({task.source or task.name for task in tasks}), "sources of data"
    if len(tasks) == 1:  # the bound is over its series
        count, units = len(suite.series(tasks[0])), "series of one data set"
    _enough(count, units)
    scorer = Scorer(suite, Forecasting(seed=options.seed, device=options.device), checkpoint)
    scorer.score_baseline(progress)
    if len(tasks) == 1 and (sums := scorer.reference[0].sums) is not None:
        count, units = int((sums[:, 0] > 0).sum()), "series with an error of one data set"
        _enough(count, units)
    if count < FEW:
        say(f"warning: the size is chosen on {count} {units}: below {FEW} the bound of the loss is rough.")
    return partial(_bounded, scorer)


def _enough(count: int, units: str) -> None:
    from rankscope_eval.relative import FEWEST

    if count < FEWEST:
        raise OptionError(
            f"--max-loss needs at least {FEWEST} {units} for a bound of the loss, found {count}: give more, "
            "or a size (--ratio)."
        )


def _bounded(scorer: Scorer, folder: Path) -> Measured:
    """Relative WQL of a folder over all data sets, with the upper end of its verdict's 90 % interval."""
    from rankscope.compress.to_loss import Measured
    from rankscope_eval.report import summarise

    rows = scorer.rows(str(folder))
    found = summarise([*scorer.reference, *rows], [rows[0].model], scorer.reference[0].model)[-1]
    ends = None if found.WQL_verdict is None else found.WQL_verdict.interval
    return Measured(found.relative_WQL, None if ends is None else ends[1])


def outspoken(progress: Progress) -> Progress:
    """Report every measured size on stderr when no progress bar is shown."""
    from rankscope.compress.to_loss import FAILS, HOLDS

    def report(done: int, total: int, what: str) -> None:
        if what.endswith((HOLDS, FAILS)) and not sys.stderr.isatty():
            say(what)
        else:
            progress(done, total, what)

    return report
