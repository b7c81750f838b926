"""What a compressed model may cost, in the unit that its user counts in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.compress.plan import SitePlan, Spectrum, validate_ratio
from rankscope.errors import OptionError, unknown_choice

KINDS = ("ratio", "parameters", "bytes", "cache-bytes")
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Budget:
    """A limit on one of four sizes; each is linear in the ranks.

    Attributes:
        kind: ``ratio`` (numbers of the selected matrices, after over before), ``parameters`` or ``bytes`` (of the whole
            model), or ``cache-bytes`` (key/value cache of one series and one sample path, context and horizon full).
        limit: what must not be exceeded.
        fixed: what the rest of the model costs, in the same unit.
        itemsize: bytes of a stored number.
        scale: bytes of the scale that every row of a stored factor has, 0 where numbers are floating point.
    """

    kind: str
    limit: float | int
    fixed: int = 0
    itemsize: int = 4
    scale: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise OptionError(unknown_choice("budget", self.kind, KINDS))
        if self.kind == "ratio":
            validate_ratio(self.limit)
        elif self.limit < 1:
            raise OptionError(f"{self.kind} {self.limit:g} is no budget: give a number above 0.")

    def used(self, spectra: Sequence[Spectrum], sites: Sequence[SitePlan]) -> float:
        """What a plan costs, in the unit of the limit."""
        if self.kind == "ratio":
            before = sum(site.before for site in sites)
            return sum(site.after for site in sites) / before if before else 1.0
        if self.kind == "cache-bytes":
            pairs = zip(spectra, sites, strict=True)
            cached = sum(
                one.cached * site.rank if site.changed else one.cached * one.cached_rank for one, site in pairs
            )
            return float(self.fixed + cached * self.itemsize)
        stored = sum(site.after for site in sites)
        if self.kind == "parameters":
            return float(self.fixed + stored)
        rows = sum(one.rows * site.rank for one, site in zip(spectra, sites, strict=True) if site.layout != "dense")
        return float(self.fixed + stored * self.itemsize + rows * self.scale)

    def shown(self, value: float | int) -> str:
        """A size for people: a ratio in four digits, rounded up, so that asking for what is shown succeeds.

        >>> Budget("ratio", 0.5).shown(0.12341), Budget("bytes", 9).shown(17_301_504)
        ('0.1235', '17301504')
        """
        return f"{math.ceil(value * 1e4 - _ROUNDING) / 1e4:g}" if self.kind == "ratio" else f"{math.ceil(value)}"

    def cost(self, spectrum: Spectrum) -> int:
        """What one rank costs, up to a factor that all matrices share."""
        if self.kind == "cache-bytes":
            return spectrum.cached
        return spectrum.cost * self.itemsize + spectrum.rows * self.scale if self.scale else spectrum.cost
