"""Where the numbers come from: every file with its hash, and those that were not used."""

from __future__ import annotations

from rankscope_eval.page.html import Child, Markup, element
from rankscope_eval.page.lineage import Library
from rankscope_eval.page.numbers import MISSING, size
from rankscope_eval.page.sections import Section
from rankscope_eval.page.tables import Row, Table, folded, number

MOST = 200
"""Files that are listed by name; of more only the number is said."""


def provenance_section(library: Library, version: str, date: str | None) -> Section:
    """The files of the page."""
    found = library.findings
    rows: list[Row] = [
        [one.path, one.schema, one.version or MISSING, number(one.bytes, size(one.bytes)), _hash(one.sha256)]
        for one in found.documents
    ]
    rows += [
        [one.path, "checkpoint", MISSING, number(one.bytes, size(one.bytes)), _hash(one.sha256)]
        for one in found.checkpoints
    ]
    heads = ["file", "what", "made by", "size", "SHA-256"]
    content: list[Child] = [
        element(
            "p",
            f"Drawn by rankscope {version}"
            + (f" on {date}" if date else "")
            + f" from the folder {found.folder.resolve().name}.",
        ),
        Table(
            "Files on this page; of a checkpoint the hash is of its config.json",
            heads,
            [list(row) for row in rows],
            "files",
            texts=(1, 2, 4),
        ).render(),
    ]
    if found.unused:
        listed = [[one.path, one.reason] for one in found.unused[:MOST]]
        more = len(found.unused) - len(listed)
        table = Table("Not used", ["file", "why"], listed, "unused", texts=(1,)).render()
        rest = element("p", f"And {more} more.") if more else None
        content.append(element("h3", "Not used"))
        content.append(folded(f"{len(found.unused)} files", table, rest) if len(listed) > 8 else [table, rest])
    return Section("provenance", "Provenance", "Files", tuple(content))


def _hash(digest: str) -> Markup:
    return element("code", digest, class_="hash")
