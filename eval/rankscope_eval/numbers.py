"""Numbers as text, in tables and on the report page: the same kind of number always in the same way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

MISSING = "–"


def count(value: float | None) -> str:
    """A whole number with separators.

    >>> count(8652672), count(None)
    ('8,652,672', '–')
    """
    return MISSING if _missing(value) else f"{value:,.0f}"


def short_count(value: float | None) -> str:
    """A count in three digits and a unit.

    >>> short_count(8652672), short_count(4096), short_count(12), short_count(999_999)
    ('8.65 M', '4.10 k', '12', '1.00 M')
    """
    return _in_units(value, ("", " k", " M", " G"))


def size(value: float | None) -> str:
    """A number of bytes; 1 MB is 10⁶.

    >>> size(512), size(15_900_000), size(999_960), size(None)
    ('512 B', '15.9 MB', '1.00 MB', '–')
    """
    return _in_units(value, (" B", " kB", " MB", " GB"))


def _in_units(value: float | None, units: Sequence[str]) -> str:
    """Three digits in the first unit, each 1,000 times the one before, that leaves less than 1,000 of it."""
    if value is None or _missing(value):
        return MISSING
    above = 0
    while above < len(units) - 1 and abs(_rounded(value)) >= 1000:
        value, above = value / 1000, above + 1
    return (f"{value:.0f}" if above == 0 and value == int(value) else significant(value)) + units[above]


def duration(seconds: float | None) -> str:
    """A time in the unit that leaves one to three digits before the point.

    >>> duration(0.0123), duration(2.5), duration(4000), duration(2e-5), duration(0.9996)
    ('12.3 ms', '2.50 s', '66.7 min', '0.0200 ms', '1.00 s')
    """
    if seconds is None or _missing(seconds):
        return MISSING
    if _rounded(seconds) < 1:
        return f"{significant(seconds * 1e3)} ms"
    return f"{significant(seconds)} s" if seconds < 600 else f"{significant(seconds / 60)} min"


def ratio(value: float | None, places: int = 3) -> str:
    """A ratio with so many places.

    >>> ratio(1.01825), ratio(0.5, 2), ratio(None), ratio(float("nan"))
    ('1.018', '0.50', '–', '–')
    """
    return MISSING if _missing(value) else f"{value:.{places}f}"


def interval(ends: tuple[float, float] | None, places: int = 3) -> str:
    """Both ends of an interval.

    >>> interval((0.9, 1.12345)), interval((0.9, 1.1), 2), interval(None)
    ('0.900–1.123', '0.90–1.10', '–')
    """
    return MISSING if ends is None or any(map(_missing, ends)) else "–".join(ratio(end, places) for end in ends)


def percent(share: float | None) -> str:
    """A share in percent; one place below 10.

    >>> percent(0.1499), percent(0.0349), percent(None)
    ('15 %', '3.5 %', '–')
    """
    if share is None or _missing(share):
        return MISSING
    return f"{100 * share:.1f} %" if 0 < abs(share) < 0.0995 else f"{100 * share:.0f} %"


def change(before: float, after: float) -> str:
    """Change of a quantity in percent.

    >>> change(200, 138), change(100, 104), change(0, 1), change(5, 5)
    ('−31 %', '+4.0 %', '–', '±0 %')
    """
    if not before:
        return MISSING
    share = after / before - 1
    sign = "−" if share < 0 else "+" if share > 0 else "±"
    return sign + percent(abs(share))


def significant(value: float | None, digits: int = 3) -> str:
    """So many significant digits, without an exponent where it can be avoided.

    >>> [significant(value) for value in (0.12345, -123.45, 12345.6, 0.0, 9.996, 0.00012345, None)]
    ['0.123', '-123', '12,346', '0', '10.0', '1.23e-04', '–']
    """
    if value is None or _missing(value):
        return MISSING
    if value == 0:
        return "0"
    if not 1e-3 <= abs(value) < 1e7:
        return f"{value:.{digits - 1}e}"
    places = max(0, digits - 1 - math.floor(math.log10(abs(_rounded(value, digits)))))
    return f"{value:,.{places}f}"


def spread(values: Sequence[int]) -> str:
    """Median and range.

    >>> spread([3, 9, 7]), spread([1, 2]), spread([4, 4]), spread([])
    ('7 (3–9)', '1.5 (1–2)', '4', '–')
    """
    if not values:
        return MISSING
    middle = f"{median(values):g}"
    return middle if min(values) == max(values) else f"{middle} ({min(values)}–{max(values)})"


def plural(number: int, one: str, many: str | None = None) -> str:
    """A number and its noun.

    >>> plural(1, "matrix", "matrices"), plural(2, "layer")
    ('1 matrix', '2 layers')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _rounded(value: float, digits: int = 3) -> float:
    return float(f"{value:.{digits - 1}e}")


def _missing(value: float | None) -> bool:
    return value is None or not math.isfinite(value)
