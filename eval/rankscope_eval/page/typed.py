"""Untrusted JSON becomes frozen dataclasses: what is missing or of another kind is named, what is new is left out."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, Union, cast

from rankscope.errors import DataError

T = TypeVar("T")


def build(cls: type[T], data: Any, where: str = "") -> T:
    """Make a dataclass of a JSON object by the types of its fields; further keys are ignored.

    A null is NaN where a number is wanted: that is how reports write a score that is no number.

    Args:
        cls: a dataclass whose fields are numbers, texts, lists, tuples, dicts or dataclasses of such.
        data: the parsed JSON.
        where: path of ``data`` in its document, for the message.

    Raises:
        DataError: a key without a default is missing, or a value is of another kind.

    >>> from rankscope_eval.bench.turns import Spread
    >>> build(Spread, {"median": 1, "min": None, "max": 2.5, "new": "x"})
    Spread(median=1.0, min=nan, max=2.5)
    """
    return cast(T, _dataclass(cls, data, where))


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _dataclass(cls: Any, data: Any, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise _wrong(where, "an object", data)
    hints, values = _hints(cls), {}
    for field in fields(cls):
        name = str(field.metadata.get("key", field.name))
        if name in data:
            values[field.name] = _value(hints[field.name], data[name], f"{where}.{name}" if where else name)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise DataError(f"{name} is missing" + (f" in {where}" if where else ""))
    return cls(**values)


def _value(kind: Any, data: Any, where: str) -> Any:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return data
    if origin in (Union, types.UnionType):
        return _union(inner, data, where)
    if is_dataclass(kind):
        return _dataclass(kind, data, where)
    if origin in (tuple, list):
        return _sequence(origin, inner, data, where)
    if origin is dict:
        if not isinstance(data, Mapping):
            raise _wrong(where, "an object", data)
        return {str(key): _value(inner[1], item, f"{where}.{key}") for key, item in data.items()}
    return _plain(kind, data, where)


def _union(kinds: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and type(None) in kinds:
        return None
    errors: list[DataError] = []
    for kind in kinds:
        if kind is not type(None):
            try:
                return _value(kind, data, where)
            except DataError as error:
                errors.append(error)
    raise errors[-1]


def _sequence(origin: Any, inner: tuple[Any, ...], data: Any, where: str) -> Any:
    if not isinstance(data, (list, tuple)):
        raise _wrong(where, "a list", data)
    if origin is list or inner[-1] is Ellipsis:
        return origin(_value(inner[0], item, f"{where}[{number}]") for number, item in enumerate(data))
    if len(inner) != len(data):
        raise _wrong(where, f"{len(inner)} values", data)
    return tuple(_value(kind, item, f"{where}[{n}]") for n, (kind, item) in enumerate(zip(inner, data, strict=True)))


def _plain(kind: Any, data: Any, where: str) -> Any:
    if kind is float and data is None:
        return float("nan")
    if kind is bool and isinstance(data, bool):
        return data
    if kind is float and isinstance(data, (int, float)) and not isinstance(data, bool):
        return float(data)
    if kind is int and isinstance(data, int) and not isinstance(data, bool):
        return data
    if kind is str and isinstance(data, str):
        return data
    if kind is dict and isinstance(data, Mapping):
        return dict(data)
    names = {float: "a number", int: "a whole number", str: "a text", bool: "true or false", dict: "an object"}
    raise _wrong(where, names.get(kind, str(kind)), data)


def _wrong(where: str, wanted: str, found: Any) -> DataError:
    shown = repr(found)
    shown = shown if len(shown) <= 40 else shown[:37] + "…"
    return DataError(f"{where or 'the document'} is not {wanted}: {shown}")
