"""Results that are there already when an evaluation is to go on: whether they are of the same evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rankscope.errors import DataError, OutputError
from rankscope.io import codec


def check_finished(
    out: str, files: Iterable[Path], models: Sequence[str], data_sets: Mapping[str, bool], settings: Mapping[str, Any]
) -> None:
    """Refuse to take results for those of an evaluation if they are of other models, data sets or settings.

    Args:
        out: the option, for the error.
        files: tables or JSON documents of results.
        models: of the evaluation, with the baseline.
        data_sets: their names; True for one that is left out if the hub does not answer.
        settings: of the evaluation, by their names in the JSON document.

    Raises:
        OutputError: they differ as far as the files tell, or hold no results.
    """
    given = [_plain(model) for model in models]
    least = [name for name, may_lack in data_sets.items() if not may_lack]
    told: dict[str, Any] = {}
    found: tuple[set[str], set[str]] = set(), set()
    for file in files:
        try:
            document = _document(file)
            if not document["rows"]:
                raise DataError(f"{file} has no rows.")
            for row in document["rows"]:
                found[0].add(_plain(row.get("model") or row["model_name"]))
                found[1].add(str(row.get("dataset") or row["task_name"]))
        except (OSError, DataError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise _other(out, "and holds no results that can be read") from error
        told |= {name: document[name] for name in settings if name in document}
    _compare(out, "model", found[0], given, given)
    _compare(out, "data set", found[1], least, data_sets)
    for name, value in told.items():
        if value != settings[name]:
            raise _other(out, f"with {name} {value!r}, not {settings[name]!r}")


def _compare(out: str, what: str, found: set[str], least: Iterable[str], most: Iterable[str]) -> None:
    lacking = next((name for name in least if name not in found), None)
    if lacking is not None:
        raise _other(out, f"without {what} {lacking!r}")
    more = found.difference(most)
    if more:
        raise _other(out, f"with {what} {min(more)!r} as well")


def _document(file: Path) -> Mapping[str, Any]:
    if file.suffix.lower() == ".json":
        return dict(codec.load(file, "results"))
    import pandas as pd

    frame = (
        pd.read_parquet(file) if file.suffix.lower() == ".parquet" else pd.read_csv(file, dtype=str, na_filter=False)
    )
    return {"rows": frame.to_dict("records")}


def _plain(model: str) -> str:
    return model.rstrip("/")


def _other(out: str, how: str) -> OutputError:
    return OutputError(f"{out} is finished, {how}: choose another --out, or start anew with --force.")
