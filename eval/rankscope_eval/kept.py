"""Common to evaluations of tasks one by one: checks, models, and rows that a stopped run leaves to the next."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from rankscope import __version__
from rankscope.errors import DataError, OptionError
from rankscope.io.run_store import RunStore
from rankscope_eval.forecasters import Forecasting, model_name
from rankscope_eval.verdict import check_margin

ROWS_SCHEMA = "rankscope/eval-rows@2"
Model = TypeVar("Model")
Record = TypeVar("Record")


def check_run(models: Sequence[Any], kept: str | Path | None, resume: bool, margin: float) -> None:
    """Refuse options of an evaluation that do not go together.

    Raises:
        OptionError: no models, ``resume`` without ``kept``, or a margin that is none.
    """
    if isinstance(models, (str, Path)) or not isinstance(models, Iterable):
        raise OptionError("models must be a list, such as ['seasonal-naive'].")
    if not models:
        raise OptionError("models is empty; give at least one, such as 'seasonal-naive' or a checkpoint.")
    if resume and kept is None:
        raise OptionError("resume requires kept, the folder of finished rows.")
    check_margin(margin)


def open_all(
    models: Sequence[Any], baseline: Any, how: Forecasting, open_one: Callable[[Any, Forecasting], Model]
) -> list[Model]:
    """Open models and the baseline, each once; a revision is the models' and not the baseline's.

    Raises:
        OptionError: the baseline is one of the models, which are of a revision.
    """
    named = {model_name(one): one for one in models}
    if how.revision is not None and model_name(baseline) in named:
        raise OptionError(
            f"the baseline {model_name(baseline)} is also evaluated, at revision {how.revision}, under the same name: "
            "download that revision into a folder, and give the folder in its place."
        )
    opened = [open_one(one, how) for one in named.values()]
    if model_name(baseline) not in named:
        opened.append(open_one(baseline, replace(how, revision=None)))
    return opened


def kept_rows(folder: str | Path) -> RunStore:
    """Open the row store of a folder; rows are named by `row_key`."""
    return RunStore(folder, "rows of an unfinished evaluation", ROWS_SCHEMA, {}, items="rows")


@contextlib.contextmanager
def opened_store(kept: str | Path | None, resume: bool) -> Iterator[RunStore | None]:
    """Open the store of finished rows in a folder; None stores none."""
    store = None if kept is None else kept_rows(kept)
    with contextlib.nullcontext() if store is None else store.open(resume=resume, force=not resume):
        yield store


def row_key(kind: str, model: str, files: Iterable[Path] | None, *parts: Any) -> str | None:
    """Return a hash of all that determines a row; None for models without known files.

    Args:
        kind: benchmark.
        model: name of the model.
        files: files of the model, known by name, size and time.
        parts: settings, task and data.
    """
    if files is None:
        return None
    text = json.dumps([kind, __version__, model, states(files), *parts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def states(files: Iterable[Path]) -> list[tuple[str, int, int]]:
    """Name, size and time of change of files, and of the files in folders."""
    found = [one for file in files for one in (sorted(file.rglob("*")) if file.is_dir() else [file])]
    return [(one.name, one.stat().st_size, one.stat().st_mtime_ns) for one in found if one.is_file()]


def stored(
    store: RunStore | None, key: str | None, kind: type[Record], fits: Callable[[Record], bool]
) -> Record | None:
    """Return a stored row, or None.

    Args:
        store: of finished rows; None stores none.
        key: of the row; None for one that is not to be used again.
        kind: class of rows.
        fits: True if a stored row is of the model and task that it is stored for.

    Raises:
        DataError: the stored row is damaged.
    """
    if store is None or key is None:
        return None
    earlier = store.get(key, kind)
    if earlier is not None and not fits(earlier):
        raise DataError(f"{store.path(key)} holds a row of something else. Delete the file, and it is made anew.")
    return earlier


def put(store: RunStore | None, key: str | None, record: Any) -> None:
    """Store a row, where there is a store and the row has a key."""
    if store is not None and key is not None:
        store.put(key, record)


def reused(
    store: RunStore | None,
    key: str | None,
    kind: type[Record],
    make: Callable[[], Record],
    fits: Callable[[Record], bool],
) -> Record:
    """Return a stored row, or make and store it: see `stored`."""
    earlier = stored(store, key, kind, fits)
    if earlier is not None:
        return earlier
    made = make()
    put(store, key, made)
    return made
