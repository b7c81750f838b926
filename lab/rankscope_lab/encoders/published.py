"""Published values of the audit, and comparison with measured ones."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class Published:
    """A printed value.

    Attributes:
        mean: over seeds, as rounded in print.
        std: standard deviation over seeds; none: not printed.
        interval: of 95 % for the mean, by bootstrap; none: not printed.
    """

    mean: float
    std: float | None = None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class PublishedTest:
    """A paired test that the paper states, or that follows from its released runs.

    Attributes:
        setting: where.
        better: encoder with the lower mean loss.
        other: the one it is compared with.
        difference: mean of other − better; none: not printed.
        p: two-sided; none: not printed.
        wins: seeds that favour ``better``; none: not printed.
        n: seeds.
        interval: of the difference; none: not printed.
        stated: ``paper`` or ``released runs``.
    """

    setting: str
    better: str
    other: str
    difference: float | None
    p: float | None
    wins: int | None
    n: int
    interval: tuple[float, float] | None = None
    stated: str = "paper"


@dataclass(frozen=True)
class Disagreement:
    """Difference between the text of the paper and its released runs.

    Attributes:
        about: what.
        paper: what the text says.
        released: what the runs say.
    """

    about: str
    paper: str
    released: str


@lru_cache(maxsize=1)
def _document() -> dict[str, Any]:
    text = resources.files("rankscope_lab.encoders").joinpath("published.json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def published_value(table: str, setting: str, encoder: str, measure: str) -> Published | None:
    """One printed value; none where the table has none there.

    >>> published_value("1", "C=4", "linear", "nll")
    Published(mean=2.155, std=0.019, interval=None)
    """
    values = _document()["tables"].get(table, {}).get("values", {})
    entry = values.get(setting, {}).get(encoder, {}).get(measure)
    if entry is None:
        return None
    if isinstance(entry, list):
        return Published(float(entry[0]), float(entry[1]) if len(entry) > 1 else None)
    return Published(float(entry["mean"]), entry.get("std"), _pair(entry["interval"]))


def published_seeds(table: str) -> int:
    """Number of seeds (0, 1, …) that a table was printed from."""
    return int(_document()["tables"][table]["seeds"])


def published_tests() -> tuple[PublishedTest, ...]:
    """All paired tests."""
    return tuple(
        PublishedTest(**{**entry, "interval": _pair(entry["interval"]) if "interval" in entry else None})
        for entry in _document()["paired"]
    )


def released_finding(topic: str, quantity: str, subject: str) -> float | None:
    """A number that the paper does not print and its released runs or data give; none: not known before."""
    value = _document()["findings"].get(f"{topic}/{quantity}/{subject}")
    return None if value is None else float(value)


def disagreements() -> tuple[Disagreement, ...]:
    """All differences between text and runs."""
    return tuple(Disagreement(**entry) for entry in _document()["disagreements"])


def _pair(values: list[float]) -> tuple[float, float]:
    low, high = values
    return low, high


WITHIN, WITHIN_2, OUTSIDE = "within", "within 2", "outside"
INSIDE, EQUAL, DIFFERS = "inside", "equal", "differs"
NONE = ""


def verdict(
    mean: float | None,
    published: Published | None,
    *,
    ours: float | None = None,
    exact: bool = False,
    rounding: float = 0.0,
) -> str:
    """Judge a mean by the published spread, or by ours where none is printed.

    Args:
        mean: measured; none: nothing was.
        published: the printed value.
        ours: standard deviation over our seeds, used only where the publication states neither deviation nor interval.
        exact: a count, which is equal or not.
        rounding: half of the last printed digit, by which print may be off.

    Returns:
        ``within`` (one standard deviation), ``within 2``, ``outside``; ``inside`` or ``outside`` a printed interval;
        ``equal`` or ``differs``; empty where there is nothing to compare, or no spread to compare by.

    >>> verdict(2.16, Published(2.155, std=0.019))
    'within'
    """
    if mean is None or published is None:
        return NONE
    if exact:
        return EQUAL if mean == published.mean else DIFFERS
    if published.std is None and published.interval is not None:
        low, high = published.interval
        return INSIDE if low - rounding <= mean <= high + rounding else OUTSIDE
    spread = published.std if published.std is not None else ours
    if spread is None:
        return NONE
    distance = max(abs(mean - published.mean) - rounding, 0.0)
    if distance <= spread:
        return WITHIN
    return WITHIN_2 if distance <= 2 * spread else OUTSIDE


def agrees(difference: float, p: float | None, published: float | None, published_p: float | None) -> bool | None:
    """Return True if two paired tests say the same at the level 0.05: no difference, or one of the same sign.

    Args:
        difference: measured, positive where the encoder named better is better.
        p: of the measured difference; none: too few seeds.
        published: difference; none: not printed, positive.
        published_p: none: not printed.
    """
    if p is None or published_p is None:
        return None
    if p >= 0.05 or published_p >= 0.05:
        return p >= 0.05 and published_p >= 0.05
    return (difference > 0) == (published is None or published > 0)
