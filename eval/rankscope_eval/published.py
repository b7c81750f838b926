"""Scores that others published for the same tasks."""

from __future__ import annotations

import csv
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rankscope.errors import DataError


@dataclass(frozen=True)
class PublishedScore:
    """One published row: data set, model, and its two scores."""

    dataset: str
    model: str
    MASE: float
    WQL: float
    benchmark: str = ""

    def to_json(self) -> dict[str, Any]:
        """The row as a dict."""
        return asdict(self)


def read_published(path: Path) -> tuple[PublishedScore, ...]:
    """Rows of a CSV with the columns dataset, model, MASE, WQL and perhaps benchmark; ``#`` starts a comment
    line.

    Raises:
        DataError: a column is missing or a score is not a number.
    """
    with path.open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(line for line in stream if not line.startswith("#"))
        missing = {"dataset", "model", "MASE", "WQL"} - set(reader.fieldnames or ())
        if missing:
            raise DataError(f"{path} lacks the column(s) {', '.join(sorted(missing))}.")
        try:
            return tuple(
                PublishedScore(
                    row["dataset"],
                    row["model"],
                    float(row["MASE"]),
                    float(row["WQL"]),
                    row.get("benchmark") or "",
                )
                for row in reader
            )
        except (TypeError, ValueError) as error:
            raise DataError(f"{path} line {reader.line_num}: a score is not a number.") from error
