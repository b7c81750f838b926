"""Preparation of a checkpoint for any size: sites, calibration statistics, cuts, and the importance of each rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.choices import STORAGES, WHOLE_MODEL, Storage
from rankscope.compress.calibration import Calibration, calibration_for, regularised
from rankscope.compress.calibration.sources import probe_set
from rankscope.compress.cut import Cut
from rankscope.compress.joint import PairCut
from rankscope.compress.methods import Matrices, MatrixCut
from rankscope.compress.options import (
    DEPTH,
    JOINT,
    LAYERS,
    SENSITIVITY,
    TIME,
    Budget,
    Completed,
    CompressOptions,
    needs_calibration,
)
from rankscope.compress.plan import Plan, SitePlan, Spectrum, kind_of, least_plan, plan_by_budget, plan_by_eps
from rankscope.compress.sensitivity import with_sensitivity
from rankscope.compress.taps import Tap
from rankscope.compress.width import WidthCut
from rankscope.compress.write import Encoding, TensorSpec, encoding_of
from rankscope.engine import Progress, silent
from rankscope.engine.device import resolve_dtype
from rankscope.engine.memory import give_back
from rankscope.errors import FamilyError, OptionError
from rankscope.families import HeadWidth, Layout, Site, compressible
from rankscope.measure.cache import cache_bytes, cached_tokens
from rankscope.numerics.parallel import parallel_map
from rankscope.numerics.quantise import SCALE_DTYPE

UNSHOWN = 1e-3
"""Share of the mean energy that every direction gets where there are fewer positions than directions: what was not
shown is then cut as plain SVD cuts it. It is far above what rounding in float32 leaves there."""


@dataclass(frozen=True)
class Prepared:
    """A checkpoint whose matrices are measured.

    Attributes:
        source: the checkpoint.
        sites: the selected matrices.
        how: how they are cut.
        allocation: how ranks are allotted.
        calibration: moments that the method looks at, None where it looks at none.
        cuts: what is cut by one decomposition each.
        spectra: of every cut, what each rank is worth.
        progress: called with (done, total, what).
    """

    source: Checkpoint
    sites: tuple[Site, ...]
    how: Completed
    allocation: str
    calibration: Calibration | None
    cuts: tuple[Cut, ...] = field(repr=False)
    spectra: tuple[list[Spectrum], ...] = field(repr=False)
    progress: Progress = silent

    @property
    def dtype(self) -> torch.dtype | None:
        """Format of the written weights, None where each keeps its own."""
        return resolve_dtype(self.how.dtype)

    @property
    def storage(self) -> Storage:
        """Storage of the written linear layers: as requested, or as in the source."""
        return next((known for known in STORAGES if known == self.how.storage), self.source.storage)

    def encoding(self, layouts: Mapping[str, Layout]) -> Encoding:
        """Number formats of a folder with these layouts."""
        return encoding_of(self.source, layouts, self.storage, self.dtype)

    @property
    def flat(self) -> list[Spectrum]:
        """All spectra in a row, as plans list them."""
        return [spectrum for part in self.spectra for spectrum in part]

    def planned(self, plan: Plan) -> list[tuple[Cut, list[SitePlan]]]:
        """Every cut with its part of a plan."""
        stream = iter(plan.sites)
        return [(cut, [next(stream) for _ in part]) for cut, part in zip(self.cuts, self.spectra, strict=True)]

    def by_eps(self, eps: float) -> Plan:
        """The ε-rank of everything."""
        return plan_by_eps(self.flat, eps, self.how.multiple)

    def by_budget(self, budget: Budget) -> Plan:
        """As much as the budget allows.

        Raises:
            OptionError: even the least that the rule can keep exceeds it.
        """
        return plan_by_budget(self.flat, self.whole(budget), self.allocation, self.how.multiple)

    def least(self, kind: str) -> float:
        """Share of all parameters, or of the time, that the least leaves that the rule can keep."""
        whole = self.whole(Budget(kind, 1.0))
        return whole.used(least_plan(self.flat, whole, self.allocation, self.how.multiple).sites)

    def whole(self, budget: Budget) -> Budget:
        """Complete a budget of the whole model with what the selected matrices do not count."""
        if budget.kind == "attention-ratio":
            return budget
        if budget.kind == TIME:
            if self.how.prices is None:
                raise OptionError("a budget of time needs prices, which compress_to_time (--latency) measures.")
            return replace(budget, fixed=1 - sum(one.time * one.rank_now for one in self.flat))
        if budget.kind in ("ratio", "parameters"):
            return replace(budget, fixed=self.source.parameters - sum(one.stored for one in self.flat), itemsize=1)
        if budget.kind == "cache-bytes":
            return self._whole_cache(budget)
        # A matrix whose own format is shorter than the longest is counted too high, never too low.
        written = self._written()
        now = sum(spec.bytes for specs in written.values() for spec in specs)
        sizes = [{written[name][0].dtype.itemsize for name in stored_names(self.source, cut)} for cut in self.cuts]
        pairs = zip(sizes, self.spectra, strict=True)
        selected = sum(min(size) * spectrum.stored for size, part in pairs for spectrum in part)
        scale = SCALE_DTYPE.itemsize if self.storage == "int8" else 0
        itemsize = max(map(max, sizes))
        floating = (self.dtype or self.source.dtype).itemsize - itemsize if scale else 0
        priced = replace(budget, itemsize=itemsize, scale=scale, floating=floating)
        more = sum(priced.beside(spectrum) * (spectrum.stored_rank or 0) for spectrum in self.flat)
        return replace(priced, fixed=now - selected - more)

    def _whole_cache(self, budget: Budget) -> Budget:
        mine = sum(one.cached * one.rank_now for one in self.flat)
        if not mine:
            raise OptionError(
                "a budget of cache bytes needs heads of a decoder that become narrower: use method joint, and select "
                "the decoder."
            )
        itemsize = (self.dtype or self.source.dtype).itemsize
        whole = cache_bytes(self.source) // self.source.dtype.itemsize
        return replace(budget, fixed=(whole - mine) * itemsize, itemsize=itemsize)

    def _written(self) -> dict[str, tuple[TensorSpec, ...]]:
        """Tensors that would be written if nothing were cut."""
        source, encoding = self.source, self.encoding(self.source.layouts)
        kept = {name: info for name, info in source.index.items() if not source.is_scale(name)}
        return {name: encoding(name, info.shape, info.dtype) for name, info in kept.items()}


def prepare(
    checkpoint: Checkpoint | str | Path | None = None,
    options: CompressOptions | None = None,
    *,
    progress: Progress | None = None,
    others: Sequence[Tap] = (),
) -> Prepared:
    """Calibrate where the method needs it, and measure all matrices: every one is read once.

    Args:
        checkpoint: an open checkpoint, or what `open_checkpoint` takes.
        options: which matrices, and how.
        progress: called with (done, total, what).
        others: taps that are shown the passes of a probe, too, where there is one.

    Raises:
        RankscopeError: as `rankscope.compress.compress` says.
    """
    how, report = (options or CompressOptions()).completed(), progress or silent
    source = open_checkpoint(checkpoint)
    check_family(source)
    if how.method in WHOLE_MODEL:
        raise OptionError(f"method {how.method} has no ranks to search or compare: use rankscope compress with a size.")
    if how.budget is not None and how.budget.kind == LAYERS:
        raise OptionError(
            f"layers are removed by method {DEPTH}, not {how.method}: leave out the method, or the layers."
        )
    if how.budget is not None and how.budget.kind == "cache-bytes" and not cache_bytes(source):
        raise OptionError(f"{source.source} keeps no cache of keys and values: give a size of the whole model.")
    chosen = _factorable(source, how.sites)
    _check_joint(source, chosen, how.method)
    allocation = allocation_of(how, source.family.forecastable)
    if allocation == SENSITIVITY:
        how = replace(how, probe=probe_set(source, how))
    elif how.probe is not None:
        raise OptionError(f"a probe has no effect with allocation {allocation}: leave it out, or take {SENSITIVITY}.")
    moments = None
    if needs_calibration(how.method):
        moments = calibration_for(
            source,
            chosen,
            how.calibration,
            decoder=how.decoder,
            seed=how.seed,
            columns=how.columns,
            freq=how.freq,
            device=how.device,
            progress=report,
        )
    cuts = _cuts(source, chosen, how, moments)
    probed = allocation == SENSITIVITY

    def work(item: tuple[Cut, Matrices]) -> tuple[list[Spectrum], Tap | None]:
        cut, matrices = item
        if not probed:
            return cut.spectra(matrices), None
        terms = cut.terms(matrices)
        return cut.spectra(matrices, terms), cut.tap(terms)

    spectra: list[list[Spectrum]] = []
    taps: list[Tap] = []
    for done, (found, tap) in enumerate(
        parallel_map(work, ((cut, read_matrices(source, cut)) for cut in cuts), how.workers), 1
    ):
        spectra.append(found)
        taps += [tap] if tap is not None else []
        give_back()
        report(done, len(cuts), "singular values")
    if probed:
        cuts, spectra = with_sensitivity(source, how, cuts, spectra, taps, report, others)
        give_back()
    return priced(Prepared(source, chosen, how, allocation, moments, tuple(cuts), tuple(spectra), report))


def priced(prepared: Prepared) -> Prepared:
    """The same with the prices of its options on every spectrum."""
    prices = prepared.how.prices
    if prices is None:
        return prepared
    unknown = {kind_of(one) for one in prepared.flat} - set(prices)
    if unknown:
        raise OptionError(f"there is no price of {sorted(unknown)[0]}: leave prices out, to have them measured.")
    spectra = tuple([replace(one, time=prices[kind_of(one)]) for one in part] for part in prepared.spectra)
    return replace(prepared, spectra=spectra)


def check_family(source: Checkpoint) -> None:
    """Refuse a model that no low-rank class stores, before any work is done.

    Raises:
        FamilyError: its family has no such class, or it lacks the decoder of its family.
    """
    if source.family.low_rank is None:
        raise FamilyError(
            f"{source.source} is a {source.family.title} model, of which there is no low-rank class: "
            f"{compressible()} can be compressed (rankscope families)."
        )
    if source.family.decoding and not any(site.stack == "decoder" for site in source.sites(["all"])):
        raise FamilyError(f"{source.source} has no decoder: only encoder-decoder T5 models can be compressed.")


def read_matrices(source: Checkpoint, cut: Cut) -> Matrices:
    """The matrices of a cut."""
    return {site: source.matrix(site) for site in cut.sites}


def stored_names(source: Checkpoint, cut: Cut) -> list[str]:
    """Names of the tensors that hold the matrices of a cut."""
    names = ((site.name, f"{site.module}.up.weight", f"{site.module}.down.weight") for site in cut.sites)
    return [name for three in names for name in three if name in source.index]


def allocation_of(how: Completed, forecasts: bool) -> str:
    """Allocation of ranks: that which is asked for, or the one that suits the method."""
    if how.allocation is not None:
        return how.allocation
    # scores and outputs have no unit in common; a text model has no series to be probed with
    by_method = {"svd": "uniform-eps", JOINT: SENSITIVITY if forecasts else "energy"}
    return "uniform-eps" if how.eps is not None else by_method.get(how.method, "energy")


def _factorable(source: Checkpoint, words: Sequence[str] | str) -> tuple[Site, ...]:
    """Return the selected sites that are linear layers; a lookup table has no product to split."""
    chosen = tuple(site for site in source.sites(words) if site.role != "embedding")
    if not chosen:
        raise OptionError(
            f"sites {words!r} selects only the embedding table, which stays dense: "
            "choose from attention, mlp, q, k, v, o."
        )
    return chosen


def _cuts(source: Checkpoint, sites: Sequence[Site], how: Completed, calibration: Calibration | None) -> Sequence[Cut]:
    """Sort the selected sites.

    With ``joint`` feed-forward blocks become narrower. What has no partner, or is factored already, is whitened; so are
    queries and keys that rotary positions turn: their product is another one for every distance, and a head of another
    width could not be turned.
    """
    if how.method != JOINT:
        return [_single(source, site, how.method, calibration, how.eps, how.seed) for site in sites]
    assert calibration is not None
    cuts: list[Cut] = []
    everything = {site.module: site for site in source.sites(["attention"])}
    for module, letters in _attentions(source, sites).items():
        q, k, v, o = (everything[f"{module}.{letter}"] for letter in "qkvo")
        widths, cached = HeadWidth(q.head_widths, v.head_widths), cached_tokens(source, q)
        if letters & set("qk"):
            cuts.append(PairCut("qk", q, k, widths, (calibration.of(q), calibration.of(k)), cached))
        if letters & set("vo"):
            cuts.append(PairCut("vo", v, o, widths, (calibration.of(o),), cached))
    blocks = _blocks(source, sites)
    cuts += [_width(source, block, calibration) for block in blocks]
    whole = {site for block in blocks for site in block}
    others = [site for site in sites if site not in whole and (site.kind != "attention" or _turned(source, site))]
    return [*cuts, *(_single(source, site, "whitened", calibration, None, how.seed) for site in others)]


def _blocks(source: Checkpoint, sites: Sequence[Site]) -> list[list[Site]]:
    """Feed-forward blocks among the sites whose hidden units can go: nothing of them is factored."""
    found: dict[str, list[Site]] = {}
    for site in sites:
        if site.hidden_axis is not None:
            found.setdefault(site.block, []).append(site)
    return [block for block in found.values() if not any(site.module in source.factored for site in block)]


def _width(source: Checkpoint, block: Sequence[Site], calibration: Calibration) -> WidthCut:
    inner = tuple(site for site in block if site.hidden_axis == 0)
    (outer,) = (site for site in block if site.hidden_axis == 1)
    moments = calibration.of(outer)
    if moments.tokens < len(moments.total):
        moments = regularised(moments, UNSHOWN)
    names = [f"{site.module}.bias" for site in inner]
    return WidthCut(inner, outer, moments, {name: source.tensor(name) for name in names if name in source.index})


def _single(
    source: Checkpoint, site: Site, method: str, calibration: Calibration | None, eps: float | None, seed: int
) -> MatrixCut:
    now = source.factored.get(site.module)
    stored = None if now is None else (now.inner, source.stored(site))
    moments = None if calibration is None else calibration.of(site)
    if moments is not None and moments.tokens < min(source.shape(site)):
        moments = regularised(moments, UNSHOWN)
    return MatrixCut(site, method, moments, stored, eps, seed)


def _check_joint(source: Checkpoint, sites: Sequence[Site], method: str) -> None:
    """Refuse one matrix of a pair only, or an attention that is factored, before long work begins."""
    if method != JOINT:
        return
    for module, letters in _attentions(source, sites).items():
        for pair in (pair for pair in ("qk", "vo") if set(pair) & letters):
            if not set(pair) <= letters:
                raise OptionError(
                    f"method joint cuts {pair[0]} and {pair[1]} of a head together: select both, or neither."
                )
            for letter in pair:
                if f"{module}.{letter}" in source.factored:
                    raise OptionError(
                        f"{source.source}: {module}.{letter} is stored in two factors, method joint cuts whole heads: "
                        "use method whitened or svd, or start from the dense original."
                    )


def _turned(source: Checkpoint, site: Site) -> bool:
    """True if rotary position embeddings act on the outputs of a matrix."""
    scope, _, letter = site.role.partition(".")
    return scope in source.family.rotary and letter in ("q", "k")


def _attentions(source: Checkpoint, sites: Sequence[Site]) -> dict[str, set[str]]:
    """Letters of the matrices that are cut in pairs, by attention."""
    found: dict[str, set[str]] = {}
    for site in sites:
        if site.kind == "attention" and not _turned(source, site):
            found.setdefault(site.block, set()).add(site.role[-1])
    return found
