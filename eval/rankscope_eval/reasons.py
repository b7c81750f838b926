"""Errors of the packages that read and score benchmarks, in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rankscope.errors import DataError, RankscopeError


@contextmanager
def as_data_error(where: str) -> Iterator[None]:
    """Turn errors of other packages into one line that begins with ``where``.

    Raises:
        DataError: there is one; errors of rankscope's own pass.
    """
    try:
        yield
    except RankscopeError:
        raise
    except Exception as error:  # pydantic's, datasets', pyarrow's, numpy's, GluonTS', and AssertionErrors of fev
        raise DataError(f"{where}: {reason_of(error)}") from error


def reason_of(error: Exception) -> str:
    """One line of an error, its cause included where it only says that something failed."""
    cause = error.__cause__ or error.__context__
    parts = [_line(one) for one in (error, cause if isinstance(error, RuntimeError) else None) if one is not None]
    return ": ".join(parts)[:400]


def _line(error: BaseException) -> str:
    details = getattr(error, "errors", None)
    if callable(details):  # pydantic's ValidationError
        first = details()[0]
        field = ".".join(str(part) for part in first["loc"])
        return f"{field}: {first['msg']}" if field else str(first["msg"])
    text = str(error).strip().splitlines()
    if isinstance(error, KeyError):
        return f"there is no {error}"
    return text[0] if text else type(error).__name__
