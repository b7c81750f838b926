"""Report on GIFT-Eval, and the files of a submission to its leaderboard."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rankscope.errors import OptionError, unknown_choice
from rankscope.io import codec
from rankscope.io.atomic import atomic_file, atomic_folder, sweep
from rankscope_eval.bases import Judged, judge_by_base

if TYPE_CHECKING:
    import pandas as pd

MASE, CRPS = "MASE[0.5]", "mean_weighted_sum_quantile_loss"
"""The metrics that the leaderboard ranks by."""
METRICS = (
    *("MSE[mean]", "MSE[0.5]", "MAE[0.5]", MASE, "MAPE[0.5]", "sMAPE[0.5]", "MSIS", "RMSE[mean]", "NRMSE[mean]"),
    *("ND[0.5]", CRPS),
)
RESULTS, CONFIG = "all_results.csv", "config.json"


@dataclass(frozen=True)
class GiftRow:
    """Scores of a model on a configuration.

    Attributes:
        dataset: configuration: data set, frequency and term.
        model: name of the model.
        scores: by `METRICS`.
        domain: of the data.
        num_variates: series that were measured together; each is forecast alone.
        series: series, the variates apart.
        windows: windows of each.
        horizon: steps of a window.
        seconds: time of all forecasts.
    """

    dataset: str
    model: str
    scores: Mapping[str, float]
    domain: str
    num_variates: int
    series: int
    windows: int
    horizon: int
    seconds: float


@dataclass(frozen=True)
class GiftPair:
    """A model against the baseline: both leaderboard metrics, judged over data sets."""

    model: str
    baseline: str
    MASE: Judged
    CRPS: Judged


@dataclass(frozen=True)
class GiftReport:
    """Scores on GIFT-Eval.

    Attributes:
        baseline: model of the comparisons.
        seed: of sampled forecasts.
        seconds: of the whole run.
        rows: a configuration and model each.
        pairs: every model against the baseline.
        missing: configurations whose data are not in the folder.
    """

    baseline: str
    seed: int
    seconds: float
    rows: tuple[GiftRow, ...]
    pairs: tuple[GiftPair, ...]
    missing: tuple[str, ...] = ()

    SCHEMA: ClassVar = "rankscope/gift-eval@1"

    def to_frame(self) -> pd.DataFrame:
        """Rows in the columns of a submission's ``all_results.csv``."""
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    "dataset": row.dataset,
                    "model": row.model,
                    **{f"eval_metrics/{metric}": row.scores[metric] for metric in METRICS},
                    "domain": row.domain,
                    "num_variates": row.num_variates,
                }
                for row in self.rows
            ]
        )


def compare(rows: Sequence[GiftRow], baseline: str, margin: float) -> tuple[GiftPair, ...]:
    """Judge every model against the baseline."""
    scores: dict[str, dict[str, Mapping[str, float]]] = {}
    for row in rows:
        scores.setdefault(row.model, {})[row.dataset] = row.scores

    def judged(model: str, metric: str) -> Judged:
        mine, theirs = ({name: one[metric] for name, one in scores[who].items()} for who in (model, baseline))
        return judge_by_base(mine, theirs, lambda name: name.split("/")[0], margin)

    return tuple(
        GiftPair(model, baseline, judged(model, MASE), judged(model, CRPS)) for model in scores if model != baseline
    )


def write_submission(report: GiftReport, model: str, folder: str | Path, config: Mapping[str, str]) -> None:
    """Write ``all_results.csv`` and ``config.json`` of one model.

    Args:
        report: its scores.
        model: which of the report's models.
        folder: is made, whole or not at all, where it is not there.
        config: further fields of ``config.json``: model_type, model_dtype, model_link, code_link, org, ….

    Raises:
        OptionError: the report has no such model.
        OutputError: the files cannot be written.
    """
    if model not in {row.model for row in report.rows}:
        raise OptionError(unknown_choice("model", model, {row.model for row in report.rows}))
    frame = report.to_frame()
    with whole_or_added(folder) as place:
        with atomic_file(place / RESULTS) as path:
            frame[frame["model"] == model].to_csv(path, index=False)
        codec.write(place / CONFIG, {"model": model, **config}, indent=4)


@contextlib.contextmanager
def whole_or_added(folder: str | Path) -> Iterator[Path]:
    """Yield a folder to write into: one that appears when the block ends without an error, or the one that is there.

    Raises:
        OutputError: it cannot be written.
    """
    if Path(folder).exists():
        sweep(Path(folder))
        yield Path(folder)
    else:
        with atomic_folder(folder) as place:
            yield place
