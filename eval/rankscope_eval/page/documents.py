"""Kinds of results that a page is made of, each read from its JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rankscope.compress.calibration import CalibrationReport
from rankscope.compress.heal.config import HealReport
from rankscope.compress.report import CompressReport
from rankscope.errors import DataError
from rankscope.io import codec
from rankscope.measure.embedding import EmbeddingReport
from rankscope.measure.flow import FlowReport
from rankscope.measure.spectrum import SpectrumReport, eps_key
from rankscope.measure.sweep import SweepReport
from rankscope.measure.tradeoff import Table2Report
from rankscope.train.rank_layouts import DesignReport
from rankscope_eval.bench import BenchReport
from rankscope_eval.numbers import plural
from rankscope_eval.report import EvalReport

_WORD = re.compile(r"[A-Za-z0-9_.+ -]{1,60}")


@dataclass(frozen=True)
class TheoryCheck:
    """One theorem, checked on many instances: what the page shows of it."""

    id: str
    instances: int
    worst_ratio: float
    passed: bool
    title: str = ""
    unmet: tuple[str, ...] = ()

    KEYS: ClassVar = ("id", "instances", "worst_ratio", "pass=passed", "title", "unmet")

    @property
    def applies(self) -> bool:
        """True if anything was evaluated."""
        return self.instances > 0 and not self.unmet


@dataclass(frozen=True)
class TheoryReport:
    """The checks that were run; the paper's package, which runs them, stands above this one."""

    checks: tuple[TheoryCheck, ...]

    SCHEMA: ClassVar = "rankscope/theory@1"


def checks_held(checks: Sequence[TheoryCheck]) -> str:
    """Count the checks that hold among those that apply, in a sentence."""
    applied = [check for check in checks if check.applies]
    held = f"{sum(check.passed for check in applied)} of {plural(len(applied), 'check')} of theorems hold"
    rest = len(checks) - len(applied)
    return f"{held}; {rest} not applicable." if rest else f"{held}."


def _spectrum(read: SpectrumReport) -> None:
    if not read.sites or not read.eps:
        raise DataError("it holds no matrix or no ε")
    _same_eps(read.eps, (row.eps_ranks for row in read.sites), "sites")
    _words((text for row in read.sites for text in (row.site.stack, row.site.role)), "sites")


def _flow(read: FlowReport) -> None:
    if not read.layers or any(not len(layer.sigma) for layer in read.layers):
        raise DataError("it holds no layer, or one without singular values")
    weights = (ranks for layer in read.layers for ranks in layer.weight_eps_ranks.values())
    _same_eps(read.eps, (*(layer.eps_ranks for layer in read.layers), *weights), "layers")
    _words((layer.stack for layer in read.layers), "layers")


def _embed(read: EmbeddingReport) -> None:
    if not read.rows or any(not len(row.sigma) for row in read.rows):
        raise DataError("it holds no embedding, or one without singular values")
    _same_eps(read.eps, (row.eps_ranks for row in read.rows), "rows")


def _compress(read: CompressReport) -> None:
    for name in ("parameters", "bytes"):
        if not {"before", "after"} <= getattr(read, name).keys():
            raise DataError(f"it lacks {name} before or after")


def _table2(read: Table2Report) -> None:
    _words((text for point in read.points for text in (point.method, point.allocation)), "points")


def _words(texts: Iterable[str], where: str) -> None:
    """Texts that become names in charts are words, as every writer of ours makes them."""
    odd = next((text for text in texts if not _WORD.fullmatch(text)), None)
    if odd is not None:
        raise DataError(f"{where} have a name that is not a word: {odd[:40]!r}")


def _same_eps(eps: Iterable[float], ranks: Iterable[Mapping[str, int]], where: str) -> None:
    keys = [tuple(one) for one in ranks]
    if any(one != keys[0] for one in keys) or not keys[0]:
        raise DataError(f"{where} have ε-ranks at no ε, or at different ones")
    if set(keys[0]) != {eps_key(value) for value in eps}:
        raise DataError(f"{where} have ε-ranks at other ε than the document names")


@dataclass(frozen=True)
class Kind:
    """A kind of result.

    Attributes:
        record: what its document is read as.
        check: refuses one that cannot be shown.
    """

    record: Any
    check: Callable[[Any], None] = lambda read: None

    def read(self, data: Any) -> Any:
        """Make the result of a parsed document.

        Raises:
            DataError: it is of another version or kind, or cannot be shown.
        """
        found = codec.parse(self.record, data)
        self.check(found)
        return found


KINDS = {
    "spectrum": Kind(SpectrumReport, _spectrum),
    "flow": Kind(FlowReport, _flow),
    "embed": Kind(EmbeddingReport, _embed),
    "calibrate": Kind(CalibrationReport),
    "compress": Kind(CompressReport, _compress),
    "heal": Kind(HealReport),
    "design": Kind(DesignReport),
    "eval": Kind(EvalReport),
    "bench": Kind(BenchReport),
    "table2": Kind(Table2Report, _table2),
    "sweep": Kind(SweepReport),
    "theory": Kind(TheoryReport),
}
"""Results that have a place on the page by the name of their schema, in the order in which they are looked at."""


@dataclass(frozen=True)
class Document:
    """A file that was read.

    Attributes:
        path: relative to the folder, with slashes.
        kind: key of `KINDS`; eval for a table of scores.
        schema: as written in the file.
        content: the result.
        command: that made it, None where the file does not say.
        version: of rankscope that made it, None where the file does not say.
        sha256: of the file.
        bytes: its size.
    """

    path: str
    kind: str
    schema: str
    content: Any = field(repr=False)
    command: str | None
    version: str | None
    sha256: str
    bytes: int

    KEYS: ClassVar = ("file=path", "schema", "sha256")
