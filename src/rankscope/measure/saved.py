"""Saved results, as verbs write them: a JSON file, or a folder that holds it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from rankscope.errors import DataError, RankscopeError

Result = TypeVar("Result")


def read_json(path: Path, inside: str, parse: Callable[[dict[str, Any]], Result]) -> Result:
    """Read a saved result: a JSON file, or a folder that holds it under the name ``inside``.

    Args:
        path: file or folder.
        inside: name of the file in a folder.
        parse: makes the result of the document, and raises `RankscopeError` on another schema.

    Raises:
        DataError: nothing is there, it is no such document, or of another schema; one line that names the file.
    """
    file = held(path, inside)
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise DataError(f"{file} is no JSON: name a saved result.") from error
    if not isinstance(document, dict):
        raise DataError(f"{file} holds no result: name one that a verb of rankscope saved.")
    try:
        return parse(document)
    except RankscopeError as error:
        raise DataError(f"{file}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"{file} lacks a part of its result ({type(error).__name__}: {error}): save it again."
        ) from error


def held(path: Path, inside: str) -> Path:
    """The file itself, or the one of that name in a folder.

    Raises:
        DataError: there is neither.
    """
    if path.is_dir():
        if not (path / inside).is_file():
            raise DataError(f"folder {path} holds no {inside}: name the folder or file of a result.")
        return path / inside
    if not path.is_file():
        raise DataError(f"there is no file or folder {path}: name a saved result.")
    return path
