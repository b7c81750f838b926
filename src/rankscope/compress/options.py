"""Options of a compression, stated once for the library and the command line; nothing heavy is imported."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rankscope.choices import ALLOCATIONS, DECODERS, METHOD_NAMES, STORAGES, Allocation, Decoder, Method, Storage
from rankscope.errors import OptionError, check_count, unknown_choice

if TYPE_CHECKING:
    import torch

    from rankscope.compress.calibration import Calibration, CalibrationSet
    from rankscope.compress.plan import SitePlan, Spectrum
    from rankscope.series import Columns

JOINT: Method = "joint"
STREAM: Method = "stream"
JOINT_STREAM: Method = "joint+stream"
DEPTH: Method = "depth"
LAYERS = "layers"
TIME = "time"
SENSITIVITY: Final = "sensitivity"
RATIOS = ("ratio", "attention-ratio")
BUDGETS = (*RATIOS, "parameters", "bytes", "cache-bytes", LAYERS, TIME)
ATTENTION = ("attention",)
WHOLE = ("attention", "mlp", "embedding", "head")
"""Linear layers that a size of the whole model is cut from by default, those around patches among them."""
_ROUNDING = 1e-9


@dataclass(frozen=True)
class CompressOptions:
    """Sites of a checkpoint, the size they are cut to, and the way.

    Attributes:
        eps: keep every σ_j > ε·σ_1, ε in [0, 1); give this, a ratio or ``budget``.
        ratio: keep at most this share of all parameters of the model, in (0, 1].
        attention_ratio: keep at most this share of the numbers of the selected matrices, attention's by default: the
            size that the rank paper counts.
        budget: a limit on parameters, bytes or key/value-cache bytes instead; its ``fixed`` and ``itemsize`` are
            filled in for the checkpoint.
        sites: words as for `rankscope.families.select_sites`; embedding tables are never factored. By default `WHOLE`,
            and attention alone with ``eps`` or ``attention_ratio``.
        method: ``svd`` (plain truncated SVD), ``whitened``, ``joint`` (whole heads and hidden units), ``theorem3``,
            ``asvd`` or ``random``; by default ``joint+stream`` for a size of the whole model
            (`rankscope.compress.joint_stream.suited`), ``svd`` with ``eps`` or ``attention_ratio``, else ``joint``. See
            `rankscope.compress.methods`, `rankscope.compress.joint` and `rankscope.compress.width`. ``stream`` narrows
            the residual streams of the whole model; see `rankscope.compress.stream`. ``joint+stream`` shares the size
            between the two, see `rankscope.compress.joint_stream`. ``depth``, the default with a
            budget of layers, removes whole layers of the stacks that ``sites`` names; see `rankscope.compress.depth`.
        allocation: one of `rankscope.choices.ALLOCATIONS`, see `rankscope.compress.plan`. By default
            ``uniform-eps`` for ``svd`` and wherever ``eps`` is given, ``sensitivity`` for ``joint`` (but of a text
            model), ``energy`` for the others.
        calibration: moments of the layers' inputs for methods that need them: a `Calibration`, a file that one was
            saved in, or the name of a calibration set as `rankscope.compress.calibration.named_set` takes it
            (by default ``mixture:256``, of a model of patches ``mixture:1024`` or more; ``text:FILE`` of a text model).
        decoder: what the decoder reads while the model is calibrated: ``teacher`` (what did follow, the default) or
            ``sampled`` (paths of the model's own, Chronos-T5).
        probe: series on which allocation ``sensitivity`` compares the model's answers, a set or its name
            (``mixture:32`` by default, 128 for a model of patches, others than calibration sees; of a text model, 32
            windows of the part of the text that is not calibrated on).
        columns: non-default column names of the files that ``calibration`` and ``probe`` name.
        freq: frequency of those files (default: inferred).
        refine: whether the last matrix of every sublayer is refitted to bring the stream back to the original's, see
            `rankscope.compress.refine`; by default with ``joint``, ``stream`` and ``depth``, unless moments are given
            whose series cannot be regenerated.
        multiple: ranks are rounded down to multiples of it.
        seed: of the calibration set, and of the method ``random``.
        device: where the model runs.
        dtype: cast every weight to this format, with int8 every one but those of linear layers; each keeps its own by
            default.
        storage: ``int8`` writes the weights of all linear layers (`rankscope.families.weight_layout`) as whole numbers
            with a scale per row, ``float`` writes floating point; as the source is by default. Where it is given, a
            size need not be: nothing is cut then.
        prices: share of the original's time that a rank takes, by kind of cut, for a budget of time; see
            `rankscope.compress.to_time`.
        workers: matrices decomposed at the same time, one thread each; all cores by default.

    Raises:
        OptionError: options that contradict each other, are not known or are out of range.
    """

    eps: float | None = None
    ratio: float | None = None
    attention_ratio: float | None = None
    budget: Budget | None = None
    sites: Sequence[str] | str | None = None
    method: Method | None = None
    allocation: Allocation | None = None
    calibration: Calibration | CalibrationSet | str | Path | None = None
    decoder: Decoder | None = None
    probe: CalibrationSet | str | None = None
    columns: Columns | None = None
    freq: str | None = None
    refine: bool | None = None
    multiple: int = 1
    seed: int = 0
    device: str = "cpu"
    dtype: str | torch.dtype | None = None
    storage: Storage | None = None
    prices: Mapping[str, float] | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        known = {"method": METHOD_NAMES, "allocation": ALLOCATIONS, "decoder": DECODERS, "storage": STORAGES}
        for name, choices in known.items():
            value = getattr(self, name)
            if value is not None and value not in choices:
                raise OptionError(unknown_choice(name, value, choices))
        check_count("multiple", self.multiple)
        check_count("seed", self.seed, 0)
        if self.workers is not None:
            check_count("workers", self.workers)
        if self.refine not in (None, True, False):
            raise OptionError(f"refine {self.refine!r} is not known: give True, False or None.")
        if self.budget is not None and not isinstance(self.budget, Budget):
            raise OptionError(f"budget must be a Budget, such as Budget('bytes', 5_000_000), not {self.budget!r}.")
        if len(self.sizes) > 1:
            raise OptionError(f"give one size, not {' and '.join(self.sizes)}.")
        if self.eps is not None and self.allocation not in (None, "uniform-eps"):
            raise OptionError(
                f"eps is one tolerance for all matrices: with allocation {self.allocation} give a ratio or a budget."
            )
        for name in ("ratio", "attention_ratio"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, validate_ratio(getattr(self, name)))
        if self.eps is not None or self.dtype is not None:
            from rankscope.engine.device import resolve_dtype
            from rankscope.numerics import validate_eps

            resolve_dtype(self.dtype)
            if self.eps is not None:
                object.__setattr__(self, "eps", validate_eps(self.eps))

    @property
    def sizes(self) -> tuple[str, ...]:
        """The sizes that are asked for, in words."""
        budgeted = "" if self.budget is None else f"a budget of {self.budget.kind}"
        ratios = (("ratio", self.ratio), ("attention ratio", self.attention_ratio))
        found = (("eps", self.eps), *ratios, (budgeted, self.budget))
        return tuple(name for name, value in found if value is not None)

    @property
    def limit(self) -> Budget | None:
        """The size that is asked for as a budget, None where it is ε or none is given."""
        if self.ratio is not None:
            return Budget("ratio", self.ratio)
        return self.budget if self.attention_ratio is None else Budget("attention-ratio", self.attention_ratio)

    @property
    def asked(self) -> dict[str, float]:
        """The size that is asked for, by the name of its option; empty where none is."""
        if self.eps is not None:
            return {"eps": self.eps}
        return {} if self.limit is None else {self.limit.kind: float(self.limit.limit)}

    def completed(self) -> Completed:
        """Fill in sites and method where they were left to the size that is asked for."""
        paper = self.eps is not None or self.attention_ratio is not None
        sites = self.sites if self.sites is not None else ATTENTION if paper else WHOLE
        counted = self.budget is not None and self.budget.kind == LAYERS
        method = self.method or ("svd" if paper else DEPTH if counted else JOINT)
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return Completed(**{**values, "sites": sites, "method": method})


@dataclass(frozen=True)
class Completed(CompressOptions):
    """Options whose sites and method are known."""

    sites: Sequence[str] | str = WHOLE
    method: Method = JOINT


def needs_calibration(method: str) -> bool:
    """True if a method needs calibration statistics."""
    return method not in ("svd", "random")


def validate_ratio(ratio: float) -> float:
    """Return ``ratio`` as a float in (0, 1].

    Raises:
        OptionError: outside, or not a number.
    """
    try:
        value = math.nan if isinstance(ratio, bool) else float(ratio)
    except (TypeError, ValueError):
        raise OptionError(f"ratio must be a number in (0, 1], not {ratio!r}; try 0.4.") from None
    if not 0.0 < value <= 1.0:
        fix = f"did you mean {value / 100:g}?" if 2.0 <= value <= 100.0 else "try 0.4."
        raise OptionError(f"ratio must lie in (0, 1], not {ratio}: it is stored size after over before; {fix}")
    return value


@dataclass(frozen=True)
class Budget:
    """A limit on one of seven sizes; all but layers are linear in the ranks.

    Attributes:
        kind: ``ratio`` (parameters of the whole model, after over before), ``attention-ratio`` (the same of the
            selected matrices alone), ``parameters`` or ``bytes`` (of the whole model), ``cache-bytes`` (key/value
            cache of one series and one sample path, context and horizon full), ``layers`` (of the selected stacks;
            method ``depth``), or ``time`` (share of the original's, by prices; `rankscope.compress.to_time`).
        limit: what must not be exceeded.
        fixed: what the rest of the model costs, in the same unit.
        itemsize: bytes of a stored number.
        scale: bytes of the scale that every row of a stored factor has, 0 where numbers are floating point.
        floating: bytes by which a bias, which stays floating point, is longer.
    """

    kind: str
    limit: float | int
    fixed: float | int = 0
    itemsize: int = 4
    scale: int = 0
    floating: int = 0

    def __post_init__(self) -> None:
        if self.kind not in BUDGETS:
            raise OptionError(unknown_choice("budget", self.kind, BUDGETS))
        if self.kind in RATIOS:
            object.__setattr__(self, "limit", validate_ratio(self.limit))
            return
        number = isinstance(self.limit, numbers.Real) and not isinstance(self.limit, bool)
        given = f"{self.kind} {self.limit:g}" if number else f"{self.kind} {self.limit!r}"
        if self.kind == TIME:
            if not (number and 0.0 < self.limit <= 1.0):
                raise OptionError(f"{given} must lie in (0, 1]: it is a share of the original's; try 0.5.")
        elif not (number and 1 <= self.limit < math.inf and float(self.limit).is_integer()):
            raise OptionError(f"{given} is not a budget: give a whole number, at least 1.")

    def absolute(self, parameters: int) -> Budget:
        """A share of so many parameters as their number; any other budget as it is.

        >>> Budget("ratio", 1234 / 5678).absolute(5678).limit, Budget("ratio", 1e-9).absolute(5678).limit
        (1234, 1)
        """
        if self.kind != "ratio":
            return self
        return Budget("parameters", max(math.floor(float(self.limit) * parameters + 1e-6), 1))

    def used(self, sites: Sequence[SitePlan]) -> float:
        """Cost of a plan, in the unit of the limit."""
        if self.kind in RATIOS:
            before = self.fixed + sum(site.before for site in sites)
            return (self.fixed + sum(site.after for site in sites)) / before if before else 1.0
        if self.kind == "cache-bytes":
            cached = sum(
                site.spectrum.cached * (site.rank if site.changed else site.spectrum.rank_now) for site in sites
            )
            return float(self.fixed + cached * self.itemsize)
        if self.kind == TIME:
            return self.fixed + sum(
                site.spectrum.time * (site.rank if site.changed else site.spectrum.rank_now) for site in sites
            )
        if self.kind == "parameters":
            return float(self.fixed + sum(site.after for site in sites))
        stored = sum(site.after * self.itemsize for site in sites)
        more = sum(self.beside(site.spectrum) * site.rank for site in sites if site.layout != "dense")
        return float(self.fixed + stored + more)

    def beside(self, spectrum: Spectrum) -> int:
        """Bytes of a rank beside those of its numbers: scales, and what is longer."""
        return spectrum.rows * self.scale + spectrum.floats * self.floating

    def shown(self, value: float | int) -> str:
        """A size for people: a ratio in four digits, rounded up, so that asking for what is shown succeeds.

        >>> Budget("ratio", 0.5).shown(0.12341), Budget("bytes", 9).shown(17_301_504)
        ('0.1235', '17301504')
        """
        return (
            f"{math.ceil(value * 1e4 - _ROUNDING) / 1e4:g}" if self.kind in (*RATIOS, TIME) else f"{math.ceil(value)}"
        )

    def cost(self, spectrum: Spectrum) -> float | int:
        """Cost of one rank, up to a factor that all matrices share."""
        if self.kind == TIME:
            return spectrum.time
        if self.kind == "cache-bytes":
            return spectrum.cached
        return spectrum.cost * self.itemsize + self.beside(spectrum) if self.scale else spectrum.cost
