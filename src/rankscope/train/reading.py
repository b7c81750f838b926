"""Frozen records from YAML files and nested dicts: every value is checked against the record's type hints."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import yaml

from rankscope.errors import OptionError, unknown_choice

Record = TypeVar("Record")

_ONE = {int: "a whole number", float: "a finite number", bool: "true or false", str: "text"}
_MANY = {int: "whole numbers", float: "finite numbers", bool: "true or false", str: "texts"}


def read_mapping(path: Path | str, what: str, holding: str = "of fields to values") -> dict[str, Any]:
    """Read a YAML file.

    Args:
        path: the file.
        what: begins the error: "config".
        holding: what the mapping maps, for the error.

    Raises:
        OptionError: the file is missing, or no YAML mapping.
    """
    file = Path(path)
    try:
        loaded = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"{what} {file} cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise OptionError(f"{what} {file} is no valid YAML: {str(error).splitlines()[0]}.") from error
    if not isinstance(loaded, dict):
        raise OptionError(f"{what} {file} must be a mapping {holding}.")
    return loaded


def build(kind: type[Record], values: Any, name: str = "") -> Record:
    """Build a record, and the records in it, from nested dicts.

    Args:
        kind: a dataclass.
        values: its fields; those that are left out keep their defaults.
        name: dotted name of the field that holds the record, empty for the outermost.

    Raises:
        OptionError: a field is unknown, or a value is of another kind than the field.
    """
    if not isinstance(values, Mapping):
        raise OptionError(f"{name or 'a config'} must be a mapping of fields to values, not {values!r}.")
    prefix = f"{name}." if name else ""
    hints = get_type_hints(kind)
    for field in values:
        if field not in hints:
            raise OptionError(unknown_choice("config field", f"{prefix}{field}", [prefix + known for known in hints]))
    return kind(**{field: checked(hints[field], value, f"{prefix}{field}") for field, value in values.items()})


def checked(hint: Any, value: Any, name: str) -> Any:
    """Return a value as a field of type ``hint`` holds it: a record, a tuple, or a plain value.

    Raises:
        OptionError: it is none.

    >>> checked(float, "1e-3", "learning_rate"), checked(tuple[int, ...], [0, 5], "steps")
    (0.001, (0, 5))
    """
    kinds = [kind for kind in get_args(hint) if kind is not NoneType] if _is_union(hint) else [hint]
    if value is None and NoneType in get_args(hint):
        return None
    kind = kinds[0]
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return build(kind, value, name)
    if get_origin(kind) is tuple:
        return _list(get_args(kind)[0], value, name)
    try:
        return _plain(kind, value)
    except (ValueError, TypeError, OverflowError):
        raise OptionError(f"{name} is {value!r}: it must be {_ONE[kind]}.") from None


def _list(kind: Any, value: Any, name: str) -> tuple[Any, ...]:
    try:
        if not isinstance(value, (list, tuple)):
            raise TypeError
        return tuple(_plain(kind, item) for item in value)
    except (ValueError, TypeError, OverflowError):
        raise OptionError(f"{name} is {value!r}: it must be a list of {_MANY[kind]}.") from None


def _plain(kind: Any, value: Any) -> Any:
    """Take a number as text too where a float is meant: YAML 1.1 reads ``1e-3``, without a point, as text."""
    if kind is float and type(value) in (int, float, str):
        number = float(value)
        if not math.isfinite(number):
            raise ValueError
        return number
    if type(value) is not kind:  # a bool is no int here
        raise TypeError
    return value


def _is_union(hint: Any) -> bool:
    return bool(get_args(hint)) and get_origin(hint) is not tuple
