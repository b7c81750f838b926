"""Options of a compression, stated once for the library and the command line; nothing heavy is imported."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.choices import ALLOCATIONS, DECODERS, METHOD_NAMES, STORAGES, Allocation, Decoder, Method, Storage
from rankscope.errors import OptionError, unknown_choice

if TYPE_CHECKING:
    import torch

    from rankscope.compress.calibration import Calibration, CalibrationSet
    from rankscope.compress.plan import SitePlan, Spectrum

JOINT, STREAM, SENSITIVITY = "joint", "stream", "sensitivity"
DEFAULT_SITES = ("attention",)
BUDGETS = ("ratio", "parameters", "bytes", "cache-bytes")
_ROUNDING = 1e-9


@dataclass(frozen=True)
class CompressOptions:
    """Sites of a checkpoint, the size they are cut to, and the way.

    Attributes:
        eps: keep every σ_j > ε·σ_1, ε in [0, 1); either this, ``ratio`` or ``budget``.
        ratio: keep the selected sites' stored numbers at or below this share, in (0, 1].
        budget: a limit on parameters, bytes or key/value-cache bytes instead; its ``fixed`` and ``itemsize`` are
            filled in for the checkpoint.
        sites: words as for `rankscope.families.select_sites`; embedding tables are never factored.
        method: ``svd`` (plain truncated SVD), ``whitened``, ``joint`` (whole heads and hidden units), ``theorem3``,
            ``asvd`` or ``random``; see `rankscope.compress.methods`, `rankscope.compress.joint` and
            `rankscope.compress.width`. ``stream`` narrows the residual streams of the whole model, and its ratio is a
            share of all parameters; see `rankscope.compress.stream`.
        allocation: one of `rankscope.choices.ALLOCATIONS`, see `rankscope.compress.plan`. By default
            ``uniform-eps`` for ``svd`` and wherever ``eps`` is given, ``sensitivity`` for ``joint`` (but of a text
            model), ``energy`` for the others.
        calibration: moments of the layers' inputs for methods that need them: a `Calibration`, a file that one was
            saved in, or the name of a calibration set as `rankscope.compress.calibration.named_set` takes it
            (``mixture:256`` by default; ``text:FILE`` of a text model).
        decoder: what the decoder reads while the model is calibrated: ``teacher`` (what did follow, the default) or
            ``sampled`` (paths of the model's own, Chronos-T5).
        probe: series on which allocation ``sensitivity`` compares the model's answers, a set or its name
            (``mixture:32`` by default, 128 for a model of patches, others than calibration sees; of a text model, 32
            windows of the part of the text that is not calibrated on).
        multiple: ranks are rounded down to multiples of it.
        seed: of the calibration set, and of the method ``random``.
        device: where the model runs.
        dtype: cast every weight to this format, with int8 every one but those of linear layers; each keeps its own by
            default.
        storage: ``int8`` writes the weights of all linear layers (`rankscope.families.weight_layout`) as whole numbers
            with a scale per row, ``float`` writes floating point; as the source is by default. Where it is given, a
            size need not be: nothing is cut then.
        workers: matrices decomposed at the same time, one thread each; all cores by default.

    Raises:
        OptionError: options that contradict each other, are not known or are out of range.
    """

    eps: float | None = None
    ratio: float | None = None
    budget: Budget | None = None
    sites: Sequence[str] | str = DEFAULT_SITES
    method: Method = "svd"
    allocation: Allocation | None = None
    calibration: Calibration | CalibrationSet | str | Path | None = None
    decoder: Decoder | None = None
    probe: CalibrationSet | str | None = None
    multiple: int = 1
    seed: int = 0
    device: str = "cpu"
    dtype: str | torch.dtype | None = None
    storage: Storage | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        known = {"method": METHOD_NAMES, "allocation": ALLOCATIONS, "decoder": DECODERS, "storage": STORAGES}
        for name, choices in known.items():
            value = getattr(self, name)
            if value is not None and value not in choices:
                raise OptionError(unknown_choice(name, value, choices))
        if self.multiple < 1:
            raise OptionError(f"multiple {self.multiple} is no rounding: give a whole number, at least 1.")
        if len(self.sizes) > 1:
            raise OptionError(f"give one size, not {' and '.join(self.sizes)}.")
        if self.eps is not None and self.allocation not in (None, "uniform-eps"):
            raise OptionError(
                f"eps is one tolerance for all matrices: with allocation {self.allocation} give a ratio or a budget."
            )
        if self.ratio is not None:
            validate_ratio(self.ratio)
        if self.eps is not None or self.dtype is not None:
            from rankscope.engine.device import resolve_dtype
            from rankscope.numerics import validate_eps

            resolve_dtype(self.dtype)
            if self.eps is not None:
                validate_eps(self.eps)

    @property
    def sizes(self) -> tuple[str, ...]:
        """The sizes that are asked for, in words."""
        budgeted = "" if self.budget is None else f"a budget of {self.budget.kind}"
        found = (("eps", self.eps), ("ratio", self.ratio), (budgeted, self.budget))
        return tuple(name for name, value in found if value is not None)


def needs_calibration(method: str) -> bool:
    """True if a method needs calibration statistics."""
    return method not in ("svd", "random")


def validate_ratio(ratio: float) -> float:
    """Return ``ratio`` as a float in (0, 1].

    Raises:
        OptionError: outside, or not a number.
    """
    try:
        value = float(ratio)
    except (TypeError, ValueError):
        raise OptionError(f"ratio must be a number in (0, 1], not {ratio!r}; try 0.4.") from None
    if not 0.0 < value <= 1.0:
        raise OptionError(f"ratio must lie in (0, 1], not {ratio}: it is stored size after over before; try 0.4.")
    return value


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
        floating: bytes by which a number is longer that stays floating point.
    """

    kind: str
    limit: float | int
    fixed: int = 0
    itemsize: int = 4
    scale: int = 0
    floating: int = 0

    def __post_init__(self) -> None:
        if self.kind not in BUDGETS:
            raise OptionError(unknown_choice("budget", self.kind, BUDGETS))
        if self.kind == "ratio":
            validate_ratio(self.limit)
        elif self.limit < 1:
            raise OptionError(f"{self.kind} {self.limit:g} is no budget: give a number above 0.")

    def used(self, sites: Sequence[SitePlan]) -> float:
        """Cost of a plan, in the unit of the limit."""
        if self.kind == "ratio":
            before = sum(site.before for site in sites)
            return sum(site.after for site in sites) / before if before else 1.0
        if self.kind == "cache-bytes":
            cached = sum(
                site.spectrum.cached * (site.rank if site.changed else site.spectrum.rank_now) for site in sites
            )
            return float(self.fixed + cached * self.itemsize)
        stored = sum(site.after for site in sites)
        if self.kind == "parameters":
            return float(self.fixed + stored)
        more = sum(self.beside(site.spectrum) * site.rank for site in sites if site.layout != "dense")
        return float(self.fixed + stored * self.itemsize + more)

    def beside(self, spectrum: Spectrum) -> int:
        """Bytes of a rank beside its numbers at ``itemsize``."""
        return spectrum.rows * self.scale + spectrum.floats * self.floating

    def shown(self, value: float | int) -> str:
        """A size for people: a ratio in four digits, rounded up, so that asking for what is shown succeeds.

        >>> Budget("ratio", 0.5).shown(0.12341), Budget("bytes", 9).shown(17_301_504)
        ('0.1235', '17301504')
        """
        return f"{math.ceil(value * 1e4 - _ROUNDING) / 1e4:g}" if self.kind == "ratio" else f"{math.ceil(value)}"

    def cost(self, spectrum: Spectrum) -> int:
        """Cost of one rank, up to a factor that all matrices share."""
        if self.kind == "cache-bytes":
            return spectrum.cached
        return spectrum.cost * self.itemsize + self.beside(spectrum) if self.scale else spectrum.cost
