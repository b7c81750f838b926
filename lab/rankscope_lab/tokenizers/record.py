"""One finished run of the study, as a file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rankscope.errors import DataError
from rankscope_lab.tokenizers.tasks import Task

SCHEMA = "rankscope/lab-tokenizer-run@1"


@dataclass(frozen=True)
class RunRecord:
    """What came of a task.

    Attributes:
        task: which.
        data: the table: name, rows, variables; empty for the copy task.
        error: on test data: mean squared error in squared standard deviations of training; of the copy task the share
            of wrong symbols. NaN where the run diverged.
        reference: the same error of what it is compared with: least squares, principal components, seasonal naive.
        diverged: it enters no mean.
        parameters: trained numbers.
        seconds: wall time.
        machine: device, threads.
        codes: of a codebook; 0 without.
        width: of tokens.
        used: codes that occur in the test rows.
        perplexity: of their use.
        eps_ranks: of the codebook, by ε.
        effective_rank: of the codebook.
        detail: curve, settings, spectra.
        digest: of the table's columns and values; empty for the copy task, and in records that were written without.
    """

    task: Task
    data: str
    error: float
    reference: float
    diverged: bool
    parameters: int
    seconds: float
    machine: str
    codes: int = 0
    width: int = 0
    used: int = 0
    perplexity: float = math.nan
    eps_ranks: Mapping[str, int] = field(default_factory=dict)
    effective_rank: float = math.nan
    detail: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain numbers; those that are not finite as null."""
        return {"schema": SCHEMA, **_finite(asdict(self))}


def record_from_json(text: str, source: str = "the text") -> RunRecord:
    """Read what `RunRecord.to_json` wrote.

    Raises:
        DataError: not JSON, of another schema, or a part is missing.
    """
    try:
        data = json.loads(text)
        if data.pop("schema") != SCHEMA:
            raise KeyError("schema")
        task = Task(**data.pop("task"))
        numbers = ("error", "reference", "perplexity", "effective_rank")
        fields: dict[str, Any] = {k: math.nan if v is None and k in numbers else v for k, v in data.items()}
        return RunRecord(task=task, **fields)
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{source} is no run of the tokenizer study ({SCHEMA}): delete it to run it again.") from error


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
