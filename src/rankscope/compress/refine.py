"""Anchored refinement: what writes to the stream of a smaller model is refitted to bring it back to the original's.

Layers of a smaller model read what the layers before them have changed. Sublayer by sublayer, in the order of
computation, the last matrix W of a sublayer is moved by D: with a the rows that enter W in the smaller model, x its
stream before the sublayer and y the original's stream after it,

    min_D Σ ‖y − x − (W + D) a‖² + λ‖D‖²,    D = R (C + λ)⁻¹,    R = Σ (y − x − W a) aᵀ,    C = Σ a aᵀ.

Sums are over all positions, every series with the same weight. λ is chosen by cross-validation over batches of series;
where none helps on series that were not fitted to, W stays as it is. Of two factors the one that writes is refitted, so
that no size changes. Where the streams are sliced, y is taken into their coordinates. After AA-SVD (arXiv:2604.02119)
and the closed-form update of SVD-LLM (arXiv:2403.07378); measured in docs/theory/compression.md.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.compress.calibration.moments import summed_squares
from rankscope.compress.calibration.passes import (
    GROUP,
    CalibrationSet,
    by_length,
    note_masks,
    pass_inputs,
    series_weights,
)
from rankscope.compress.calibration.sources import given_series
from rankscope.compress.options import DEPTH, JOINT, STREAM, CompressOptions
from rankscope.compress.pausing import PausingPass, current_pass
from rankscope.compress.write import Job, TensorSpec, write_jobs
from rankscope.engine import Progress, silent
from rankscope.engine.device import resolve_device
from rankscope.engine.memory import give_back
from rankscope.errors import OptionError
from rankscope.families.stream import points
from rankscope.io import codec

BATCH, FOLDS, PASSES, FEWEST = 16, 4, 32, 2
"""Series of a pass, folds, passes that wait at a time (a thread each), and the fewest series that are refitted on."""
HELD = 2**31
"""Bytes of states that all passes together may hold while they wait; of wide models fewer series fit."""
RIDGES = tuple(10.0**power for power in range(-4, 3))
"""λ over the mean diagonal element of C."""
SKETCH = 256
"""Random combinations of the outputs on which λ is chosen where there are more: the sums of squares that are compared
keep their expectation, and vary by about √(2 / 256) of themselves."""
DRAFT = ".draft"
_WRITERS = ("o", "wo")


@dataclass
class Sums:
    """Sums over the rows of one fold.

    Attributes:
        second: C.
        cross: R.
    """

    second: Float[Tensor, "k k"]
    cross: Float[Tensor, "d k"]

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.second + other.second, self.cross + other.cross)

    def __sub__(self, other: Sums) -> Sums:
        return Sums(self.second - other.second, self.cross - other.cross)

    @classmethod
    def of(cls, rows: Float[Tensor, "n k"], missing: Float[Tensor, "n d"]) -> Sums:
        """Sums over rows a and what is missing there, y − x − W a."""
        return cls(summed_squares(rows).double(), (missing.mT @ rows).double())


def update(folds: Sequence[Sums], ridges: Sequence[float] = RIDGES) -> Float[Tensor, "d k"] | None:
    """D with the λ that leaves least of the squared error of folds that were not fitted to; None where none helps.

    That error falls and then rises again with λ: the search goes downhill from the middle of ``ridges``. A λ that does
    not make C positive definite beyond its rounding is none. Of wide streams the error is that of `SKETCH` Gaussian
    combinations of the outputs, the same ones at every call.

    Args:
        folds: sums over disjoint sets of series, at least two.
        ridges: λ to choose from, ascending, over the mean diagonal element of C.
    """
    whole = sum(folds[1:], folds[0])
    scale = float(whole.second.diagonal().mean())
    seen = [_sketched(one) for one in folds]
    all_seen = sum(seen[1:], seen[0])
    known: dict[int, float] = {}

    def held_out(at: int) -> float:
        """Change of the squared error of the held-out folds."""
        if not 0 <= at < len(ridges):
            return math.inf
        if at not in known:
            known[at] = sum(_change(all_seen - held, held, ridges[at] * scale * (1 - 1 / len(seen))) for held in seen)
        return known[at]

    best = len(ridges) // 2
    step = min((-1, 1), key=lambda one: held_out(best + one))
    while held_out(best + step) < held_out(best):
        best += step
    return _solved(whole, ridges[best] * scale) if held_out(best) < 0 else None


def _sketched(sums: Sums) -> Sums:
    """Sums over `SKETCH` combinations of the outputs, or the same ones where there are no more."""
    width = len(sums.cross)
    if width <= SKETCH:
        return sums
    drawn = torch.randn(SKETCH, width, generator=torch.Generator().manual_seed(0), dtype=sums.cross.dtype)
    return Sums(sums.second, drawn.to(sums.cross) @ sums.cross / math.sqrt(SKETCH))


def _change(fitted: Sums, held: Sums, ridge: float) -> float:
    """Change of the squared error of one set by the D that is fitted to another."""
    moved = _solved(fitted, ridge)
    return math.inf if moved is None else float(((moved @ held.second - 2 * held.cross) * moved).sum())


def _solved(sums: Sums, ridge: float) -> Float[Tensor, "d k"] | None:
    """R (C + λ)⁻¹; None where C + λ is not positive definite."""
    second = sums.second.clone()
    second.diagonal().add_(ridge)
    lower, info = torch.linalg.cholesky_ex(second)
    return None if int(info) else torch.cholesky_solve(sums.cross.mT, lower).mT


@torch.no_grad()
def refine(
    source: Checkpoint,
    smaller: nn.Module,
    series: CalibrationSet,
    *,
    decoder: str = "teacher",
    device: str = "cpu",
    seed: int = 0,
    targets: Mapping[str, str] | None = None,
    views: Mapping[str, Float[Tensor, "_ d"]] | None = None,
    progress: Progress = silent,
) -> dict[str, Float[Tensor, "_ _"]]:
    """Refit all matrices that write to the residual streams of a smaller model.

    Both models run over all series once, side by side: every batch waits at each sublayer until that is refitted. Of
    wide models, whose states would fill the memory meanwhile, some series are enough; see `HELD`.

    Args:
        source: the original.
        smaller: what became of it, in float32; its matrices are changed in place.
        series: what both read.
        decoder: as in `rankscope.compress.calibration.passes.pass_inputs`.
        device: where both run.
        seed: of sampled paths.
        targets: sublayers of the smaller model, in the order of computation, each with that of the original whose
            stream it is to reach; the same ones by default.
        views: of a model with sliced streams, by sublayer, the matrix that takes the original's stream after it into
            the coordinates of the smaller one.
        progress: called with (done, total, what).

    Returns:
        The tensors that changed, by name.
    """
    shapes = {name: info.shape for name, info in source.index.items()}
    if targets is None:
        targets = {one: one for one, after in points(shapes).items() if after is not None}
    if not targets:
        return {}
    series = affordable(source, series)
    size = max(1, min(BATCH, len(series) // FOLDS), -(-len(series) // PASSES))
    place = resolve_device(device)
    models: list[Any] = [one.to(place).eval() for one in (source.module(torch.float32), smaller)]
    ends = {point: _end(models[1], point) for point in targets}
    batches = list(_batches(source, models[0], series, size, decoder, seed))  # sample paths are drawn without hooks
    number = min(FOLDS, len(series) // size)
    found: dict[str, Tensor] = {}
    with ExitStack() as held:
        for hook in _hooks(models, targets.values(), ends):
            held.callback(hook.remove)
        pairs = [
            tuple(held.enter_context(PausingPass(partial(model, **inputs))) for model in models) for inputs in batches
        ]
        for done, (point, (name, writer)) in enumerate(ends.items()):
            view = None if views is None else views[point].to(place, torch.float32)
            progress(done, len(ends), "refining")
            folds: dict[int, Sums] = {}
            for at, pair in enumerate(pairs):
                original, changed = (each.resume() for each in pair)
                sums = Sums.of(*_rows(original, changed, name, writer, view))
                folds[at % number] = folds[at % number] + sums if at >= number else sums
            moved = update([*folds.values()])
            if moved is not None:
                writer.weight += moved.to(writer.weight)
                found[f"{name}.weight"] = writer.weight.detach()
        progress(len(ends), len(ends), "refining")
    return found


@contextmanager
def refined_jobs(
    source: Checkpoint,
    jobs: Sequence[Job],
    config: Mapping[str, Any],
    how: CompressOptions,
    folder: Path,
    progress: Progress = silent,
    targets: Mapping[str, str] | None = None,
    views: Mapping[str, Float[Tensor, "_ d"]] | None = None,
) -> Iterator[tuple[Sequence[Job], int | None]]:
    """Jobs that write the refined model, and how many matrices were refitted; ``jobs`` and None where none is to be.

    Args:
        source: the original.
        jobs: what writes the smaller model.
        config: its ``config.json``, for floating-point numbers.
        how: whether to refine, and on which series.
        folder: a folder that is being written; a draft of the model, of which the jobs copy, is in it meanwhile.
        progress: called with (done, total, what).
        targets: as `refine` takes them.
        views: likewise.

    Raises:
        OptionError: refinement was asked for, and there are too few series, or those of the moments cannot be
            regenerated.
        DataError: the calibration set cannot be used.
    """
    wanted = how.completed().method in (JOINT, DEPTH, STREAM) if how.refine is None else how.refine
    series = given_series(source, how) if wanted else None
    if series is None or len(series) < FEWEST:
        if how.refine:
            why = "and those of the saved moments cannot be regenerated: give the calibration set, e.g. mixture:256"
            if series is not None:
                why = (
                    f"{FEWEST} at least, and {series.name} holds {len(series)}: write FILE:64 for 64 windows of a file"
                )
            raise OptionError(f"refine runs series through both models, {why}, or leave out refine.")
        yield jobs, None
        return
    draft = folder / DRAFT
    draft.mkdir()
    write_jobs(draft, jobs, _in_float32, how.workers, progress)
    give_back()
    codec.write(draft / "config.json", {**config, "torch_dtype": "float32"}, indent=2)
    smaller = open_checkpoint(draft)
    moved = refine(
        source,
        smaller.module(torch.float32),
        series,
        decoder=how.decoder or "teacher",
        device=how.device,
        seed=how.seed,
        targets=targets,
        views=views,
        progress=progress,
    )

    def made(name: str, _: Any) -> dict[str, Tensor]:
        return {name: moved[name] if name in moved else smaller.tensor(name)}

    yield [Job((one,), partial(made, one.name)) for job in jobs for one in job.made], len(moved)
    shutil.rmtree(draft)


def _in_float32(name: str, shape: tuple[int, ...], stored: torch.dtype) -> tuple[TensorSpec, ...]:
    return (TensorSpec(name, shape, torch.float32 if stored.is_floating_point or stored == torch.int8 else stored),)


def affordable(source: Checkpoint, series: CalibrationSet) -> CalibrationSet:
    """As many series, evenly spread over the set, as `HELD` has room for, one batch at least.

    A pass that waits holds about six rows of the stream, two as wide as the widest layer and two of attention weights.
    """
    patched = source.family.strategy == "continuous"
    stride = source.family.patch_size(source.config) if patched else 1
    tokens = series.context.shape[1] // stride + 1
    width = int(source.config["d_model"])
    widest = max(max(source.shape(site)) for site in source.sites(["attention", "mlp"]))
    weights = tokens * int(source.config["num_heads"])
    most = max(HELD // (4 * tokens * (6 * width + 2 * widest + 2 * weights)), BATCH)
    if most >= len(series):
        return series
    chosen = torch.linspace(0, len(series) - 1, most).long()  # some of every part of a combined set
    return replace(series, context=series.context[chosen], future=series.future[chosen])


def _batches(
    source: Checkpoint, model: Any, series: CalibrationSet, size: int, decoder: str, seed: int
) -> Iterator[dict[str, Any]]:
    """Inputs of a pass over every batch."""
    order = by_length(series.context)
    for start in range(0, len(series), size):
        part = order[start : start + size]
        yield pass_inputs(model, source.family, series.context[part], series.future[part], decoder, seed + start)


def _end(model: nn.Module, point: str) -> tuple[str, Any]:
    """Name and module of what writes to the stream last in the sublayer of a point."""
    (name,) = (name for name, _ in model.get_submodule(point).named_modules() if name.rpartition(".")[2] in _WRITERS)
    name = f"{point}.{name}"
    found = model.get_submodule(name)
    return (f"{name}.up", found.up) if hasattr(found, "up") else (name, found)


def _hooks(models: Sequence[Any], points: Iterable[str], ends: Mapping[str, tuple[str, Any]]) -> Iterator[Any]:
    """Put hooks into the original and the smaller model, one after the other."""
    original, smaller = models
    for model in models:
        yield from note_masks(model, lambda: current_pass().masks)
    for point in points:
        yield original.get_submodule(point).register_forward_hook(_after)
    for point, (_, writer) in ends.items():
        yield from _watch(smaller, point, writer)


def _after(_: nn.Module, __: Any, output: Any) -> None:
    """Make passes of the original show its stream after a sublayer."""
    current_pass().show(output if isinstance(output, Tensor) else output[0])


def _watch(smaller: nn.Module, point: str, writer: nn.Module) -> Iterator[Any]:
    """Make passes of the smaller model show its stream before a sublayer, with W's rows."""

    def before(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = args[0] if args else kwargs["hidden_states"]
        current_pass().stream = layer.skip(x) if hasattr(layer, "skip") else x

    def enters(_: nn.Module, args: tuple[Any, ...]) -> None:
        now = current_pass()
        now.show(now.stream, args[0], now.masks.get(point.partition(".")[0]))

    yield smaller.get_submodule(point).register_forward_pre_hook(before, with_kwargs=True)
    yield writer.register_forward_pre_hook(enters)


def _rows(
    original: tuple[Any, ...], smaller: tuple[Any, ...], name: str, writer: Any, view: Float[Tensor, "d d_model"] | None
) -> tuple[Float[Tensor, "n k"], Float[Tensor, "n d"]]:
    """Rows that enter the writer at real positions, and what is missing in the stream after it, both weighted."""
    (stream,), (before, rows, mask) = original, smaller
    if view is not None:
        stream = stream @ view.mT
    if GROUP in name:  # position by series
        rows = rows.transpose(0, 1)
    missing = stream - before - nn.functional.linear(rows, writer.weight, writer.bias)
    kept = torch.ones(rows.shape[:2], dtype=torch.bool, device=rows.device)
    if mask is not None and mask.shape == kept.shape:
        kept = mask
    weights = series_weights(kept)[kept].sqrt()[:, None]
    return rows[kept] * weights, missing[kept] * weights
