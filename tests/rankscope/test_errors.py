"""Error types and the messages of closed lists."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from rankscope import errors
from rankscope.errors import OptionError, RankscopeError, check_count, unknown_choice


def test_every_error_is_a_value_error_with_one_base() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__]
    assert len(kinds) >= 6
    for kind in kinds:
        assert issubclass(kind, RankscopeError)
        assert issubclass(kind, ValueError)


@pytest.mark.parametrize(
    ("value", "guess"),
    [("svdd", "did you mean 'svd'?"), ("jiont", "did you mean 'joint'?"), ("xyz", ""), (3, ""), (None, "")],
)
def test_unknown_choice(value: object, guess: str) -> None:
    message = unknown_choice("method", value, iter(["svd", "joint"]), "Fix it.")
    assert message.startswith(f"method {value!r} is not known: ")
    assert ("did you mean" in message) == bool(guess)
    assert guess in message
    assert message.endswith(f"{'Choose' if guess else 'choose'} from svd, joint. Fix it.")
    assert "\n" not in message


@pytest.mark.parametrize("value", [0, -3, 1.5, True, "4", None, float("nan")])
def test_what_is_no_count(value: object) -> None:
    with pytest.raises(OptionError, match=r"horizon .* is not usable: give a whole number, at least 1\."):
        check_count("horizon", value)


def test_whole_numbers_of_any_type_are_counts() -> None:
    assert [type(check_count("n", one)) for one in (1, np.int64(1), np.uint8(1))] == [int] * 3
