"""Where the numbers come from: every file with its hash, and those that were not used."""

from __future__ import annotations

from markupsafe import Markup

from rankscope_eval.page.lineage import Library
from rankscope_eval.page.numbers import MISSING, size
from rankscope_eval.page.parts import Part, Row, Section, Table, number

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
    day = f" on {date}" if date else ""
    files = Table("Files on this page; of a checkpoint the hash is of its config.json", heads, rows, "files", (1, 2, 4))
    parts = [
        Part(text=f"Drawn by rankscope {version}{day} from the folder {found.folder.resolve().name}.", tables=[files])
    ]
    if found.unused:
        listed = [[one.path, one.reason] for one in found.unused[:MOST]]
        more = len(found.unused) - len(listed)
        table = Table("Not used", ["file", "why"], listed, "unused", texts=(1,))
        few = len(listed) <= 8
        folded = None if few else (f"{len(found.unused)} files", table)
        left = f"And {more} more." if more else ""
        parts.append(Part("Not used", tables=[table] if few else [], folded=folded, left=left))
    return Section("provenance", "Provenance", "Files", parts)


def _hash(digest: str) -> Markup:
    return Markup('<code class="hash">{}</code>').format(digest)
