"""Names of a package that are imported when they are used, so that importing the package costs little."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def attach(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make ``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: its ``__name__``.
        homes: module of every name; relative to the package where it begins with a dot.

    >>> find, names = attach("rankscope", {"validate_eps": ".numerics.rank"})
    >>> find("validate_eps")(0.1), "validate_eps" in names()
    (0.1, True)
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name], package), name)

    return find, lambda: sorted({*vars(sys.modules[package]), *homes})
