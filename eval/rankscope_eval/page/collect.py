"""Find the results in a folder: what each file is, and why some are not used."""

from __future__ import annotations

import csv
import hashlib
import io
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.compress.recipe import RECIPE
from rankscope.errors import DataError, RankscopeError, one_line
from rankscope.io import codec
from rankscope.io.checksum import checksum
from rankscope.train.run_folder import SUFFIX
from rankscope_eval.page.documents import KINDS, Document
from rankscope_eval.report import METRICS, EvalReport, EvalRow, summarise
from rankscope_eval.verdict import MARGIN

PAGES = (".html", ".htm")
"""Endings of pages."""
LARGEST = 512 * 2**20
"""Bytes of the largest document that is read."""
_SCHEMA = re.compile(r"rankscope/([a-z0-9-]+)@(\d+)")
_WEIGHTS = (".safetensors", ".safetensors.index.json")
_SCORES = ["dataset", "model", "MASE", "WQL"]


@dataclass(frozen=True)
class Unused:
    """A file that has no place on the page.

    Attributes:
        path: relative to the folder.
        reason: why, in a few words.
        damaged: whether it should have had one.
        schema: of a result of another version, else None.
    """

    path: str
    reason: str
    damaged: bool = False
    schema: str | None = None

    KEYS: ClassVar = ("file=path", "reason")


@dataclass(frozen=True)
class CheckpointFolder:
    """A checkpoint that lies in the folder.

    Attributes:
        path: relative to the folder.
        checkpoint: opened by its headers.
        sha256: of its config.json.
        weights: name, size and SHA-256 of every file of weights.
    """

    path: str
    checkpoint: Checkpoint
    sha256: str
    weights: tuple[tuple[str, int, str], ...]


@dataclass(frozen=True)
class Findings:
    """Everything in a folder, each list in the order of paths."""

    folder: Path
    documents: tuple[Document, ...]
    checkpoints: tuple[CheckpointFolder, ...]
    unused: tuple[Unused, ...]


def collect(folder: str | Path) -> Findings:
    """Read every result in a folder and those below it.

    Hidden files, links to folders and the snapshots of unfinished runs (``NAME.run``) are passed by.

    Args:
        folder: the folder.

    Raises:
        DataError: there is no such folder, or no result in it that can be used.
    """
    root = Path(folder)
    if not root.exists():
        raise DataError(f"there is no folder {root}: name the one that holds your results.")
    if not root.is_dir():
        raise DataError(f"{root} is a file: name the folder that holds your results.")
    documents: list[Document] = []
    checkpoints: list[CheckpointFolder] = []
    unused: list[Unused] = []
    for place, names in _folders(root):
        rest = set(names)
        if "config.json" in rest and any(name.endswith(_WEIGHTS) for name in rest):
            found = _checkpoint(root, place)
            if isinstance(found, CheckpointFolder):
                checkpoints.append(found)
                belongs = ("config.json", "generation_config.json", "README.md", RECIPE)
                rest -= {name for name in rest if name in belongs or name.endswith(_WEIGHTS)}
            else:
                unused.append(found)
        for name in sorted(rest):
            one = _file(root, place / name)
            if isinstance(one, Document):
                documents.append(one)
            else:
                unused.append(one)
    kept, repeated = _once(documents)
    unused += repeated
    if not kept and not checkpoints:
        raise DataError(_nothing(root, unused))
    return Findings(root, tuple(kept), tuple(checkpoints), tuple(sorted(unused, key=lambda one: one.path)))


def _folders(root: Path) -> Iterator[tuple[Path, list[str]]]:
    for place, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and not name.endswith(SUFFIX))
        # a page is made of results and is none
        yield Path(place), sorted(name for name in names if not name.startswith(".") and not name.endswith(PAGES))


def _checkpoint(root: Path, place: Path) -> CheckpointFolder | Unused:
    path = place.relative_to(root).as_posix()
    try:
        checkpoint = open_checkpoint(place)
        digest = hashlib.sha256((place / "config.json").read_bytes()).hexdigest()
        return CheckpointFolder(path, checkpoint, digest, _weights(place))
    except (RankscopeError, OSError) as error:
        return Unused(f"{path}/config.json", f"checkpoint: {one_line(error)}", damaged=True)


def _weights(place: Path) -> tuple[tuple[str, int, str], ...]:
    files = sorted(file for file in place.glob("*.safetensors") if file.is_file())
    return tuple((file.name, file.stat().st_size, checksum(file)) for file in files)


def _file(root: Path, file: Path) -> Document | Unused:
    path = file.relative_to(root).as_posix()
    try:
        if file.suffix not in (".json", ".csv"):
            return Unused(path, "neither JSON nor CSV")
        if not file.is_file():
            return Unused(path, "no plain file")
        if file.stat().st_size > LARGEST:
            return Unused(path, f"larger than {LARGEST >> 20} MiB")
        raw = file.read_bytes()
    except OSError as error:
        return Unused(path, f"cannot be read: {error.strerror}", damaged=True)
    return _scores(path, raw) if file.suffix == ".csv" else _document(path, raw)


def _document(path: str, raw: bytes) -> Document | Unused:
    try:
        data = codec.loads(raw.decode("utf-8"))
    except ValueError as error:
        return Unused(path, f"damaged: no JSON ({_brief(error)})", damaged=True)
    schema = data.get("schema") if isinstance(data, dict) else None
    match = _SCHEMA.fullmatch(schema) if isinstance(schema, str) else None
    if match is None:
        return Unused(path, "no result of rankscope: it names no schema")
    kind = KINDS.get(match[1])
    if kind is None:
        return Unused(path, f"{schema} has no place in a report")
    reads = kind.record.SCHEMA
    if schema != reads and schema not in getattr(kind.record, "OLDER", ()):
        return Unused(path, f"{schema} is of another version: this release reads {reads}", True, schema)
    try:
        content = kind.read(data)
    except DataError as error:
        return Unused(path, f"damaged: {schema}, but {one_line(error)}", damaged=True)
    return Document(path, match[1], str(schema), content, _text(data, "command"), _text(data, "version"), *_print(raw))


def _scores(path: str, raw: bytes) -> Document | Unused:
    """Read a CSV as chronos-forecasting publishes it or as `eval` writes it; other tables have no place."""
    head = raw.split(b"\n", 1)[0].decode("utf-8", "replace").strip().split(",")
    if head[: len(_SCORES)] != _SCORES:
        return Unused(path, "no table of scores: its first columns are not dataset, model, MASE, WQL")
    try:
        rows = list(csv.DictReader(io.StringIO(raw.decode("utf-8"))))
        if not rows:
            return Unused(path, "no table of scores: it has no rows")
        read, first = tuple(_row(row) for row in rows), rows[0]
        seed, samples, size, most = (
            int(first.get(name) or 0) for name in ("seed", "num_samples", "batch_size", "max_series")
        )
        margin = float(first.get("margin") or 0) or None
    except (ValueError, TypeError, csv.Error) as error:
        return Unused(path, f"damaged: a table of scores, but {_brief(error)}", damaged=True)
    models, baseline = list(dict.fromkeys(row.model for row in read)), first.get("baseline") or ""
    others = [one for one in models if one != baseline]
    summary = summarise(read, others, baseline, margin or MARGIN) if baseline in models else ()
    report = EvalReport(
        Path(path).name, baseline, seed, samples, size, most or None, math.nan, read, summary,
        dtype=first.get("dtype") or None, runtime=first.get("runtime") or None,
        revision=first.get("revision") or None, margin=margin,
    )  # fmt: skip
    return Document(path, "eval", "scores as CSV", report, None, None, *_print(raw))


def _row(row: dict[str, Any]) -> EvalRow:
    """A row, with what `EvalReport.to_csv` writes beside the four columns."""
    series, windows, horizon, season = (
        int(row.get(name) or 0) for name in ("series", "windows", "prediction_length", "season_length")
    )
    scores: dict[str, Any] = {name: float(row[name]) for name in METRICS[2:] if row.get(name)}
    return EvalRow(
        row.get("benchmark") or "",
        row["dataset"],
        row["model"],
        float(row["MASE"]),
        float(row["WQL"]),
        series,
        windows,
        horizon,
        season,
        math.nan,
        **scores,
    )


def _once(documents: list[Document]) -> tuple[list[Document], list[Unused]]:
    """Keep one of several documents that say the same; the one that names its command comes first."""
    kept: dict[tuple[str, str, str], Document] = {}
    repeated = []
    for one in documents:
        said = _said(one)
        first, second = kept.setdefault(said, one), one
        if first is one:
            continue
        if first.command is None and second.command is not None:
            kept[said], second = second, first
        repeated.append(Unused(second.path, f"duplicates {kept[said].path}"))
    return sorted(kept.values(), key=lambda one: one.path), repeated


def _said(one: Document) -> tuple[str, str, str]:
    """Key shared by duplicates; compress and heal leave their report in the folder, too."""
    return one.kind, one.schema, repr(one.content) if one.kind in ("compress", "heal") else one.sha256


def _nothing(root: Path, unused: list[Unused]) -> str:
    wanted = "JSON of spectrum, flow, embed, compress, eval, bench, table2 and the like, CSV of eval, or checkpoints"
    make = f"`rankscope spectrum MODEL --out {root}/spectrum.json` writes one"
    other = [one for one in unused if one.schema]
    if other:
        kind = str(other[0].schema).partition("@")[0].partition("/")[2]
        return (
            f"{root} holds results of another version only: {other[0].path} is {other[0].schema}, this release reads "
            f"{KINDS[kind].record.SCHEMA}; measure again, or use the release that wrote them."
        )
    damaged = [one for one in unused if one.damaged]
    if damaged:
        more = f" ({len(damaged) - 1} more like it)" if len(damaged) > 1 else ""
        return f"{root} holds no result that can be used: {damaged[0].path}: {damaged[0].reason}{more}; {make}."
    found = f"{len(unused)} other file{'s' * (len(unused) != 1)}, such as {unused[0].path}" if unused else "no file"
    return f"{root} holds no result of rankscope: looked for {wanted}, found {found}; {make}."


def _text(data: dict[str, Any], key: str) -> str | None:
    value = data.get(key)
    return value if isinstance(value, str) else None


def _print(raw: bytes) -> tuple[str, int]:
    return hashlib.sha256(raw).hexdigest(), len(raw)


def _brief(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 80 else text[:77] + "…"
