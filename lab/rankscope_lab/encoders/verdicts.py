"""How near a measured value is to a published one."""

from __future__ import annotations

from rankscope_lab.encoders.published import Published

WITHIN, WITHIN_2, OUTSIDE = "within", "within 2", "outside"
INSIDE, EQUAL, DIFFERS = "inside", "equal", "differs"
NONE = ""
GOOD = (WITHIN, INSIDE, EQUAL)
"""What counts as reproduced."""


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
    """Whether two paired tests say the same at the level 0.05: both see no difference, or one of the same sign.

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
