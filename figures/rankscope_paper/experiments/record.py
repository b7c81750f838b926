"""Results of the experiments as JSON documents, and back: frozen records of numbers, arrays and records."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any, TypeVar

import numpy as np

from rankscope.errors import OptionError

SCHEMA = "rankscope/experiment@1"
R = TypeVar("R")


def begin(name: str, result: Any) -> dict[str, Any]:
    """A result as a document of `SCHEMA`; keys are the fields' names."""
    return {"schema": SCHEMA, "id": name, **_plain(result)}


def read(name: str, data: dict[str, Any], kind: type[R]) -> R:
    """Rebuild a result of one kind.

    Raises:
        OptionError: another schema, another experiment, or a field is missing.
    """
    if data.get("schema") != SCHEMA or data.get("id") != name:
        found = f"schema {data.get('schema')!r}, id {data.get('id')!r}"
        raise OptionError(f"expected a result of schema {SCHEMA!r} with id {name!r}, got {found}: run {name} again.")
    try:
        return _build(data, kind)
    except (KeyError, TypeError) as error:
        raise OptionError(f"the result of {name} is not whole ({error}): run {name} again.") from None


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        # nine digits: what float32 has, and a file that is read by people
        return value.tolist() if value.dtype.kind != "f" else _rounded(value.tolist())
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _rounded(value: Any) -> Any:
    return [_rounded(item) for item in value] if isinstance(value, list) else float(f"{value:.9g}")


def _build(data: Any, kind: Any) -> Any:
    origin = typing.get_origin(kind)
    if origin is types.UnionType or origin is typing.Union:
        return None if data is None else _build(data, typing.get_args(kind)[0])
    if origin is tuple:
        return tuple(_build(item, typing.get_args(kind)[0]) for item in data)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        make: Any = kind
        return make(**{field.name: _build(data[field.name], hints[field.name]) for field in dataclasses.fields(kind)})
    if getattr(kind, "array_type", None) is np.ndarray:
        return np.array(data)
    return data
