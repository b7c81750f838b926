"""The page: sections in order, one style sheet, one script, nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankscope import __version__
from rankscope.io.atomic import atomic_file
from rankscope_eval.page.collect import Unused, collect
from rankscope_eval.page.documents import Document
from rankscope_eval.page.html import Markup, element, join
from rankscope_eval.page.lineage import Library
from rankscope_eval.page.sections import Section
from rankscope_eval.page.sections.commands import commands_section
from rankscope_eval.page.sections.evidence import evidence_section
from rankscope_eval.page.sections.models import models_section
from rankscope_eval.page.sections.provenance import provenance_section
from rankscope_eval.page.sections.savings import savings_section
from rankscope_eval.page.sections.summary import sentences, summary_section
from rankscope_eval.page.sections.waste import waste_section

SCHEMA = "rankscope/report@1"
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

    def to_json(self) -> dict[str, Any]:
        """What is on the page, in the shape ``rankscope/report@1``."""
        return {
            "schema": SCHEMA,
            "title": self.title,
            "models": list(self.models),
            "summary": list(self.summary),
            "used": [{"file": one.path, "schema": one.schema, "sha256": one.sha256} for one in self.used],
            "checkpoints": list(self.checkpoints),
            "unused": [{"file": one.path, "reason": one.reason} for one in self.unused],
            "bytes": len(self.html.encode()),
        }

    def write(self, file: str | Path, *, force: bool = False) -> Path:
        """Write the page, whole or not at all.

        Raises:
            OutputError: the file exists and ``force`` is not set, or cannot be written.
        """
        with atomic_file(file, force=force) as work:
            Path(work).write_text(self.html, encoding="utf-8")
        return Path(file)


def build_page(
    folder: str | Path, *, title: str | None = None, date: str | None = None, out: str | Path | None = None
) -> Page:
    """Draw one page from every result in a folder; the same results give the same bytes.

    Args:
        folder: where the results are, at any depth.
        title: of the page; by default it names the models.
        date: shown as the day of the page; none is shown otherwise.
        out: where the page will be written, so that an older page there counts as no input.

    Raises:
        DataError: there is no such folder, or no result in it that can be used.
    """
    findings = collect(folder, None if out is None else Path(out))
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
        html=_html(named, [section for section in sections if any(section.content)], date),
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


def _html(title: str, sections: list[Section], date: str | None) -> str:
    style = (_HERE / "page.css").read_text(encoding="utf-8")
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="generator", content=f"rankscope {__version__}"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        element("style", Markup(style)),
    )
    links = [element("li", element("a", one.short, href=f"#{one.name}")) for one in sections]
    toggle = element("button", "Dark", type="button", id="theme", aria_pressed="false", hidden=True)
    body = element(
        "body",
        element("a", "Skip to the content", href="#content", class_="skip"),
        element("header", element("p", "rankscope report", class_="kicker"), element("h1", title), _day(date)),
        element("nav", element("ul", links), toggle, aria_label="Sections"),
        element("main", [_section(one) for one in sections], id="content"),
        element(
            "footer",
            element("p", f"Made by rankscope {__version__}: every number is computed from the files listed above."),
        ),
        element("script", Markup(script)),
    )
    return join(Markup("<!doctype html>\n"), element("html", head, body, lang="en"), Markup("\n"))


def _day(date: str | None) -> Markup | None:
    return element("p", element("time", date, datetime=date), class_="date") if date else None


def _section(section: Section) -> Markup:
    heading = element("h2", section.title, id=f"{section.name}-title")
    return element("section", heading, section.content, id=section.name, aria_labelledby=f"{section.name}-title")
