"""Pages of the lab: tables and findings computed from the records of its runs by `benchmarks/lab_tables.py`."""

from __future__ import annotations

from claims.lab import encoders, ranks, sparse_layers, tokenizers
from claims.lab.shared import ENCODERS, RANKS, SLT, TOKENIZERS
from claims.records import Claim, Result

RESULTS: tuple[Result, ...] = tuple(study.result for study in (ENCODERS, SLT, TOKENIZERS, RANKS))
CLAIMS: tuple[Claim, ...] = (*encoders.CLAIMS, *sparse_layers.CLAIMS, *tokenizers.CLAIMS, *ranks.CLAIMS)
