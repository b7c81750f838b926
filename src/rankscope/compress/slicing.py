"""Checkpoints with narrower residual streams: widths under a budget, sliced tensors, and the folder."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.checkpoints import Checkpoint
from rankscope.choices import Storage
from rankscope.compress.calibration.sources import cap_note, probe_set
from rankscope.compress.card import write_card
from rankscope.compress.options import SENSITIVITY, STREAM, CompressOptions
from rankscope.compress.plan import rounded
from rankscope.compress.prepare import check_family
from rankscope.compress.recipe import seen, write_recipe
from rankscope.compress.refine import refined_jobs
from rankscope.compress.report import CompressReport, SiteReport, whole_model_report
from rankscope.compress.stream import Basis, calibrated_on, measure
from rankscope.compress.write import Job, TensorSpec, encoding_of, finish_folder, write_jobs
from rankscope.engine import Progress, silent
from rankscope.engine.device import resolve_dtype
from rankscope.errors import OptionError
from rankscope.families import Layout, Site
from rankscope.families.stream import DECODER_TABLE, TABLE, Axes, points, read_widths, sliced, stream_axes
from rankscope.families.weight_layout import low_rank_config
from rankscope.io.atomic import atomic_folder
from rankscope.numerics.factored import FactoredMatrix, joined_heads

HEAD, COPY = "lm_head.weight", "encoder.embed_tokens.weight"
Widths = Mapping[str, int]


class Slicing:
    """A checkpoint with streams of the stock width, ready to be written with narrower ones.

    Args:
        source: the checkpoint.

    Raises:
        FamilyError: no low-rank class stores such a model.
        OptionError: its streams are sliced already.
    """

    def __init__(self, source: Checkpoint) -> None:
        check_family(source)
        if read_widths(source.config):
            raise OptionError(f"{source.source}: its residual stream is sliced already; start from the model before.")
        self.source, self.d_model = source, int(source.config["d_model"])
        tied = source.family.tied_shapes(source.config)
        kept = {name: info for name, info in source.index.items() if name not in tied and not source.is_scale(name)}
        self.shapes: dict[str, tuple[int, ...]] = {name: info.shape for name, info in kept.items()}
        self.dtypes = {name: info.dtype for name, info in kept.items()}
        for name in (TABLE, HEAD):
            if name not in kept and (name == TABLE or name in tied):  # stored under the name of a copy, or tied
                self.shapes[name], self.dtypes[name] = tied[name if name == HEAD else COPY], source.dtype

    def sliced(self, widths: Widths) -> dict[str, tuple[int, ...]]:
        """Shapes of all tensors that are stored with streams of these widths."""
        shapes = dict(sliced(self.shapes, widths))
        for module, site in self._undone(shapes).items():
            shapes[site.name] = self._product(module, shapes)
            for part in ("up", "down"):
                del shapes[f"{module}.{part}.weight"]
            if f"{module}.up.bias" in shapes:
                shapes[f"{module}.bias"] = shapes.pop(f"{module}.up.bias")
        return shapes

    def layouts(self, widths: Widths) -> dict[str, Layout]:
        """Layouts with streams of these widths."""
        undone = self._undone(sliced(self.shapes, widths))
        return {module: layout for module, layout in self.source.layouts.items() if module not in undone}

    def _undone(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Site]:
        """Factored matrices, by module, that store more than the sliced product, or have a higher rank than it can."""
        found = {}
        for site in self._factored:
            module, layout = site.module, self.source.factored[site.module]
            whole = self._product(module, shapes)
            factors = sum(prod(shapes[f"{module}.{part}.weight"]) for part in ("up", "down"))
            if prod(whole) <= factors or layout.rank > layout.largest(*whole):
                found[module] = site
        return found

    def _product(self, module: str, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, int]:
        """Shape of a factored matrix, multiplied out."""
        layout = self.source.factored[module]
        up, down = (shapes[f"{module}.{part}.weight"] for part in ("up", "down"))
        return up[0], down[1] * (layout.heads or 1 if layout.axis == 1 else 1)

    @cached_property
    def _factored(self) -> list[Site]:
        """Sites stored in factors."""
        return [site for site in self.source.sites(["all"]) if site.module in self.source.factored]

    @staticmethod
    def numbers(shapes: dict[str, tuple[int, ...]], widths: Widths) -> int:
        """Numbers stored by a model of these shapes with streams of these widths."""
        return sum(prod(shape) for shape in sliced(shapes, widths).values())

    def tied(self, name: str) -> bool:
        """True of a table that is stored under another name, or not at all, while the streams are whole."""
        return name in (TABLE, HEAD) and name not in self.source.index

    def parameters(self, widths: Widths) -> int:
        """Numbers stored."""
        return sum(prod(shape) for shape in self.sliced(widths).values())

    def tensors(self, bases: Mapping[str, Basis], widths: Widths) -> Iterator[tuple[str, Callable[[], Tensor]]]:
        """Names of all tensors and what makes them, in float64."""
        ends = {point: bases[point].at(width) for point, width in widths.items()}
        axes = stream_axes(self.sliced(widths))
        for name in self.sliced(widths):
            yield name, lambda name=name: self._tensor(name, axes.get(name, Axes()), ends)  # type: ignore[misc]

    def views(self, bases: Mapping[str, Basis], widths: Widths) -> dict[str, Float[Tensor, "_ d_model"]]:
        """Matrices that take the stream after every sublayer into the coordinates of the next point."""
        nexts = points(self.shapes)
        return {one: bases[other].at(widths[other])[1] for one, other in nexts.items() if other is not None}

    def config(self, widths: Widths, storage: Storage) -> dict[str, Any]:
        """``config.json`` of the sliced checkpoint, its linear layers stored in these numbers."""
        source = self.source
        method = str((source.config.get("rankscope") or {}).get("method", STREAM))
        config = low_rank_config(source.config, source.family, self.layouts(widths), method, storage)
        config["rankscope"] = {**config["rankscope"], "stream": dict(widths)}
        if HEAD in self.shapes:
            config.update(tie_word_embeddings=False, scale_decoder_outputs=False)
        return config

    @cached_property
    def _gains(self) -> dict[str, Float[Tensor, " d_model"]]:
        norms = {axes.norm: name for name, axes in stream_axes(self.shapes).items() if axes.norm is not None}
        return {point: self.source.tensor(name).double() for point, name in norms.items()}

    def _tensor(self, name: str, axes: Axes, ends: Mapping[str, tuple[Tensor, Tensor]]) -> Tensor:
        if axes.norm is not None:
            return torch.ones(ends[axes.norm][0].shape[1], dtype=torch.float64)
        if axes.out is not None and axes.read is not None:
            return ends[axes.out][1] @ ends[axes.read][0]
        tensor = self._dense(name)
        if axes.out is not None:
            write = ends[axes.out][1]
            return tensor.double() @ write.mT if axes.table else write @ tensor.double()
        if axes.read is None:
            return tensor
        read = ends[axes.read][0]
        # a norm of width k multiplies by √k where the stock one multiplies by √d_model
        scale = (self.d_model / read.shape[1]) ** 0.5 * self._scale(name)
        return (tensor.double() * self._gains[axes.read]) @ read * scale

    def _dense(self, name: str) -> Tensor:
        """The source's tensor, the product of two factors where these are undone."""
        stored = self.source.index
        if name == DECODER_TABLE or (name == HEAD and name not in stored):
            return self.source.tensor(TABLE)
        module, _, kind = name.rpartition(".")
        if module not in self.source.factored:
            return self.source.tensor(name)
        if kind == "bias":
            return self.source.tensor(f"{module}.up.bias")
        layout = self.source.factored[module]
        up, down = (self.source.tensor(f"{module}.{part}.weight").double() for part in ("up", "down"))
        whole = FactoredMatrix(up, down) if layout.heads is None else joined_heads(up, down, layout.heads, layout.axis)
        return whole.up @ whole.down

    def _scale(self, name: str) -> float:
        """T5 with a tied head scales what the head reads."""
        config = self.source.config
        scaled = config.get("scale_decoder_outputs", config.get("tie_word_embeddings") is not False)
        return self.d_model**-0.5 if name == HEAD and scaled else 1.0


def kept_width(coordinates: int, d_model: int, multiple: int) -> int:
    """Width of a point that keeps so many coordinates, rounded down to a multiple, but never to 0.

    >>> kept_width(19, 64, 8), kept_width(0, 64, 8), kept_width(0, 4, 8)
    (16, 8, 4)
    """
    return min(max(rounded(coordinates, multiple), 1), d_model)


def plan_widths(
    bases: Mapping[str, Basis],
    used: Callable[[Widths], float],
    limit: float,
    multiple: int = 1,
    kind: str = "parameters",
) -> dict[str, int]:
    """Widths that keep every coordinate worth more than one level, the lowest within a limit.

    Coordinates count alike at all points, whatever they cost there: what one point drops is lost to those after it.

    Args:
        bases: coordinates of every point.
        used: cost of widths, in the unit of the limit.
        limit: what must not be exceeded.
        multiple: widths are rounded down to multiples of it, but never to 0.
        kind: that unit.

    Raises:
        OptionError: even the least widths exceed the limit.
    """
    worth = {point: one.sigma.square() for point, one in bases.items()}
    levels = torch.cat([*worth.values(), torch.zeros(1, dtype=torch.float64)]).unique().flip(0)

    def at(number: int) -> dict[str, int]:
        """Widths at a level; the higher its number, the more is kept."""
        return {
            point: kept_width(int((one > levels[number]).sum()), len(one), multiple) for point, one in worth.items()
        }

    found = at(_last(lambda number: used(at(number)) <= limit, len(levels) - 1))
    if used(found) > limit:
        raise OptionError(
            f"{kind} {limit:.0f} is out of reach: streams of width {max(found.values())} leave {used(found):.0f}; "
            "ask for at least that, or compress with method joint first."
        )
    return found


def _last(holds: Callable[[int], bool], end: int) -> int:
    """The last number up to ``end`` where what holds for small numbers still holds; 0 where it never does."""
    low, high = 0, end
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def slice_checkpoint(
    source: Checkpoint,
    how: CompressOptions,
    *,
    out: str | Path,
    force: bool = False,
    original: Checkpoint | None = None,
    progress: Progress | None = None,
) -> CompressReport:
    """Write a checkpoint with narrower residual streams; see `rankscope.compress.stream`.

    Args:
        source: the model to slice.
        how: options.
        out: folder to write.
        force: replace ``out`` if it exists.
        original: model whose streams the refit is to reach, where ``source`` is a smaller one made of it.
        progress: called with (done, total, what).

    Raises:
        OptionError: a size that this method does not have, or that is out of reach.
        RankscopeError: as `rankscope.compress.compress` says.
    """
    begin, report = time.perf_counter(), progress or silent
    slicing = Slicing(source)
    kind, limit, used = _limit(slicing, how)
    how = replace(how, probe=probe_set(source, how))
    bases = measure(source, how, report)
    widths = plan_widths(bases, used, limit, how.multiple, kind)
    return write_sliced(
        slicing, bases, widths, how, out=out, force=force, original=original, begin=begin, progress=report
    )


def write_sliced(
    slicing: Slicing,
    bases: Mapping[str, Basis],
    widths: Widths,
    how: CompressOptions,
    *,
    out: str | Path,
    force: bool = False,
    original: Checkpoint | None = None,
    begin: float | None = None,
    progress: Progress | None = None,
) -> CompressReport:
    """Write the folder, whole or not at all.

    Args:
        slicing: the checkpoint.
        bases: coordinates of every point.
        widths: how many of them each keeps.
        how: number formats, and what the report names.
        out: folder to write.
        force: replace ``out`` if it exists.
        original: as `slice_checkpoint` takes it.
        begin: `time.perf_counter` when the work began, for the report; now by default.
        progress: called with (done, total, what).
    """
    start, tell = time.perf_counter() if begin is None else begin, progress or silent
    source, storage = slicing.source, how.storage or slicing.source.storage
    series = calibrated_on(source, how)
    encoding = encoding_of(source, slicing.layouts(widths), storage, resolve_dtype(how.dtype))
    kinds, shapes = slicing.dtypes, slicing.sliced(widths)

    def made(name: str, make: Callable[[], Tensor]) -> Job:
        return Job((TensorSpec(name, shapes[name], kinds.get(name, source.dtype)),), lambda _: {name: make()})

    jobs = [made(name, make) for name, make in slicing.tensors(bases, widths)]
    with atomic_folder(out, force) as folder:
        draft, views = slicing.config(widths, "float"), slicing.views(bases, widths)
        with refined_jobs(original or source, jobs, draft, how, folder, tell, views=views) as (written, refined):
            size = write_jobs(folder, written, encoding, how.workers, tell)
        after = slicing.parameters(widths)
        numbers = _numbers(slicing.shapes), _numbers(slicing.sliced(widths))
        report = whole_model_report(
            source,
            replace(how, storage=storage),
            out=out,
            calibration=series.name,
            notes=cap_note(source, series.name),
            after=after,
            size=size,
            seconds=time.perf_counter() - start,
            sites=(_point_report(slicing, point, bases[point], widths[point], numbers) for point in widths),
            refined=refined or 0,
        )
        finish_folder(folder, source, slicing.config(widths, storage), report, resolve_dtype(how.dtype), storage)
        write_recipe(folder, source, how, seen(series))
        write_card(folder, out)
    return report


def _specs(slicing: Slicing, how: CompressOptions, widths: Widths) -> dict[str, tuple[TensorSpec, ...]]:
    source, storage = slicing.source, how.storage or slicing.source.storage
    encoding = encoding_of(source, slicing.layouts(widths), storage, resolve_dtype(how.dtype))
    kinds = slicing.dtypes
    shapes = slicing.sliced(widths).items()
    return {name: encoding(name, shape, kinds.get(name, source.dtype)) for name, shape in shapes}


def _limit(slicing: Slicing, how: CompressOptions) -> tuple[str, float, Callable[[Widths], float]]:
    """A unit, the largest size allowed, and the size of widths in it."""
    if how.sites is not None or how.allocation not in (None, SENSITIVITY):
        raise OptionError("method stream slices the whole model by sensitivity: leave out sites and allocation.")
    budget = None if how.limit is None else how.limit.absolute(slicing.source.parameters)
    if budget is None or budget.kind not in ("parameters", "bytes"):
        raise OptionError("method stream takes a size of the whole model: --ratio, --parameters or --bytes.")
    if budget.kind == "parameters":
        return budget.kind, float(budget.limit), lambda widths: float(slicing.parameters(widths))

    def stored(widths: Widths) -> float:
        return float(sum(spec.bytes for specs in _specs(slicing, how, widths).values() for spec in specs))

    return budget.kind, float(budget.limit), stored


def _point_report(
    slicing: Slicing, point: str, basis: Basis, width: int, numbers: tuple[Counter[str], Counter[str]]
) -> SiteReport:
    worth = basis.sigma.square()
    stack, _, rest = point.partition(".")
    return SiteReport(
        name=point,
        stack=stack,
        layer=int(rest.split(".")[1]) if rest.startswith("block.") else None,
        role=STREAM,
        shape=(slicing.d_model, slicing.d_model),
        layout=STREAM,
        rank=width,
        widths=(),
        eps_rank=width,
        parameters_before=numbers[0][point],
        parameters_after=numbers[1][point],
        spectral_error=float(basis.sigma[width]) if width < len(worth) else 0.0,
        relative_error=float(basis.sigma[width] / basis.sigma[0]) if width < len(worth) else 0.0,
        lost=float(worth[width:].sum() / worth.sum()),
        note="",
    )


def _numbers(shapes: dict[str, tuple[int, ...]]) -> Counter[str]:
    """Numbers stored in what reads each point, its skip connection and its norm among them."""
    found: Counter[str] = Counter()
    for name, axes in stream_axes(shapes).items():
        point = axes.norm if axes.read is None else axes.read
        if point is not None:
            found[point] += prod(shapes[name])
    return found
