"""Scores of an evaluation beside the times of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.errors import DataError
from rankscope.plots.bench import CostPoint
from rankscope_eval.baselines import BASELINES
from rankscope_eval.bench.report import BenchReport
from rankscope_eval.relative import relative_scores

if TYPE_CHECKING:
    import pandas as pd

REFERENCE = "seasonal-naive"
COLUMNS = ("dataset", "model", "MASE", "WQL")


@dataclass(frozen=True)
class Scores:
    """Scores of several models relative to one of them.

    Attributes:
        baseline: the model whose scores divide, data set by data set.
        relative: model → (WQL, MASE), geometric means over data sets.
    """

    baseline: str
    relative: Mapping[str, tuple[float, float]]


def read_scores(file: str | Path) -> Scores:
    """Read the table that ``rankscope eval … --out FILE`` wrote, as .csv, .parquet or .json.

    Scores are relative to seasonal-naive where it was scored, else to the first model.

    Raises:
        DataError: the file is no such table.
    """
    frame = _table(Path(file))
    models = list(dict.fromkeys(str(name) for name in frame["model"]))
    baseline = REFERENCE if REFERENCE in models else models[0]
    keys = ("benchmark" in frame and frame["benchmark"].astype(str) + "/") or ""
    frame = frame.assign(key=keys + frame["dataset"].astype(str))

    def scores(model: str, metric: str) -> dict[str, float]:
        rows = frame[frame["model"].astype(str) == model]
        return {key: float(value) for key, value in zip(rows["key"], rows[metric], strict=True)}

    relative = {
        model: (
            relative_scores(scores(model, "WQL"), scores(baseline, "WQL")).value,
            relative_scores(scores(model, "MASE"), scores(baseline, "MASE")).value,
        )
        for model in models
    }
    return Scores(baseline, relative)


def _table(file: Path) -> pd.DataFrame:
    import json

    import pandas as pd

    try:
        if file.suffix.lower() == ".parquet":
            frame = pd.read_parquet(file)
        elif file.suffix.lower() == ".json":
            frame = pd.DataFrame(json.loads(file.read_text(encoding="utf-8"))["rows"])
        else:
            frame = pd.read_csv(file)
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise DataError(f"{file} is no table of scores: write it by rankscope eval … --out {file.name}.") from error
    missing = [name for name in COLUMNS if name not in frame]
    if missing or frame.empty:
        what = f"no column {missing[0]}" if missing else "no row"
        raise DataError(f"{file} has {what}: write it by rankscope eval … --out {file.name}.")
    return frame


def scored_points(report: BenchReport, scores: Scores, batch: int) -> list[CostPoint]:
    """Time and scores of every row of a batch whose model was scored.

    Raises:
        DataError: there is none.
    """
    rows = [row for row in report.rows if row.batch == batch and row.model in scores.relative]
    if not rows:
        raise DataError(
            f"no model was both timed and scored: timed were {', '.join(dict.fromkeys(r.model for r in report.rows))}, "
            f"scored {', '.join(scores.relative)}."
        )
    points = []
    for row in rows:
        same = [one for one in rows if one.model == row.model]
        parts = [row.model.rstrip("/").rsplit("/", 1)[-1]]
        parts += [row.runtime] if len({one.runtime for one in same}) > 1 else []
        parts += [row.dtype] if len({one.dtype for one in same}) > 1 else []
        wql, mase = scores.relative[row.model]
        spread = row.seconds
        each = (spread.median / batch, spread.min / batch, spread.max / batch)
        points.append(CostPoint(" ".join(parts), *each, wql, mase, row.model in BASELINES))
    return points
