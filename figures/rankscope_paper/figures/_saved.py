"""Saved results that the package carries."""

from __future__ import annotations

from pathlib import Path

from rankscope.errors import DataError

CARRIED = Path(__file__).with_name("data")
"""Folder of the results that the package carries."""


def carried(name: str, make: str) -> Path:
    """Path of a result that the package carries.

    Raises:
        DataError: it does not; the message names the command that makes it.
    """
    file = CARRIED / name
    if not file.is_file():
        raise DataError(f"there is no saved {name}: make it with `{make}`, and name it with --data.")
    return file
