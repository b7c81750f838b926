"""Errors that a user can act on: each message is one line naming what is wrong, where, and what to do."""

from __future__ import annotations

import difflib
import operator
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any


class RankscopeError(ValueError):
    """Base of every error that rankscope raises on bad input; the command line prints it and exits with 2.

    Names of files, columns and fields stand in messages: what in them would break the line becomes a blank, what would
    steer a terminal or cannot be encoded is shown escaped.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class CheckpointError(RankscopeError):
    """A checkpoint is missing, unreadable, unsafe or inconsistent with its config."""


class FamilyError(RankscopeError):
    """A checkpoint belongs to no model family that rankscope knows."""


class DataError(RankscopeError):
    """Series, tables or suites that cannot be used as they are."""


class OptionError(RankscopeError):
    """An option is out of range or contradicts another one."""


class OutputError(RankscopeError):
    """A result cannot be written where it was asked for."""


def printable(text: str) -> str:
    r"""Replace characters that are not printed: line breaks by blanks, control sequences and the like by escapes.

    >>> printable("a\x1b[31m\nb")
    'a\\x1b[31m b'
    """
    return text if text.isprintable() else "".join(map(_printable, text))


def _printable(one: str) -> str:
    if one.isprintable() or unicodedata.category(one) == "Zs":
        return one
    return " " if one.isspace() else repr(one)[1:-1]


def unknown_choice(parameter: str, value: object, choices: Iterable[str], fix: str = "") -> str:
    """Message for a value outside a closed list, with the nearest choice suggested.

    >>> unknown_choice("method", "svdd", ["svd", "joint"])
    "method 'svdd' is not known: did you mean 'svd'? Choose from svd, joint."
    """
    known = list(choices)
    guess = nearest(value, known)
    tail = f" {fix}" if fix else ""
    choose = "Choose" if guess else "choose"
    return f"{parameter} {value!r} is not known: {guess}{choose} from {', '.join(known)}.{tail}"


def nearest(value: object, choices: Sequence[str]) -> str:
    """The question whether the nearest choice was meant, with a space behind it; empty where none is near.

    >>> nearest("jiont", ["svd", "joint"])
    "did you mean 'joint'? "
    """
    near = difflib.get_close_matches(str(value), choices, n=1)
    return f"did you mean {near[0]!r}? " if near else ""


def check_least(record: object, least: int, names: Iterable[str], prefix: str = "") -> None:
    """Check that fields of a record, numbers or tuples of them, are at least so much; None is not looked at.

    Raises:
        OptionError: one is below, or NaN.

    >>> from types import SimpleNamespace
    >>> check_least(SimpleNamespace(steps=(5, -1)), 0, ("steps",), "spectra.")
    Traceback (most recent call last):
    rankscope.errors.OptionError: spectra.steps is -1: it must be at least 0.
    """
    for name in names:
        value = getattr(record, name)
        for one in value if isinstance(value, tuple) else (value,):
            if one is not None and not one >= least:  # NaN is not
                raise OptionError(f"{prefix}{name} is {one}: it must be at least {least}.")


def check_count(name: str, value: Any, least: int = 1) -> int:
    """Return a whole number of at least so much, of any integer type.

    Raises:
        OptionError: it is below, or not a whole number.

    >>> check_count("horizon", 0)
    Traceback (most recent call last):
    rankscope.errors.OptionError: horizon 0 is not usable: give a whole number, at least 1.
    """
    try:
        count = operator.index(value)
    except TypeError:
        count = least - 1
    if isinstance(value, bool) or count < least:
        raise OptionError(f"{name} {value!r} is not usable: give a whole number, at least {least}.")
    return count


def one_line(error: BaseException) -> str:
    """Message of an error in one line; its type is named unless rankscope raised it."""
    text = " ".join(str(error).split())
    return text if isinstance(error, RankscopeError) and text else f"{type(error).__name__}: {text}".rstrip(": ")
