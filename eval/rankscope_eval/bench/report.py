"""Benchmark report: rows, ratios to the baseline, machine rates; and matching evaluation scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rankscope.errors import DataError, one_line
from rankscope.io import codec
from rankscope_eval.baselines import BASELINES
from rankscope_eval.bench.roofline import Rates
from rankscope_eval.bench.turns import Spread
from rankscope_eval.relative import relative_scores

if TYPE_CHECKING:
    import pandas as pd

    from rankscope.plots import CostPoint
    from rankscope_eval.bench.case import Case

COLUMNS = ("dataset", "model", "MASE", "WQL")


@dataclass(frozen=True)
class BenchRow:
    """Time and memory of one case.

    Attributes:
        label: command-line form of the case.
        model: and so on up to threads, the case as it ran.
        context: values per series that the model read: no more than its own context.
        seconds: time of one forecast of the batch, over rounds.
        turns: time per round.
        repeats: forecasts averaged per round.
        tokens_per_second: forecast values (series × sample paths × steps) per second at the median.
        peak_bytes: peak resident memory above the imports, weights included; on a GPU torch's peak.
        loaded_bytes: host memory added by loading.
        weight_bytes: size of parameters and buffers.
        cache_bytes: size of the key/value cache, or None if unknown.
        flops: minimum matmul FLOPs, or None if unknown.
        moved_bytes: minimum bytes to read and write.
        roofline_seconds: minimum time, or None if unknown.
        achieved: roofline_seconds / median seconds.
    """

    label: str
    model: str
    runtime: str
    device: str
    dtype: str
    batch: int
    num_samples: int
    horizon: int
    context: int
    threads: int
    seconds: Spread
    turns: tuple[float, ...]
    repeats: int
    tokens_per_second: float
    peak_bytes: int
    loaded_bytes: int
    weight_bytes: int
    cache_bytes: int | None = None
    flops: int | None = None
    moved_bytes: int | None = None
    roofline_seconds: float | None = None
    achieved: float | None = None


@dataclass(frozen=True)
class BenchRatio:
    """Ratios of a case to the baseline at the same batch size: time by round, and peak memory."""

    label: str
    baseline: str
    batch: int
    seconds: Spread
    peak_bytes: float | None


@dataclass(frozen=True)
class Failure:
    """Failed case with the reason."""

    label: str
    batch: int
    reason: str


@dataclass(frozen=True)
class BenchReport:
    """Rows by batch size and case, ratios, and the machine rates of the roofline."""

    machine: dict[str, Any]
    baseline: str | None
    rounds: int
    seed: int
    rows: tuple[BenchRow, ...]
    ratios: tuple[BenchRatio, ...]
    rates: tuple[Rates, ...]
    failures: tuple[Failure, ...] = ()

    SCHEMA: ClassVar = "rankscope/bench@1"

    def to_frame(self) -> pd.DataFrame:
        """Return one row per case and batch size, with ratios."""
        import pandas as pd

        over = {(one.label, one.batch): one for one in self.ratios}
        records = []
        for row in self.rows:
            fields = {key: value for key, value in asdict(row).items() if key not in ("seconds", "turns")}
            fields |= {f"seconds_{key}": value for key, value in asdict(row.seconds).items()}
            ratio = over.get((row.label, row.batch))
            fields |= {
                "seconds_ratio": None if ratio is None else ratio.seconds.median,
                "peak_ratio": None if ratio is None else ratio.peak_bytes,
            }
            records.append(fields)
        return pd.DataFrame(records)


def read_scores(file: str | Path) -> tuple[str, dict[str, tuple[float, float]]]:
    """Read scores written by ``rankscope eval … --out FILE`` (.csv, .parquet or .json).

    Returns:
        The baseline (the evaluation's; of tables that name none, the last model), and relative WQL and MASE by model,
        geometric means over data sets.

    Raises:
        DataError: not a table of scores, or without those of its baseline.
    """
    frame = _table(Path(file))
    models = list(dict.fromkeys(str(name) for name in frame["model"]))
    baseline = str(frame["baseline"].iloc[0]) if "baseline" in frame else models[-1]
    if baseline not in models:
        raise DataError(
            f"{file} has no scores of its baseline {baseline!r}; create it with rankscope eval … --out {file}."
        )
    keys = frame["benchmark"].astype(str) + "/" if "benchmark" in frame else ""
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
    return baseline, relative


def _table(file: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        if file.suffix.lower() == ".parquet":
            frame = pd.read_parquet(file)
        elif file.suffix.lower() == ".json":
            document = codec.loads(file.read_text(encoding="utf-8"))
            frame = pd.DataFrame(document["rows"])
            frame = frame.assign(baseline=document["baseline"]) if "baseline" in document else frame
        else:
            frame = pd.read_csv(file)
    except (ValueError, KeyError, TypeError, OSError, NotImplementedError) as error:
        raise DataError(
            f"{file} is not a table of scores; create it with rankscope eval … --out {file.name}."
        ) from error
    missing = [name for name in COLUMNS if name not in frame]
    if missing or frame.empty:
        what = f"no column {missing[0]}" if missing else "no row"
        raise DataError(f"{file} has {what}; create it with rankscope eval … --out {file.name}.")
    twice = [name for name in (*COLUMNS, "benchmark", "baseline") if list(frame.columns).count(name) > 1]
    if twice:
        raise DataError(f"{file} has several columns {twice[0]}; create it with rankscope eval … --out {file.name}.")
    for name in ("MASE", "WQL"):
        try:
            frame[name] = frame[name].astype(float)
        except (ValueError, TypeError, OverflowError) as error:
            raise DataError(
                f"{file}: column {name} must hold numbers ({one_line(error)[:120]}); create it with "
                f"rankscope eval … --out {file.name}."
            ) from error
    return frame


def check_scored(cases: Sequence[Case], relative: Mapping[str, tuple[float, float]]) -> None:
    """Raise `DataError` where no model that is to be timed has scores."""
    timed = {case.model.rstrip("/") for case in cases}
    both = [scores for name, scores in relative.items() if name.rstrip("/") in timed]
    if both and not any(math.isfinite(score) for scores in both for score in scores):
        raise DataError("the models that are timed have no finite scores: nothing can be drawn.")
    if not both:
        raise DataError(
            f"no model is both timed and scored: timed are {', '.join(dict.fromkeys(one.model for one in cases))}, "
            f"scored {', '.join(relative)}."
        )


def scored_points(report: BenchReport, relative: Mapping[str, tuple[float, float]], batch: int) -> list[CostPoint]:
    """Return time and scores of all scored models at a batch size."""
    from rankscope.plots import CostPoint

    scores = {name.rstrip("/"): pair for name, pair in relative.items()}
    rows = [row for row in report.rows if row.batch == batch and row.model.rstrip("/") in scores]
    points = []
    for row in rows:
        same = [one for one in rows if one.model == row.model]
        parts = [row.model.rstrip("/").rsplit("/", 1)[-1]]
        parts += [row.runtime] if len({one.runtime for one in same}) > 1 else []
        parts += [row.dtype] if len({one.dtype for one in same}) > 1 else []
        wql, mase = scores[row.model.rstrip("/")]
        spread = row.seconds
        each = (spread.median / batch, spread.min / batch, spread.max / batch)
        points.append(CostPoint(" ".join(parts), *each, wql, mase, row.model in BASELINES))
    return points
