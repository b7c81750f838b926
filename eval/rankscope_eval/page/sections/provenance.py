"""Provenance of the numbers: the commands that made them, recorded or put together again, and every file."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from rankscope.compress.recipe import RECIPE
from rankscope_eval.numbers import MISSING, size
from rankscope_eval.page.documents import Document
from rankscope_eval.page.lineage import Library, normal
from rankscope_eval.page.parts import Part, Row, Section, Table, number, printable
from rankscope_eval.suites import list_suites

RECORDED, REBUILT, BY_RECIPE = "recorded", "put together again from the result", "by the recipe beside it"
MOST = 200
"""Files that are listed by name; of more only the number is said."""


def commands_section(library: Library) -> Section:
    """Every command, in the order in which they can be run."""
    found = [(one, *command_of(one, library.findings.folder)) for one in library.findings.documents]
    known = [(document, line, origin) for document, line, origin in found if line]
    known.sort(key=lambda one: (_turn(library, one[0]), one[0].path))
    lines = [
        f"# {document.path}{f': {REBUILT}' if origin == REBUILT else ''}\n{line}" for document, line, origin in known
    ]
    note = (
        "Results that do not name their command have it put together again from what they hold; "
        "options that they do not hold are missing there."
    )
    notes = [note] if any(origin == REBUILT for _, _, origin in known) else []
    parts = [Part(notes=notes, code=escape(printable("\n".join(lines))))] if lines else []
    return Section("commands", "The commands to reproduce", "Commands", parts)


def _turn(library: Library, document: Document) -> float:
    """Place of a command: what models are made of first, parents before children, then whatever measures them."""
    made, read = document.kind in ("compress", "heal"), document.kind in ("calibrate", "design")
    return 2 * library.depth(library.resolve(document.content.model)) + made if made or read else inf


def command_of(document: Document, folder: Path) -> tuple[str, str]:
    """The command of a document of a folder and where it comes from; empty where neither is known."""
    if document.command:
        return document.command.replace("\n", " "), RECORDED
    recipe = posixpath.join(posixpath.dirname(document.path), RECIPE)
    if document.kind == "compress" and (folder / recipe).is_file():
        model, out = document.content.model, normal(document.content.out)
        words = ["rankscope", "compress", model, "--recipe", posixpath.join(out, RECIPE), "--out", f"{out}-again"]
        return shlex.join(words), BY_RECIPE
    make = _REBUILD.get(document.kind)
    words = [] if make is None else make(document.content)
    return (shlex.join(["rankscope", *map(str, words)]), REBUILT) if words else ("", "")


def _heal(one: Any) -> list[Any]:
    return ["heal", one.model, "--teacher", one.teacher, "--steps", one.steps, "--out", one.out]


def _given(options: dict[str, Any]) -> list[Any]:
    """Options that have a value."""
    return [word for flag, value in options.items() if value is not None for word in (flag, value)]


def _table2(one: Any) -> list[Any]:
    ratios = dict.fromkeys(f"{row.ratio:g}" for row in one.rows)
    methods = dict.fromkeys(row.method for row in one.rows)
    allocations = dict.fromkeys(row.allocation for row in one.rows)
    seeds = dict.fromkeys(str(point.seed) for point in one.points if point.seed is not None)
    known, suite = one.settings, one.settings.get("suite")
    held = {
        "--allocations": None if any("-default" in point.name for point in one.points) else ",".join(allocations),
        "--seeds": ",".join(seeds) or None,
        "--suite": suite if suite in list_suites() else suite and "FILE",
        "--max-series": known.get("max_series"),
        "--calibration": known.get("calibration"),
        "--overlap-series": known.get("overlap_series"),
        "--sampling-seeds": known.get("sampling_seeds"),
        "--num-samples": known.get("num_samples"),
        "--batch-size": known.get("batch_size"),
        "--heal-steps": ",".join(dict.fromkeys(str(row.heal_steps) for row in one.rows if row.heal_steps)) or None,
        "--seed": known.get("seed"),
        "--dtype": known.get("dtype"),
        "--runtime": known.get("runtime"),
        "--text": "FILE" if known.get("text") else None,
        "--out": "DIR",
    }
    return ["table2", one.model, "--ratios", ",".join(ratios), "--methods", ",".join(methods), *_given(held)]


def _sweep(one: Any) -> list[Any]:
    return ["sweep", one.name, "--out", "DIR"]


def _calibrate(one: Any) -> list[Any]:
    return ["calibrate", one.model, "--calibration", one.corpus, "--seed", one.seed]


_REBUILD: dict[str, Callable[[Any], list[Any]]] = {
    "heal": _heal,
    "table2": _table2,
    "sweep": _sweep,
    "calibrate": _calibrate,
}
"""Kinds whose results stand in a folder and do not name their command."""


def provenance_section(library: Library, version: str, date: str | None) -> Section:
    """The files of the page."""
    found = library.findings
    rows: list[Row] = [
        [one.path, one.schema, one.version or MISSING, number(one.bytes, size(one.bytes)), _hash(one.sha256)]
        for one in found.documents
    ]
    for one in found.checkpoints:
        rows.append([f"{one.path}/config.json", "config of a checkpoint", MISSING, number(None, ""), _hash(one.sha256)])
        rows += [
            [f"{one.path}/{name}", "weights", MISSING, number(size_, size(size_)), _hash(digest)]
            for name, size_, digest in one.weights
        ]
    heads = ["file", "what", "made by", "size", "SHA-256"]
    day = f" on {date}" if date else ""
    files = Table("Files on this page", heads, rows, "files", (1, 2, 4))
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
