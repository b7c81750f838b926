"""Files of the user's series: how they are read, and one that replaces a suite; the same options for all verbs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rankscope.errors import OptionError

if TYPE_CHECKING:
    from rankscope_eval import Suite

INPUT = "--input FILE: suites say it for each data set"
"""Requirement of the options about a scored file."""


def reading(
    file: bool,
    required: str,
    freq: str | None,
    id_column: str | None,
    time_column: str | None,
    target_column: str | None,
) -> dict[str, Any]:
    """Return how files of series are read, as the library's arguments ``columns`` and ``freq``.

    Args:
        file: True if a file is given.
        required: option that gives one, for the error.
        freq: value of ``--freq``.
        id_column: value of ``--id-column``.
        time_column: value of ``--time-column``.
        target_column: value of ``--target-column``.

    Raises:
        OptionError: one of the options is given without a file.
    """
    from rankscope.series import Columns

    names = {"id_column": id_column, "time_column": time_column, "target_column": target_column}
    if not file:
        refuse({"freq": freq, **names}, required)
    return {"columns": Columns(*names.values()) if given(names) else None, "freq": freq}


def own_suite(
    input: str | None,
    horizon: int | None,
    windows: int | None,
    season_length: int | None,
    read: Mapping[str, Any],
    replaced: Mapping[str, object],
) -> Suite | None:
    """Return the suite of ``--input``, None if the option is not given.

    Args:
        input: file of series.
        horizon: steps of every window.
        windows: windows at the end of every series (default: 1).
        season_length: season length (default: from the frequency).
        read: result of `reading`.
        replaced: values of the options that select a suite.

    Raises:
        OptionError: a suite is given as well, ``--input`` without ``--horizon``, or the others without ``--input``.
    """
    if input is None:
        refuse({"horizon": horizon, "windows": windows, "season_length": season_length}, INPUT)
        return None
    if horizon is None:
        raise OptionError("--input requires --horizon STEPS: how many values to forecast.")
    both = next(iter(given(replaced)), None)
    if both is not None:
        raise OptionError(f"--{both} selects a suite, and --input replaces it: give one of the two.")
    from rankscope_eval import series_suite

    return series_suite(input, horizon, windows or 1, season_length=season_length, **read)


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that have a value."""
    return {name: value for name, value in options.items() if value is not None}


def refuse(options: Mapping[str, Any], required: str) -> None:
    """Raise `OptionError` for the first option that has a value: it requires another one."""
    for name in given(options):
        raise OptionError(f"--{name.replace('_', '-')} requires {required}.")
