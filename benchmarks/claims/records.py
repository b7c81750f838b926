"""Records of the registry: results, the numbers of pages that are taken from them, and tables of such numbers."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Any

from digests import digest

ROOT = Path(__file__).resolve().parents[2]
RESULTS = "benchmarks/results"
DRAWN = "figures/rankscope_paper/figures/data"
"""Results that figures are drawn from: an installed package has them."""
SIX = "--suite {six}/backtest.yaml --data {six}"
DEV = "--suite {dev}/dev.yaml --data {dev}"
"""Options of commands that score on the six public sets, or on those kept for development."""
NUMBER = re.compile(r"[-−]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
_NAME = r"([^\s,;:()|]+)"

Document = dict[str, Any]


class ClaimError(Exception):
    """A page and its results do not fit together."""


@dataclass(frozen=True)
class Result:
    """A result file and the command that makes it."""

    name: str
    command: str
    """Words after ``python``; ``--out FILE`` is added. ``{six}`` and ``{dev}`` are folders of data sets."""
    minutes: float
    """How long the command takes on two cores, about."""
    timed: bool = False
    """Holds times: wants the machine for itself."""
    older: bool = False
    """Kept as it was measured, by an earlier commit on another machine: is never stale, and its page says so."""
    path: str = ""
    """Where the file lies if not at benchmarks/results/NAME.json."""
    by_hand: bool = False
    """`command` is a whole line that fills a folder, of which the file was put at `path`; goes with `older`."""

    @property
    def file(self) -> str:
        """Path of the file from the root of the repository."""
        return self.path or f"{RESULTS}/{self.name}.json"

    @property
    def reads_test_sets(self) -> bool:
        """True if it scores on the test sets, which are read for final models alone: measured on request."""
        return "{six}" in self.command

    def words(self, data: str | None = None) -> str:
        """The whole command; without the folder that holds ``benchmark`` and ``dev``, as results have it."""
        if self.by_hand:
            return self.command
        six, dev = ("DIR", "DIR") if data is None else (f"{data}/benchmark", f"{data}/dev")
        return f"python {self.command.format(six=six, dev=dev)} --out {self.file}"

    def read(self) -> Document:
        """The saved result; of a table its ``rows``."""
        file = ROOT / self.file
        if file.suffix == ".parquet":
            from pyarrow import parquet

            return {"rows": parquet.read_table(file).to_pylist()}
        with file.open(encoding="utf-8", newline="") as text:
            if file.suffix == ".csv":
                return {"rows": [{name: float(cell) for name, cell in row.items()} for row in csv.DictReader(text)]}
            found: Document = json.load(text)
        return found

    def stale(self) -> str:
        """Say why the result has to be measured again, in a few words; empty if it is up to date."""
        if not (ROOT / self.file).is_file():
            return "never measured"
        if self.older:
            return ""
        found = self.read()
        if "used" not in found:
            return "does not say which code and models it was measured with"
        if found["commit"].endswith("+changes"):
            return "measured with changes that were not committed"
        if found["command"] != self.words():
            return "measured by another command"
        if found.get("missing"):
            return f"not finished: {found['missing']} still to be measured"
        changed = [path for path, was in found["used"].items() if _digest(ROOT / path) != was]
        return f"changed since: {', '.join(changed)}" if changed else ""


def _digest(path: Path) -> str:
    try:
        return digest(path)
    except FileNotFoundError:
        return ""


@dataclass(frozen=True)
class Printed:
    """A piece of a page as it stands there, and as the results have it."""

    start: int
    end: int
    shown: str
    measured: str


@dataclass(frozen=True)
class Prose:
    """Numbers within a sentence, found on the page by the words around them: nothing in the page marks them.

    ``words`` is part of the sentence with a field of `str.format` in the place of every number:
    ``"takes {rows[0][seconds]:.1f} s"``; ``{worst!s}`` is a name. Blanks match any, line ends too.
    """

    page: str
    result: str
    words: str
    values: Callable[..., Mapping[str, Any]] = lambda found, *others: found
    """Makes of the results the mapping that the fields look into; by default the result itself."""
    also: tuple[str, ...] = ()
    """Further results, which ``values`` and ``holds`` get after the first."""
    holds: Callable[..., bool] = lambda *found: True
    """Condition on the result that what the words around the numbers say is true."""
    moves: float = 0.02
    """Share by which a number may move before somebody has to read the words around it again."""

    @property
    def results(self) -> tuple[str, ...]:
        """Names of the results."""
        return (self.result, *self.also)

    @property
    def place(self) -> str:
        """Page and first words, for messages."""
        return f"{self.page}: “{self.words[:60]}…”"

    def printed(self, text: str, documents: Mapping[str, Document]) -> Iterator[Printed]:
        """Yield every number of the sentence.

        Raises:
            ClaimError: the words are not on the page, or there more than once, or they no longer hold.
        """
        parts = [
            (re.escape(literal), field, spec, mark) for literal, field, spec, mark in Formatter().parse(self.words)
        ]
        pattern = ""
        for literal, field, _, mark in parts:
            pattern += re.sub(r"(?:\\\s)+", r"\\s+", literal)
            pattern += "" if field is None else _NAME if mark else f"({NUMBER.pattern})"
        found = list(re.finditer(pattern, text))
        if len(found) != 1:
            raise ClaimError(f"{self.place} is {len(found)} times on the page, and must be once.")
        given = [documents[name] for name in self.results]
        if not self.holds(*given):
            raise ClaimError(f"{self.place} says what {self.result} no longer shows: write the sentence anew.")
        values = self.values(*given)
        slots = [(field, spec) for _, field, spec, _ in parts if field is not None]
        for at, (field, spec) in enumerate(slots, 1):
            measured = f"{{{field}:{spec}}}".format_map(values)
            yield Printed(found[0].start(at), found[0].end(at), found[0][at], measured)


@dataclass(frozen=True)
class Block:
    """Lines between ``<!-- evidence: NAME -->`` and ``<!-- /evidence -->``, written from results as a whole."""

    page: str
    name: str
    results: tuple[str, ...]
    render: Callable[..., str]
    """Takes the results in their order, and returns Markdown."""
    append: bool = False
    """Goes to the end of a page without the marks: the card of a model that was trained anew."""
    moves: float = 0.02
    """Share by which a number may move before somebody has to read the words around it again."""

    @property
    def place(self) -> str:
        """Page and name, for messages."""
        return f"{self.page}: block {self.name}"

    @property
    def mark(self) -> str:
        """Comment that opens the block."""
        return f"<!-- evidence: {self.name} -->"

    def printed(self, text: str, documents: Mapping[str, Document]) -> Iterator[Printed]:
        """Yield the lines as one piece.

        Raises:
            ClaimError: the marks are not on the page, or there more than once.
        """
        mark = re.escape(self.mark)
        inside = r"(?:(?!<!-- /evidence -->)(?:.|\n))*?"  # or an empty block would end with the next one
        found = list(re.finditer(rf"{mark}\n\n?({inside})\n?\n<!-- /evidence -->", text))
        if len(found) != 1:
            raise ClaimError(f"{self.place} is {len(found)} times on the page, and must be once.")
        measured = self.render(*(documents[name] for name in self.results)).strip("\n")
        yield Printed(found[0].start(1), found[0].end(1), found[0][1], measured)


Claim = Prose | Block


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown table."""
    lines = [_line(head), "|---" * len(head) + "|", *map(_line, rows)]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"
