"""One finished run of the study, as a file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rankscope_lab.tokenizers.tasks import Task


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

    SCHEMA: ClassVar = "rankscope/lab-tokenizer-run@1"
