"""Whole layers of the stacks, removed one by one where the forecasts miss them least.

What is left are stock layers, renumbered, so that a dense model stays one that every runtime loads; the encoder of a
model that emits tokens one after the other never becomes shallower than its decoder. The loss without some layers is
measured, not estimated: no expansion around the gates of single terms reaches as far as a whole layer. It has the unit
of allocation ``sensitivity`` all the same: the mean squared change of the quantiles in spreads of their series, or nats
per token.

Layers leave greedily, each time the one that adds least to the loss per number that it stores. What a layer adds seldom
falls when others have gone, so what was measured before stands in for a bound: only the candidate that looks cheapest
is measured again, until it stays the cheapest (the accelerated greedy algorithm of Minoux, 1978).
"""

from __future__ import annotations

import contextlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rankscope.checkpoints import Checkpoint
from rankscope.choices import Storage
from rankscope.compress.calibration.passes import CalibrationSet, answer, gives_quantiles, questions
from rankscope.compress.calibration.sources import cap_note
from rankscope.compress.card import write_card
from rankscope.compress.options import DEPTH, LAYERS, SENSITIVITY, Budget, CompressOptions
from rankscope.compress.prepare import check_family
from rankscope.compress.recipe import seen, write_recipe
from rankscope.compress.refine import refined_jobs
from rankscope.compress.report import CompressReport, SiteReport, whole_model_report
from rankscope.compress.sensitivity import unit_of
from rankscope.compress.stream import calibrated_on
from rankscope.compress.write import Encoding, copied, encoding_of, finish_folder, write_jobs
from rankscope.engine import Progress, silent
from rankscope.engine.device import fast_products, resolve_device, resolve_dtype
from rankscope.errors import OptionError
from rankscope.families import Layout
from rankscope.families.stream import points, read_widths
from rankscope.families.weight_layout import low_rank_config
from rankscope.io.atomic import atomic_folder

AT_ONCE = 32
"""Series of a forward pass."""
_BLOCK = re.compile(r"^(encoder|decoder)\.block\.(\d+)\.(.*)$")
_BIAS = "layer.0.SelfAttention.relative_attention_bias.weight"
"""Position biases of all layers of a stack, which T5 stores in its first one."""
STACKS = ("encoder", "decoder")
Layer = tuple[str, int]
"""Stack, and 0-based number in it."""


class Layers:
    """Layers of a checkpoint, their sizes, and the folder that some of them make.

    Args:
        source: the checkpoint.
        how: number formats of the folder.

    Raises:
        FamilyError: no low-rank class stores such a model.
        OptionError: its residual stream is sliced, so that layers do not fit to others than their neighbours.
    """

    def __init__(self, source: Checkpoint, how: CompressOptions) -> None:
        check_family(source)
        if read_widths(source.config):
            raise OptionError(
                f"{source.source}: its residual stream is sliced, layers fit their neighbours only: remove layers "
                "first (method depth), and slice the result (method stream)."
            )
        self.source, self.how = source, how
        self.storage = how.storage or source.storage
        self.parameters: Counter[Layer] = Counter()
        for name, info in source.index.items():
            found = _BLOCK.match(name)
            if found and found[3] != _BIAS and not source.is_scale(name):
                self.parameters[found[1], int(found[2])] += prod(info.shape)

    def renaming(self, kept: Sequence[Layer]) -> Callable[[str], str | None]:
        """New name of a tensor, a module or a point of a stream; None where its layer is not kept."""
        numbers = {layer: number for stack in STACKS for number, layer in enumerate(_of(kept, stack))}

        def renamed(name: str) -> str | None:
            block = _BLOCK.match(name)
            if block is None or block[3] == _BIAS:
                return name
            number = numbers.get((block[1], int(block[2])))
            return None if number is None else f"{block[1]}.block.{number}.{block[3]}"

        return renamed

    def names(self, kept: Sequence[Layer]) -> dict[str, str]:
        """Old names of the tensors that are left, and new ones."""
        renamed = self.renaming(kept)
        pairs = ((name, renamed(name)) for name in self.source.index if not self.source.is_scale(name))
        return {old: new for old, new in pairs if new is not None}

    def encoding(self, kept: Sequence[Layer]) -> Encoding:
        """Number formats of the folder."""
        return encoding_of(self.source, self.layouts(kept), self.storage, resolve_dtype(self.how.dtype))

    def layouts(self, kept: Sequence[Layer]) -> dict[str, Layout]:
        """Layouts of the modules that are left, by their new names."""
        renamed = self.renaming(kept)
        pairs = ((renamed(module), layout) for module, layout in self.source.layouts.items())
        return {new: layout for new, layout in pairs if new is not None}

    def targets(self, kept: Sequence[Layer]) -> dict[str, str]:
        """Sublayers of the folder, and those of the source whose stream they are to reach: all that follow and left."""
        renamed, found, last = self.renaming(kept), dict[str, str](), dict[str, str | None]()
        shapes = {name: info.shape for name, info in self.source.index.items()}
        for point in (one for one, after in points(shapes).items() if after is not None):
            stack = point.partition(".")[0]
            last[stack] = renamed(point) or last.get(stack)
            if (before := last[stack]) is not None:  # none before layers that left first of all
                found[before] = point
        return found

    def config(self, kept: Sequence[Layer], storage: Storage | None = None) -> dict[str, Any]:
        """``config.json`` of the folder: a stock one, where nothing but layers is missing; see `fewest`."""
        storage = storage or self.storage
        source, layouts = self.source, self.layouts(kept)
        counts = {field: len(_of(kept, stack)) for stack, field in source.family.depth.items() if _of(kept, stack)}
        config = {**source.config, **counts}
        if not layouts and storage == "float" and "rankscope" not in config:
            return config
        method = str((source.config.get("rankscope") or {}).get("method", DEPTH))
        return low_rank_config(config, source.family, layouts, method, storage)

    def fewest(self, stack: str, kept: Sequence[Layer]) -> int:
        """Layers that a stack needs beside those that are kept of the other one.

        One, but for the encoder of a decoder that emits tokens one after the other: ``generate`` of transformers makes
        caches for as many layers as the encoder has, and fails where the decoder has more.
        """
        deep = stack == "encoder" and self.source.family.decoding == "tokens"
        return max(1, len(_of(kept, "decoder")) if deep else 0)

    def size(self, kept: Sequence[Layer], unit: str) -> int:
        """Size of the folder in layers, parameters or bytes."""
        if unit == LAYERS:
            return len(kept)
        if unit == "bytes":
            encoding, index = self.encoding(kept), self.source.index
            stored = ((new, index[old].shape, index[old].dtype) for old, new in self.names(kept).items())
            return sum(spec.bytes for one in stored for spec in encoding(*one))
        return self.source.parameters - sum(self.parameters[one] for one in self.parameters if one not in kept)


def _of(layers: Sequence[Layer], stack: str) -> list[Layer]:
    return [layer for layer in layers if layer[0] == stack]


@contextlib.contextmanager
def only_layers(module: Any, kept: Sequence[Layer]) -> Iterator[None]:
    """The model with these layers of its stacks alone; position biases go over to the first that is left."""
    undo: list[Callable[[], None]] = []
    try:
        for stack in dict.fromkeys(stack for stack, _ in kept):
            part = module.get_submodule(stack)
            whole = part.block
            undo.append(partial(setattr, part, "block", whole))
            part.block = nn.ModuleList(whole[number] for _, number in _of(kept, stack))
            first, now = (_self_attention(blocks[0]) for blocks in (whole, part.block))
            if now is not first and getattr(first, "has_relative_attention_bias", False):
                now.has_relative_attention_bias = True
                now.relative_attention_bias = first.relative_attention_bias
                undo.append(partial(delattr, now, "relative_attention_bias"))
                undo.append(partial(setattr, now, "has_relative_attention_bias", False))
        yield
    finally:
        for step in undo:
            step()


def _self_attention(block: Any) -> Any:
    return getattr(block.layer[0], "SelfAttention", None)


class Losses:
    """Loss of a model without some of its layers.

    Args:
        source: the model.
        series: what it is shown.
        device: where it runs.
    """

    @torch.no_grad()
    def __init__(self, source: Checkpoint, series: CalibrationSet, device: str = "cpu") -> None:
        self.device = resolve_device(device)
        self.module, self.width = source.module().to(self.device), int(source.config["d_model"])
        self.inputs = [inputs for inputs, _ in questions(source, self.module, series, AT_ONCE)]
        self.exact = [self._answer(inputs) for inputs in self.inputs]

    @torch.no_grad()
    def __call__(self, kept: Sequence[Layer]) -> float:
        """Mean loss over all answers."""
        total, count = 0.0, 0
        with only_layers(self.module, kept):
            for inputs, exact in zip(self.inputs, self.exact, strict=True):
                each = difference(inputs, self._answer(inputs), exact)
                total, count = total + float(each.double().sum()), count + each.numel()
        return total / count

    def _answer(self, inputs: dict[str, Any]) -> Tensor:
        with fast_products(self.device, self.width):
            return answer(self.module, inputs)


def difference(inputs: dict[str, Any], found: Tensor, exact: Tensor) -> Tensor:
    """Squared changes of quantiles in spreads of their series, or KL divergences in nats of all tokens that count."""
    if gives_quantiles(inputs):
        return ((found - exact) / unit_of(exact).to(exact)).square()
    true, logs = exact.log_softmax(dim=-1), found.log_softmax(dim=-1)
    each = nn.functional.kl_div(logs, true, reduction="none", log_target=True).sum(dim=-1)
    real = inputs.get("decoder_attention_mask")
    return each.flatten() if real is None else each[real > 0]


Removal = tuple[Layer, float]
"""A layer that left, and the loss without it and those before it."""


def remove(
    layers: Sequence[Layer],
    removable: Sequence[Layer],
    loss: Callable[[Sequence[Layer]], float],
    cost: Mapping[Layer, float],
    enough: Callable[[Sequence[Layer]], bool],
    fewest: Callable[[str, Sequence[Layer]], int] = lambda stack, kept: 1,
) -> list[Removal]:
    """Remove layers until there are few enough of them, or none can go.

    Args:
        layers: all of them.
        removable: those that may leave.
        loss: mean loss of the layers that it is given.
        cost: of every layer.
        enough: whether nothing more has to go.
        fewest: as `Layers.fewest`; by default every stack keeps its last one.
    """
    kept, now, removed = list(layers), 0.0, list[Removal]()
    known = dict.fromkeys(removable, -1e300)  # increase per cost, as last measured
    while not enough(kept):
        candidates = [layer for layer in known if len(_of(kept, layer[0])) > fewest(layer[0], kept)]
        if not candidates:
            break
        fresh: dict[Layer, float] = {}
        while (best := min(candidates, key=known.__getitem__)) not in fresh:
            fresh[best] = loss([layer for layer in kept if layer != best])
            known[best] = (fresh[best] - now) / cost[best]
        kept.remove(best)
        del known[best]
        now = fresh[best]
        removed.append((best, now))
    return removed


def drop_layers(
    source: Checkpoint, how: CompressOptions, *, out: str | Path, force: bool = False, progress: Progress | None = None
) -> CompressReport:
    """Write a checkpoint with fewer layers, as many as its size allows.

    Raises:
        OptionError: a size that this method does not have, or that is out of reach.
        RankscopeError: as `rankscope.compress.compress` says.
    """
    begin, tell = time.perf_counter(), progress or silent
    layers, stacks, budget = Layers(source, how), _stacks(how), _budget(source, how)
    everything = sorted(layers.parameters, key=lambda layer: (STACKS.index(layer[0]), layer[1]))
    removable = [layer for layer in everything if layer[0] in stacks]
    if not removable or (budget.kind == LAYERS and budget.limit > len(removable)):
        where = " and the ".join(stacks)
        raise OptionError(f"{source.source} has {len(removable)} layers in the {where}: there is nothing to remove.")
    stacks = tuple(stack for stack in stacks if _of(removable, stack))
    fixed = len(everything) - len(removable) if budget.kind == LAYERS else 0

    def enough(kept: Sequence[Layer]) -> bool:
        return layers.size(kept, budget.kind) - fixed <= budget.limit

    bare = [layer for layer in everything if layer not in removable or layer[1] == 0]
    least = [layer for layer in everything if layer in bare or layer[1] < layers.fewest(layer[0], bare)]
    if not enough(least):
        what = "one layer in the " + " and the ".join(stacks)
        if least != bare:
            what = "the encoder has to stay as deep as the decoder, or transformers generates no tokens, which"
        raise OptionError(
            f"{budget.kind} {budget.limit:.12g} is out of reach: {what} leaves "
            f"{layers.size(least, budget.kind) - fixed}; ask for at least that, "
            f"{'let layers of the decoder leave too (sites), ' if least != bare else ''}or compress the result with "
            "method joint."
        )
    series = calibrated_on(source, how)
    losses = Losses(source, series, how.device)
    measured = 0

    def loss(kept: Sequence[Layer]) -> float:
        nonlocal measured
        measured += 1
        tell(len(everything) - len(kept) - 1, len(removable), f"layers, {measured} losses measured")
        return losses(kept)

    cost = {layer: 1.0 if budget.kind == LAYERS else float(layers.parameters[layer]) for layer in removable}
    removed = remove(everything, removable, loss, cost, enough, layers.fewest)
    kept = [layer for layer in everything if layer not in dict(removed)]
    jobs = [copied(source, old, new) for old, new in layers.names(kept).items()]
    with atomic_folder(out, force) as folder:
        draft, targets = layers.config(kept, "float"), layers.targets(kept)
        with refined_jobs(source, jobs, draft, how, folder, tell, targets) as (written, refined):
            size = write_jobs(folder, written, layers.encoding(kept), how.workers, tell)
        report = whole_model_report(
            source,
            replace(how, method=DEPTH, storage=layers.storage),
            out=out,
            calibration=series.name,
            notes=cap_note(source, series.name),
            after=layers.size(kept, "parameters"),
            size=size,
            seconds=time.perf_counter() - begin,
            sites=_layer_reports(layers, everything, removed),
            refined=refined or 0,
        )
        finish_folder(folder, source, layers.config(kept), report, resolve_dtype(how.dtype), layers.storage)
        write_recipe(folder, source, how, seen(series))
        write_card(folder, out)
    return report


def _stacks(how: CompressOptions) -> tuple[str, ...]:
    """Stacks whose layers may leave."""
    words = how.sites.split(",") if isinstance(how.sites, str) else [*(how.sites or STACKS)]
    if not set(words) <= set(STACKS):
        raise OptionError(f"method {DEPTH} removes whole layers: of sites, encoder and decoder are all that it takes.")
    return tuple(stack for stack in STACKS if stack in words)


def _budget(source: Checkpoint, how: CompressOptions) -> Budget:
    if how.allocation not in (None, SENSITIVITY):
        raise OptionError(f"method {DEPTH} removes layers by their measured loss: leave out allocation.")
    if how.probe is not None or how.multiple != 1:
        idle = "multiple" if how.probe is None else "probe"
        raise OptionError(f"method {DEPTH} measures losses on the calibration set and has no ranks: leave out {idle}.")
    budget = None if how.limit is None else how.limit.absolute(source.parameters)
    if budget is None or budget.kind not in ("parameters", "bytes", LAYERS):
        raise OptionError(
            f"method {DEPTH} takes --layers, or a size of the whole model: --ratio, --parameters, --bytes."
        )
    return budget


def _layer_reports(layers: Layers, everything: Sequence[Layer], removed: Sequence[Removal]) -> Iterator[SiteReport]:
    """One entry per layer; ``lost`` is what its removal added to the loss."""
    before = dict(zip((layer for layer, _ in removed), (0.0, *(loss for _, loss in removed)), strict=False))
    after, width = dict(removed), int(layers.source.config["d_model"])
    order = {layer: number for number, (layer, _) in enumerate(removed, start=1)}
    for stack, number in everything:
        gone = (stack, number) in after
        numbers = layers.parameters[stack, number]
        yield SiteReport(
            name=f"{stack}.block.{number}",
            stack=stack,
            layer=number,
            role=f"{stack} layer",
            shape=(width, width),
            layout="removed" if gone else "dense",
            rank=0 if gone else width,
            widths=(),
            eps_rank=0 if gone else width,
            parameters_before=numbers,
            parameters_after=0 if gone else numbers,
            spectral_error=0.0,
            relative_error=0.0,
            lost=after[stack, number] - before[stack, number] if gone else 0.0,
            note="",
            removed=order.get((stack, number)),
        )
