"""What the pages of the lab have in common: their results, how claims are made, how numbers are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from claims.records import Block, Document, Prose, Result


@dataclass(frozen=True)
class Study:
    """A page, and the result that it prints."""

    name: str
    """Of the study, as `benchmarks/lab_tables.py` knows it; the page has its name."""

    @property
    def result(self) -> Result:
        """Tables of the study."""
        return Result(f"lab-{self.name.removesuffix('s')}-tables", f"benchmarks/lab_tables.py {self.name}", minutes=0.5)

    @property
    def page(self) -> str:
        """Path of the page."""
        return f"docs/lab/{self.name}.md"

    def block(self, name: str, render: Callable[[Document], str]) -> Block:
        """A table of the page."""
        return Block(self.page, name, (self.result.name,), render)

    def says(
        self,
        words: str,
        values: Callable[[Document], Document] = lambda found: found,
        holds: Callable[[Document], bool] = lambda found: True,
    ) -> Prose:
        """Words of the page, with numbers or without: then only ``holds`` is asked."""
        return Prose(self.page, self.result.name, words, values, holds=holds)


ENCODERS, SLT, TOKENIZERS, RANKS = (Study(name) for name in ("encoders", "slt", "tokenizers", "ranks"))
TABLES = ("ETTh1", "ETTh2")


def pick(rows: Iterable[Document], **wanted: object) -> list[Document]:
    """Rows whose fields are these."""
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def only(rows: Iterable[Document], **wanted: object) -> Document:
    """The one row whose fields are these."""
    (found,) = pick(rows, **wanted)
    return found


def plus_minus(spread: Document, digits: int, sign: str = "") -> str:
    """Mean and standard deviation over seeds; the mean of a single one."""
    mean = f"{spread['mean']:{sign},.{digits}f}".replace("-", "−")
    return mean if spread["std"] is None else f"{mean} ± {spread['std']:.{digits}f}"
