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
from rankscope_eval.page.documents import Document
from rankscope_eval.page.lineage import Library, normal
from rankscope_eval.page.numbers import MISSING, size
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
    words = make(document.content) if make is not None and not document.schema.endswith("CSV") else []
    return (shlex.join(["rankscope", *map(str, words)]), REBUILT) if words else ("", "")


def _spectrum(one: Any) -> list[Any]:
    kinds = {row.site.kind for row in one.sites}
    flags = ["--ranks-only"] if one.ranks_only else []
    return ["spectrum", one.model, "--eps", _list(one.eps), "--sites", ",".join(sorted(kinds)), *flags]


def _flow(one: Any) -> list[Any]:
    return ["flow", one.model, *_signal(one)]


def _embed(one: Any) -> list[Any]:
    return ["embed", *dict.fromkeys(row.model for row in one.rows), *_signal(one)]


def _signal(one: Any) -> list[Any]:
    signal = "FILE" if one.signal == "user" else one.signal
    return ["--signal", signal, "--n", one.n, "--length", one.length, "--eps", _list(one.eps), "--seed", one.seed]


def _compress(one: Any) -> list[Any]:
    if one.search is not None:
        size: list[Any] = ["--max-loss", f"{one.search.max_loss:g}"]
    else:
        size = [word for kind, value in one.asked.items() for word in (f"--{kind}", f"{value:.12g}")]
    known = {
        "--calibration": one.calibration,
        "--dtype": one.dtype,
        "--storage": one.storage if one.storage != "float" else None,
    }
    more = [word for flag, value in known.items() if value for word in (flag, value)]
    return [
        "compress",
        one.model,
        *size,
        *([] if one.recast else ["--method", one.method, "--allocation", one.allocation]),
        *more,
        "--out",
        one.out,
    ]


def _heal(one: Any) -> list[Any]:
    return ["heal", one.model, "--teacher", one.teacher, "--steps", one.steps, "--out", one.out]


def _eval(one: Any) -> list[Any]:
    models = dict.fromkeys(row.model for row in one.rows)
    cut = ["--max-series", one.max_series] if one.max_series else []
    more = ["--num-samples", one.num_samples, "--batch-size", one.batch_size, "--seed", one.seed]
    held = {"--dtype": one.dtype, "--runtime": one.runtime, "--revision": one.revision, "--margin": one.margin}
    more += _given(held)
    return ["eval", *models, "--baseline", one.baseline, *_series(one), *cut, *more]


def _given(options: dict[str, Any]) -> list[Any]:
    """Options that have a value."""
    return [word for flag, value in options.items() if value is not None for word in (flag, value)]


def _series(one: Any) -> list[Any]:
    """The suite of an evaluation; a file that stood in for one has but its stem in the result, as all three names."""
    if {(row.benchmark, row.dataset) for row in one.rows} != {(one.suite, one.suite)}:
        return ["--suite", one.suite]
    row = one.rows[0]
    windows = max(1, row.windows // max(1, row.series))
    return ["--input", "FILE", "--horizon", row.prediction_length, "--windows", windows]


def _bench(one: Any) -> list[Any]:
    if not one.rows:
        return []
    row = one.rows[0]
    batches = ",".join(map(str, dict.fromkeys(case.batch for case in one.rows)))
    base = ["--baseline", one.baseline] if one.baseline else []
    sizes = ["--batch", batches, "--num-samples", row.num_samples, "--horizon", row.horizon, "--context", row.context]
    return ["bench", *dict.fromkeys(case.label for case in one.rows), *base, *sizes, "--rounds", one.rounds]


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
    }
    return ["table2", one.model, "--ratios", ",".join(ratios), "--methods", ",".join(methods), *_given(held)]


def _sweep(one: Any) -> list[Any]:
    return ["sweep", one.name]


def _calibrate(one: Any) -> list[Any]:
    return ["calibrate", one.model, "--calibration", one.corpus, "--seed", one.seed]


def _list(values: Any) -> str:
    return ",".join(f"{value:g}" for value in values)


_REBUILD: dict[str, Callable[[Any], list[Any]]] = {
    "spectrum": _spectrum,
    "flow": _flow,
    "embed": _embed,
    "compress": _compress,
    "heal": _heal,
    "eval": _eval,
    "bench": _bench,
    "table2": _table2,
    "sweep": _sweep,
    "calibrate": _calibrate,
}


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
