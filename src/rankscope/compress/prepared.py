"""What every plan of one checkpoint starts from: which matrices, by which method, what each rank of them is worth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.choices import DECODERS, METHOD_NAMES, STORAGES, Storage
from rankscope.compress.allocate import Allocation, least_plan, plan_by_budget
from rankscope.compress.budget import Budget
from rankscope.compress.calibrated import Source, calibration_for, needs_calibration
from rankscope.compress.calibration import Calibration, CalibrationSet
from rankscope.compress.encoding import Encoding, encoding_of
from rankscope.compress.grouping import check_method, make_groups
from rankscope.compress.groups import JOINT, Group, Matrices
from rankscope.compress.plan import Plan, SitePlan, Spectrum, plan_by_eps
from rankscope.compress.write import TensorSpec
from rankscope.engine.device import resolve_dtype
from rankscope.engine.progress import Progress, silent
from rankscope.errors import FamilyError, OptionError, unknown_choice
from rankscope.families import Layout, Site, compressible
from rankscope.measure.cache import cache_bytes
from rankscope.numerics.parallel import parallel_map
from rankscope.numerics.quantise import SCALE_DTYPE


@dataclass(frozen=True)
class CompressOptions:
    """How matrices are cut, whatever size is asked for.

    Attributes are the arguments of `rankscope.compress.compress` of the same names.

    Raises:
        OptionError: the method, the decoder or the format is not known, or the multiple is below 1.
    """

    sites: Sequence[str] | str = ("attention",)
    method: str = "svd"
    allocation: str | Allocation | None = None
    calibration: Source | None = None
    probe: CalibrationSet | str | None = None
    multiple: int = 1
    seed: int = 0
    device: str = "cpu"
    dtype: str | torch.dtype | None = None
    workers: int | None = None
    decoder: str | None = None
    storage: str | None = None

    def __post_init__(self) -> None:
        if self.method not in METHOD_NAMES:
            raise OptionError(unknown_choice("method", self.method, METHOD_NAMES))
        if self.multiple < 1:
            raise OptionError(f"multiple {self.multiple} is no rounding: give a whole number, at least 1.")
        if self.decoder is not None and self.decoder not in DECODERS:
            raise OptionError(unknown_choice("decoder", self.decoder, DECODERS))
        if self.storage is not None and self.storage not in STORAGES:
            raise OptionError(unknown_choice("storage", self.storage, STORAGES))
        resolve_dtype(self.dtype)


@dataclass(frozen=True)
class Prepared:
    """A checkpoint whose matrices are measured.

    Attributes:
        source: the checkpoint.
        sites: the selected matrices.
        how: how they are cut.
        rule: how ranks are allotted.
        calibration: moments that the method looks at, None where it looks at none.
        groups: what is cut together.
        spectra: of every group, what can be cut.
        progress: called with (done, total, what).
    """

    source: Checkpoint
    sites: tuple[Site, ...]
    how: CompressOptions
    rule: Allocation
    calibration: Calibration | None
    groups: tuple[Group, ...] = field(repr=False)
    spectra: tuple[list[Spectrum], ...] = field(repr=False)
    progress: Progress = silent

    @property
    def dtype(self) -> torch.dtype | None:
        """Format of the written weights, None where each keeps its own."""
        return resolve_dtype(self.how.dtype)

    @property
    def storage(self) -> Storage:
        """Numbers of the written linear layers: what is asked for, or what the source has."""
        return next((known for known in STORAGES if known == self.how.storage), self.source.storage)

    def encoding(self, layouts: Mapping[str, Layout]) -> Encoding:
        """Number formats of a folder with these layouts."""
        return encoding_of(self.source, layouts, self.storage, self.dtype)

    @property
    def flat(self) -> list[Spectrum]:
        """All spectra in a row, as plans list them."""
        return [spectrum for part in self.spectra for spectrum in part]

    def parts(self, plan: Plan) -> list[list[SitePlan]]:
        """A plan, group by group."""
        stream = iter(plan.sites)
        return [[next(stream) for _ in part] for part in self.spectra]

    def by_eps(self, eps: float) -> Plan:
        """The ε-rank of everything."""
        return plan_by_eps(self.flat, eps, self.how.multiple)

    def by_budget(self, budget: Budget) -> Plan:
        """As much as the budget allows.

        Raises:
            OptionError: even the least that the rule can keep exceeds it.
        """
        return plan_by_budget(self.flat, self.whole(budget), self.rule, self.how.multiple)

    def least_ratio(self) -> float:
        """Size ratio of the least that the rule can keep."""
        return least_plan(self.flat, Budget("ratio", 1.0), self.rule, self.how.multiple).ratio

    def whole(self, budget: Budget) -> Budget:
        """Complete a budget of the whole model with what the selected matrices do not count."""
        if budget.kind == "ratio":
            return budget
        if budget.kind == "parameters":
            return replace(budget, fixed=self.source.parameters - sum(one.stored for one in self.flat), itemsize=1)
        if budget.kind == "cache-bytes":
            return self._whole_cache(budget)
        # A matrix whose own format is shorter than the longest is counted too high, never too low.
        written = self._written()
        now = sum(spec.bytes for specs in written.values() for spec in specs)
        sizes = [{written[name][0].dtype.itemsize for name in self._stored(group)} for group in self.groups]
        pairs = zip(sizes, self.spectra, strict=True)
        selected = sum(min(size) * spectrum.stored for size, part in pairs for spectrum in part)
        scale = SCALE_DTYPE.itemsize if self.storage == "int8" else 0
        rows = sum(spectrum.rows * (spectrum.stored_rank or 0) for spectrum in self.flat)
        itemsize = max(max(size) for size in sizes)
        return replace(budget, fixed=now - selected - rows * scale, itemsize=itemsize, scale=scale)

    def _whole_cache(self, budget: Budget) -> Budget:
        mine = sum(one.cached * one.cached_rank for one in self.flat)
        if not mine:
            raise OptionError(
                "a budget of cache bytes needs heads of a decoder that become narrower: use method joint, and select "
                "the decoder."
            )
        itemsize = (self.dtype or self.source.dtype).itemsize
        whole = cache_bytes(self.source) // self.source.dtype.itemsize
        return replace(budget, fixed=(whole - mine) * itemsize, itemsize=itemsize)

    def _written(self) -> dict[str, tuple[TensorSpec, ...]]:
        """What would be written of every tensor if nothing were cut."""
        source, encoding = self.source, self.encoding(self.source.layouts)
        kept = {name: info for name, info in source.index.items() if not source.is_scale(name)}
        return {name: encoding.specs(name, info.shape, info.dtype) for name, info in kept.items()}

    def _stored(self, group: Group) -> Iterator[str]:
        return (name for site in group.sites for name in stored_names(self.source, site))


def prepare(
    checkpoint: Checkpoint | str | Path | None = None,
    options: CompressOptions | None = None,
    *,
    eps: float | None = None,
    progress: Progress | None = None,
) -> Prepared:
    """Check the options, calibrate where the method needs it, and measure all matrices.

    Args:
        checkpoint: an open checkpoint, or what `open_checkpoint` takes.
        options: which matrices, and how.
        eps: the tolerance, where one will be asked for.
        progress: called with (done, total, what).

    Raises:
        RankscopeError: as `rankscope.compress.compress` says.
    """
    how = options or CompressOptions()
    source = checkpoint if isinstance(checkpoint, Checkpoint) else open_checkpoint(checkpoint)
    check_family(source)
    rule = _rule(how, eps, source.family.forecastable)
    chosen = _factorable(source, how.sites)
    report = progress or silent
    check_method(source, chosen, how.method)
    moments = None
    if needs_calibration(how.method):
        moments = calibration_for(
            source,
            chosen,
            how.calibration,
            decoder=how.decoder,
            seed=how.seed,
            device=how.device,
            progress=report,
        )
    groups = tuple(make_groups(source, chosen, how.method, moments, eps=eps, seed=how.seed))
    spectra = _measure(source, groups, how.workers, report)
    return Prepared(source, chosen, how, rule, moments, groups, spectra, report)


def check_family(source: Checkpoint) -> None:
    """Refuse a family that no low-rank model class stores, before any work is done.

    Raises:
        FamilyError: it is one.
    """
    if source.family.low_rank is None:
        raise FamilyError(
            f"{source.source} is a {source.family.title} model, of which there is no low-rank class: "
            f"{compressible()} can be compressed (rankscope families)."
        )


def read_matrices(source: Checkpoint, group: Group) -> Matrices:
    """The matrices of a group by module."""
    return {site.module: source.matrix(site) for site in group.sites}


def stored_names(source: Checkpoint, site: Site) -> list[str]:
    """Names of the tensors that hold the matrix of a site."""
    names = [site.name, f"{site.module}.up.weight", f"{site.module}.down.weight"]
    return [name for name in names if name in source.index]


def _rule(how: CompressOptions, eps: float | None, forecasts: bool) -> Allocation:
    if how.allocation is None:
        # scores and outputs have no unit in common; a text model has no series to be probed with
        by_method = {"svd": "uniform-eps", JOINT: "sensitivity" if forecasts else "energy"}
        return Allocation("uniform-eps" if eps is not None else by_method.get(how.method, "energy"))
    rule = how.allocation if isinstance(how.allocation, Allocation) else Allocation(how.allocation)
    if eps is not None and rule.name != "uniform-eps":
        raise OptionError(
            f"eps is one tolerance for all matrices: with allocation {rule.name} give a ratio or a budget."
        )
    return rule


def _factorable(source: Checkpoint, words: Sequence[str] | str) -> tuple[Site, ...]:
    """Return the selected sites that are linear layers; a lookup table has no product to split."""
    if source.family.decoding and not any(site.stack == "decoder" for site in source.sites(["all"])):
        raise FamilyError(f"{source.source} has no decoder: only encoder-decoder T5 models can be compressed.")
    chosen = tuple(site for site in source.sites(words) if site.role != "embedding")
    if not chosen:
        raise OptionError(
            f"sites {words!r} selects only the embedding table, which stays dense: "
            "choose from attention, mlp, q, k, v, o."
        )
    return chosen


def _measure(
    source: Checkpoint, groups: Sequence[Group], workers: int | None, progress: Progress
) -> tuple[list[Spectrum], ...]:
    def work(item: tuple[Group, Matrices]) -> list[Spectrum]:
        group, matrices = item
        return group.spectra(matrices)

    found = []
    inputs = ((group, read_matrices(source, group)) for group in groups)
    for done, part in enumerate(parallel_map(work, inputs, workers), 1):
        found.append(part)
        progress(done, len(groups), "singular values")
    return tuple(found)
