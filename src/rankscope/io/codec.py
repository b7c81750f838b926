"""Records, configs and suites to and from JSON and YAML: one codec, one rule for NaN and infinities.

A record is a dataclass of numbers, texts, arrays, tuples, dicts and further records; its fields are the keys. Four
class variables say the rest:

``SCHEMA``  name and version of the document (``rankscope/heal@1``). It is the first key, and no other is read but
``OLDER``   versions before it, with the function that turns the document of each into one of now.
``KEYS``    the keys in order, where they are not just the fields. ``"site.name"`` lies in a field's own record and is
            written under its last word, ``"pass=passed"`` is a field under another key, ``"sigma?"`` is left out where
            it is None or empty. A property is written, and passed over in reading.
``DIGITS``  significant digits of floats, its records' too.

NaN, +∞ and −∞ are no JSON: all three are written as null, and null is read as NaN where a field is a ``float``.

What people write (`build`) has finite numbers and no unknown fields. What a release of ours wrote (`parse`) may hold
keys that a later one added within its version: they are passed over where the record has a schema, and refused where it
has none. A field that is missing or of another kind is refused in one line in any case.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import re
import sys
import types
from collections.abc import Callable, Mapping
from functools import cache, partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from rankscope.errors import DataError, OptionError, RankscopeError, unknown_choice
from rankscope.io.atomic import atomic_file

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

Record = TypeVar("Record")

UNWRITTEN = {"json": False}
"""Metadata of a field that is not a part of the document."""
_WANTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping of fields to values",
    "array": "an array of numbers",
}
"""Kinds of errors that pydantic tells apart, as what was expected."""


def plain(value: Any, digits: int | None = None) -> Any:
    """Return what JSON holds of a value: records become objects, arrays lists, and NaN and infinities null.

    Args:
        value: a record, or whatever lies in one.
        digits: significant digits of floats where a record does not say; all by default.

    >>> plain({"a": (float("nan"), 1.25), 2: Path("x")}, digits=2)
    {'a': [None, 1.2], '2': 'x'}
    """
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, float):
        return None if not math.isfinite(value) else float(value) if digits is None else float(f"{value:.{digits}g}")
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item, digits) for key, item in value.items()}
    if dataclasses.is_dataclass(value):
        return _object(value, getattr(value, "DIGITS", digits))
    if hasattr(value, "tolist"):  # of numpy and torch
        return plain(value.tolist(), digits)
    return str(value) if isinstance(value, Path) else [plain(item, digits) for item in value]


def text(data: Any, indent: int | None = None) -> str:
    """Return a record, or plain data, as JSON."""
    return json.dumps(plain(data), indent=indent, ensure_ascii=False, allow_nan=False)


def write(file: Path | str, data: Any, indent: int | None = 1) -> None:
    """Write plain data, or a record, as a JSON file, whole or not at all.

    Raises:
        OutputError: the file cannot be written.
    """
    with atomic_file(file) as path:
        path.write_text(text(data, indent) + "\n", encoding="utf-8")


def load(file: Path | str, what: str = "", error: type[RankscopeError] = DataError) -> Any:
    """Read plain data from a JSON or, by its suffix, YAML file.

    Args:
        file: its path.
        what: begins the message: "config".
        error: the kind that is raised.

    Raises:
        RankscopeError: the file cannot be read, or is neither.
    """
    import yaml

    path, named = Path(file), f"{what} {file}".lstrip()
    kind = "YAML" if path.suffix in (".yaml", ".yml") else "JSON"
    try:
        content = path.read_text(encoding="utf-8")
        return loads(content) if kind == "JSON" else _sound(yaml.safe_load(content), content)
    except OSError as found:
        raise error(f"{named} cannot be read: {found.strerror or found}.") from found
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError, yaml.YAMLError) as found:
        # the constructors of explicit tags, such as !!timestamp, raise whatever their code meets
        why = " ".join(str(found).split())
        if isinstance(found, yaml.MarkedYAMLError) and (mark := found.problem_mark) is not None:
            why = f"{found.problem}, line {mark.line + 1}, column {mark.column + 1}"
        raise error(f"{named} is not valid {kind}: {why[:200]}.") from found


def loads(text: str | bytes) -> Any:
    r"""Parse JSON; refuse what it can say and nothing else can hold.

    Raises:
        ValueError: it is not JSON, is nested too deep, or has an integer beyond the largest float or half a surrogate
            pair.

    >>> loads('{"a": "\\ud83d\\ude00"}')
    {'a': '😀'}
    """
    try:
        return _sound(json.loads(text), text)
    except RecursionError:
        raise ValueError("lists or objects within one another too deep to be read") from None


_ODD = re.compile(rb"\\u0*d[89a-f]|\d{309}", re.IGNORECASE)
"""Matches wherever there may be one of either."""


def _sound(data: Any, text: str | bytes) -> Any:
    if not _ODD.search(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")):
        return data
    waiting, seen = [data], set()  # YAML can put a list into itself
    while waiting:
        one = waiting.pop()
        if isinstance(one, (dict, list)):
            waiting += [] if id(one) in seen else [*one, *one.values()] if isinstance(one, dict) else one
            seen.add(id(one))
        elif isinstance(one, str):
            one.encode()
        elif isinstance(one, int) and abs(one) > sys.float_info.max:
            raise ValueError("an integer beyond the largest float")
    return data


def read(kind: type[Record], path: Path | str, inside: str = "", fix: str = "") -> Record:
    """Read the document of a record: its file, or the folder that holds it as ``inside``.

    Args:
        kind: the record's class.
        path: file or folder.
        inside: name of the file in a folder.
        fix: ends the error: what to do about a file that is damaged.

    Raises:
        DataError: there is none, it is not JSON, of another schema or version, or lacks a part; the file is named.
    """
    file = find(path, inside)
    try:
        return parse(kind, load(file), str(file))
    except DataError as error:
        raise DataError(f"{error} {fix}".rstrip()) from error


def part(file: Path | str, key: str, fix: str = "") -> Any:
    """Read one entry of a JSON object as plain data.

    Args:
        file: its path.
        key: name of the entry.
        fix: ends the error: what to do about a file that is damaged.

    Raises:
        DataError: the file cannot be read, is not a JSON object or has no such entry.
    """
    try:
        data = load(file)
        if not isinstance(data, Mapping) or key not in data:
            raise DataError(f"{file} is not an object with an entry {key!r}.")
        return data[key]
    except DataError as error:
        raise DataError(f"{error} {fix}".rstrip()) from error


def find(path: Path | str, inside: str = "") -> Path:
    """Return the file at a path, or the one in a folder that is called ``inside``.

    Raises:
        DataError: there is neither.
    """
    file = Path(path)
    if inside and file.is_dir():
        file = file / inside
        if not file.is_file():
            raise DataError(f"folder {path} holds no {inside}: name the folder or file of a result.")
    elif not file.is_file():
        raise DataError(f"there is no file{' or folder' * bool(inside)} {file}: name a saved result.")
    return file


def parse(kind: type[Record], data: Any, where: str = "") -> Record:
    """Make a record of its document.

    Args:
        kind: the record's class.
        data: the parsed JSON.
        where: begins the error: the file.

    Raises:
        DataError: it is of another schema or version, or a field is missing or of another kind.
    """
    schema = getattr(kind, "SCHEMA", None)
    if schema is not None:
        found = data.get("schema") if isinstance(data, Mapping) else None
        older = getattr(kind, "OLDER", {}).get(found) if isinstance(found, str) else None
        if older is not None:
            data = _upgraded(older, data, where)
        elif found != schema:
            told = f"is {found}" if isinstance(found, str) else "names no schema"
            raise DataError(f"{where or 'the document'} {told}: this release reads {schema}.")
    return _read(kind, data, False, schema is None, where, DataError)


def _upgraded(older: Callable[[Any], Any], data: Any, where: str) -> Any:
    try:
        return older(data)
    except (KeyError, TypeError, ZeroDivisionError) as error:
        raise DataError(f"{where or 'the document'} lacks a part of its schema ({error}).") from error


def build(kind: Any, data: Any, name: str = "", where: str = "", error: type[RankscopeError] = OptionError) -> Any:
    """Make a config, or one of its values, of what a person wrote.

    Args:
        kind: a dataclass, or the type of a value.
        data: the parsed YAML or JSON.
        name: dotted name of the field that holds it; empty for the outermost.
        where: begins the error: the file.
        error: the kind that is raised.

    Raises:
        RankscopeError: a field is unknown or missing, or a value of another kind than its field or out of range.

    >>> build(float, "1e-3", "learning_rate"), build(tuple[int, ...], [0, 5], "steps")
    (0.001, (0, 5))
    """
    return _read(kind, data, True, True, where, error, name)


def _read(
    kind: Any, data: Any, finite: bool, closed: bool, where: str, error: type[RankscopeError], name: str = ""
) -> Any:
    from pydantic import ValidationError

    try:
        return _adapter(kind, finite, closed).validate_python(data)
    except ValidationError as found:
        raise error((f"{where}: " if where else "") + _told(found, data, name)) from found


def _object(record: Any, digits: int | None) -> dict[str, Any]:
    values = {"schema": record.SCHEMA} if hasattr(record, "SCHEMA") else {}
    for key, steps, sparse in _keys(record.__class__):
        value = reduce(getattr, steps, record)
        if not sparse or (value is not None and len(value)):
            values[key] = plain(value, digits)
    return values


@cache
def _keys(kind: type) -> tuple[tuple[str, tuple[str, ...], bool], ...]:
    """Key, attributes that lead to its value, and True if it is left out where there is none."""
    written = [one.name for one in dataclasses.fields(kind) if one.metadata.get("json", True)]
    found = []
    for entry in getattr(kind, "KEYS", written):
        key, _, path = entry.removesuffix("?").rpartition("=")
        steps = tuple(path.split("."))
        found.append((key or steps[-1], steps, entry.endswith("?")))
    return tuple(found)


@cache
def _adapter(kind: Any, finite: bool, closed: bool) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(_seen(kind, finite, closed))


def _seen(hint: Any, finite: bool, closed: bool) -> Any:
    """A type as pydantic is to read it."""
    from pydantic import AfterValidator, AllowInfNan, BeforeValidator, Strict

    if hint is float:
        return Annotated[
            float, Strict(), AllowInfNan(not finite), BeforeValidator(_from_text if finite else _from_null)
        ]
    if hint in (int, bool, str):
        return Annotated[hint, Strict()]
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        made = AfterValidator(lambda values: hint(**values))
        return Annotated[_fields(hint, finite, closed), BeforeValidator(partial(_gathered, hint, closed)), made]
    if hasattr(hint, "array_type") or getattr(hint, "__name__", "") == "ndarray":
        return Annotated[Any, AfterValidator(partial(_array, hint))]
    if get_origin(hint) is Literal:
        return Annotated[hint, BeforeValidator(partial(_chosen, get_args(hint)))]
    if get_origin(hint) is None:
        return hint
    inner = tuple(_seen(one, finite, closed) for one in get_args(hint))
    union = get_origin(hint) in (Union, types.UnionType)
    return Union[inner] if union else get_origin(hint)[inner]  # noqa: UP007


def _fields(kind: Any, finite: bool, closed: bool) -> Any:
    """The fields of a record as a typed dict; those with a default need not be there."""
    from pydantic import Field
    from typing_extensions import NotRequired, TypedDict

    hints, keys = get_type_hints(kind), {steps[0]: key for key, steps, _ in _keys(kind) if len(steps) == 1}
    inner = {steps[0] for _, steps, _ in _keys(kind) if len(steps) > 1}
    seen = {}
    for one in dataclasses.fields(kind):
        if one.init and (one.name in keys or one.name in inner):
            read: Any = Annotated[_seen(hints[one.name], finite, closed), Field(alias=keys.get(one.name, one.name))]
            bare = one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
            seen[one.name] = read if bare else NotRequired[read]
    return TypedDict(kind.__name__, seen)  # type: ignore[operator]


def _gathered(kind: type, closed: bool, data: Any) -> Any:
    """Gather the keys of an object under the fields that they come from, and refuse those of none if ``closed``."""
    if not isinstance(data, Mapping):
        return data
    from pydantic_core import PydanticCustomError

    values: dict[str, Any] = {}
    known = {key: steps for key, steps, _ in _keys(kind)}
    for key, value in data.items():
        if closed and key not in known:
            raise PydanticCustomError("unknown", "unknown", {"key": key, "known": list(known)})
        head, *rest = known.get(key, ("",))
        if rest:
            values[head] = {**values.get(head, {}), rest[0]: value}
        elif head:
            values[key] = value
    return values


def _chosen(words: tuple[str, ...], value: Any) -> Any:
    from pydantic_core import PydanticCustomError

    if value not in words:
        raise PydanticCustomError("choice", "no choice", {"words": words})
    return value


def _from_text(value: Any) -> Any:
    """Take a number as text too: YAML 1.1 reads ``1e-3``, without a point, as text."""
    with contextlib.suppress(ValueError):
        return float(value) if isinstance(value, str) else value
    return value


def _from_null(value: Any) -> Any:
    return math.nan if value is None else value


def _array(hint: Any, value: Any) -> Any:
    import numpy as np
    from pydantic_core import PydanticCustomError

    with contextlib.suppress(ValueError, TypeError):  # of what is ragged or no number
        array = np.asarray(value)
        if array.dtype == object or (array.dtype.kind == "i" and not isinstance(array, hint)):
            array = array.astype(np.float64)  # None becomes NaN
        if array.dtype.kind in "biuf" and isinstance(array, hint):
            return array
    raise PydanticCustomError("array", "no array")


def _told(found: ValidationError, data: Any, name: str) -> str:
    """Say in one line what is wrong, where, and what was expected."""
    every = found.errors(include_url=False)
    first = every[0]
    about = first.get("ctx", {})
    if isinstance(about.get("error"), RankscopeError):
        return str(about["error"])
    place, value = name, data
    for step in first["loc"]:  # unions add steps of their own, and records that are written among other fields
        if isinstance(value, Mapping) and step in value:
            place, value = f"{place}.{step}" if place else str(step), value[step]
        elif isinstance(value, (list, tuple)) and isinstance(step, int) and step < len(value):
            place, value = f"{place}[{step}]", value[step]
    inside = f"{place}." if place else ""
    if first["type"] == "unknown":
        return unknown_choice("field", f"{inside}{about['key']}", [inside + key for key in about["known"]])
    if first["type"] == "missing" and not isinstance(value, (list, tuple)):
        return f"{inside}{first['loc'][-1]} is missing."
    if first["type"] == "choice":
        return unknown_choice(place or "the document", value, about["words"])
    shown = repr(value)
    shown = shown if len(shown) <= 60 else shown[:59] + "…"
    wanted = _WANTED.get(first["type"])
    if first["type"] in ("missing", "too_long"):
        here = [one["loc"][-1] for one in every if one["loc"][:-1] == first["loc"][:-1]]
        wanted = f"a list of {about['max_length'] if about else 1 + max(at for at in here if isinstance(at, int))}"
    return f"{place or 'the document'} is {shown}: {f'it must be {wanted}' if wanted else first['msg']}."
