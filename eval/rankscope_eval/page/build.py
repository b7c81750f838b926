"""The page: sections in order, one style sheet, one script, nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from rankscope import __version__
from rankscope.io.atomic import atomic_file
from rankscope_eval.page.collect import Unused, collect
from rankscope_eval.page.documents import Document
from rankscope_eval.page.lineage import Library
from rankscope_eval.page.parts import Section, printable, unbroken
from rankscope_eval.page.sections.evidence import evidence_section
from rankscope_eval.page.sections.models import models_section
from rankscope_eval.page.sections.provenance import commands_section, provenance_section
from rankscope_eval.page.sections.savings import savings_section
from rankscope_eval.page.sections.summary import sentences, summary_section
from rankscope_eval.page.sections.waste import waste_section

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Page:
    """A report that was drawn.

    Attributes:
        html: the whole page.
        title: its title.
        models: every model on it, parents before what was made of them.
        summary: its sentences.
        used: documents on it.
        checkpoints: paths of the checkpoints on it.
        unused: files that have no place on it, and why.
    """

    html: str
    title: str
    models: tuple[str, ...]
    summary: tuple[str, ...]
    used: tuple[Document, ...]
    checkpoints: tuple[str, ...]
    unused: tuple[Unused, ...]

    SCHEMA: ClassVar = "rankscope/report@1"
    KEYS: ClassVar = ("title", "models", "summary", "used", "checkpoints", "unused", "bytes")

    @property
    def bytes(self) -> int:
        """Size of the page."""
        return len(self.html.encode())

    def write(self, file: str | Path, *, force: bool = False) -> Path:
        """Write the page, whole or not at all.

        Raises:
            OutputError: the file exists and ``force`` is not set, or cannot be written.
        """
        with atomic_file(file, force=force) as work:
            Path(work).write_text(self.html, encoding="utf-8")
        return Path(file)


def build_page(folder: str | Path, *, title: str | None = None, date: str | None = None) -> Page:
    """Build a page from all results in a folder; deterministic in its bytes.

    Args:
        folder: where the results are, at any depth.
        title: of the page; by default it names the models.
        date: shown as the day of the page; none is shown otherwise.

    Raises:
        DataError: there is no such folder, or no result in it that can be used.
    """
    findings = collect(folder)
    library = Library(findings)
    sections = [
        summary_section(library),
        models_section(library),
        waste_section(library),
        savings_section(library),
        evidence_section(library),
        commands_section(library),
        provenance_section(library, __version__, date),
    ]
    named = title or _title(library)
    return Page(
        html=_html(named, [section for section in sections if section.parts], date),
        title=named,
        models=tuple(name for group in library.groups for name in group.members),
        summary=tuple(line for group in library.groups for line in sentences(library, group)),
        used=findings.documents,
        checkpoints=tuple(one.path for one in findings.checkpoints),
        unused=findings.unused,
    )


def _title(library: Library) -> str:
    roots = [group.root for group in library.groups]
    if not roots:
        return "rankscope report"
    return "Rank and size of " + (_and(roots) if len(roots) <= 3 else f"{len(roots)} models")


def _and(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _typeset(value: Any) -> Any:
    """Make a text fit to print; markup and what is not text stay."""
    return unbroken(printable(value)) if isinstance(value, str) and not isinstance(value, Markup) else value


def _html(title: str, sections: list[Section], date: str | None) -> str:
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    page = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_typeset,
        trim_blocks=True,
    ).get_template("page.html")
    return page.render(
        title=title,
        sections=sections,
        date=date,
        version=__version__,
        style=Markup((_HERE / "page.css").read_text(encoding="utf-8")),
        script=Markup(script),
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
