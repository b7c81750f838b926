"""The loop that draws sample paths token by token: plain on a CPU, one captured graph per step on a GPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from math import ceil

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rankscope.errors import CheckpointError
from rankscope.forecast.batches import lengths_of
from rankscope.forecast.network import masked
from rankscope.forecast.sampling import Sampler
from rankscope.forecast.t5 import GROWTH, KeyValues, Past, T5Network

GRAIN = 64
"""On a GPU contexts are padded to multiples of so many tokens, so that few graphs serve all."""


class NotFiniteError(CheckpointError):
    """Logits were NaN or infinite: the weights, or what they give, do not fit the number format."""


@dataclass(frozen=True)
class Batch:
    """Series that are decoded side by side.

    Attributes:
        context: keys and values of every cross-attention.
        mask: what of the context is shut out, (series, 1, 1, length), or None.
        horizon: tokens per path.
        paths: sample paths per series.
        sampler: how tokens are drawn.
    """

    context: list[KeyValues]
    mask: Tensor | None
    horizon: int
    paths: int
    sampler: Sampler

    @property
    def rows(self) -> int:
        """Sample paths of all series."""
        return len(self.context[0].keys) * self.paths


@torch.inference_mode()
def draw(
    network: T5Network,
    tokens: Int[Tensor, "series length"],
    kept: Bool[Tensor, "series length"],
    horizon: int,
    paths: int,
    sampler: Sampler,
    graphs: Graphs | None = None,
) -> Int[Tensor, "series paths horizon"]:
    """Draw sample paths of series that end together.

    Args:
        network: the model.
        tokens: padded on the left; the longest first.
        kept: tokens that are attended to; padding and missing values are not.
        horizon: tokens per path.
        paths: sample paths per series.
        sampler: how tokens are drawn.
        graphs: where captured steps are kept; None runs every step as it comes.

    Raises:
        NotFiniteError: logits are not finite.
    """
    length = int(lengths_of(kept).max())
    tokens, kept = tokens[:, -length:], kept[:, -length:]
    if graphs is not None:
        beside = (-length % GRAIN, 0)
        tokens, kept = nn.functional.pad(tokens, beside), nn.functional.pad(kept, beside, value=False)
    context = network.remember(tokens, kept)
    mask = None
    if graphs is not None or not bool(kept.all()):
        mask = masked(kept, context[0].keys.dtype)[:, None, None, :]
    batch = Batch(context, mask, horizon, paths, sampler)
    drawn, finite = _plain(network, batch) if graphs is None else graphs.run(network, batch)
    if not bool(finite):
        kind = str(network.dtype).removeprefix("torch.")
        raise NotFiniteError(
            f"the model's logits are not finite in {kind}: "
            + ("its weights are damaged." if kind in ("float32", "float64") else "use float32, or bfloat16.")
        )
    return drawn.unflatten(0, (-1, paths))


@cache
def _settle_heap() -> None:
    """Let the C library see that a block is freed which is as large as it learns from.

    glibc gives what is freed back to the system until it has seen blocks of that size come and go, and every buffer of
    a step then costs the first touch of fresh pages, which takes longer than the step. Nothing of the block is touched.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)


def _plain(network: T5Network, batch: Batch) -> tuple[Int[Tensor, "rows horizon"], Bool[Tensor, ""]]:
    """Draw step by step, every step over little more than the past; return also if all logits were finite."""
    _settle_heap()
    context, mask, horizon, paths, sampler = batch.context, batch.mask, batch.horizon, batch.paths, batch.sampler
    device, dtype = context[0].keys.device, context[0].keys.dtype
    past = network.room(batch.rows, horizon)
    bias = _bias(network, horizon, dtype)
    drawn = torch.empty(batch.rows, horizon, dtype=torch.long, device=device)
    for own in past:
        own.begin(min(GROWTH, horizon))
    # before the first token all paths of a series are the same
    first = [KeyValues(own.keys[::paths], own.values[::paths]) for own in past]
    start = torch.full((len(context[0].keys),), network.start, device=device)
    logits = network.step(start, 0, first, context, bias[:, 0, :1], mask)
    for own in past:
        for part in (own.keys, own.values):
            part[:, :, 0] = part[::paths, :, 0].repeat_interleave(paths, dim=0)
    total = logits.sum(dtype=torch.float32)  # not finite if one of them is not
    drawn[:, 0] = sampler(logits.repeat_interleave(paths, dim=0))
    for at in range(1, horizon):
        room = min(horizon, ceil((at + 1) / GROWTH) * GROWTH)
        for own in past:
            own.grow(room)
        # torch makes and keeps a program for every shape of narrow products, so these take all there is room for
        tokens = at + 1 if dtype == torch.float32 else room
        logits = network.step(drawn[:, at - 1], at, past, context, bias[:, at, :tokens], mask)
        total += logits[:, 0].sum(dtype=torch.float32)
        drawn[:, at] = sampler(logits)
    network.give_back(past)
    return drawn, total.isfinite()


def _bias(network: T5Network, horizon: int, dtype: torch.dtype) -> Float[Tensor, "heads horizon horizon"]:
    """Position bias of every query and key of the horizon; what is to come is shut out."""
    bias = network.bias(horizon).to(dtype)
    to_come = torch.ones(horizon, horizon, dtype=torch.bool, device=bias.device).triu(1)
    return bias.masked_fill(to_come, torch.finfo(dtype).min)


@dataclass
class Step:
    """One step in which no shape depends on the position, over buffers that stay where they are.

    Attributes:
        network: the model.
        context: keys and values of every cross-attention, copied in for every batch.
        mask: likewise.
        past: keys and values of every self-attention.
        bias: position bias of every query and key of the horizon, what is to come shut out.
        drawn: tokens so far, (rows, horizon).
        last: the newest token of every row.
        at: position of the step.
        finite: whether all logits were.
        sampler: how tokens are drawn.
    """

    network: T5Network
    context: list[KeyValues]
    mask: Tensor
    past: list[Past]
    bias: Tensor
    drawn: Tensor
    last: Tensor
    at: Tensor
    finite: Tensor
    sampler: Sampler

    @classmethod
    def of(cls, network: T5Network, batch: Batch) -> Step:
        """Buffers for batches of one shape."""
        assert batch.mask is not None
        keys = batch.context[0].keys
        start = torch.zeros(batch.rows, dtype=torch.long, device=keys.device)
        return cls(
            network,
            [KeyValues(one.keys.clone(), one.values.clone()) for one in batch.context],
            batch.mask.clone(),
            network.room(batch.rows, batch.horizon),
            _bias(network, batch.horizon, keys.dtype),
            start.new_zeros(batch.rows, batch.horizon),
            start,
            start.new_zeros(1),
            torch.ones((), dtype=torch.bool, device=keys.device),
            batch.sampler,
        )

    def begin(self, batch: Batch) -> None:
        """Take a batch."""
        assert batch.mask is not None
        for own, new in zip(self.context, batch.context, strict=True):
            own.keys.copy_(new.keys)
            own.values.copy_(new.values)
        self.mask.copy_(batch.mask)
        for one in self.past:  # what is shut out must be finite all the same
            one.begin(batch.horizon)
        self.last.fill_(self.network.start)
        self.at.zero_()
        self.finite.fill_(True)

    def advance(self) -> None:
        """Draw one token per row."""
        bias = self.bias.index_select(1, self.at).squeeze(1)
        logits = self.network.step(self.last, self.at, self.past, self.context, bias, self.mask)
        self.finite.logical_and_(logits[:, :1].isfinite().all())
        self.last.copy_(self.sampler(logits))
        self.drawn.index_copy_(1, self.at, self.last.unsqueeze(1))
        self.at.add_(1)


@dataclass
class Graphs:
    """Captured steps by shape: a GPU replays one without a word from Python.

    Attributes:
        capture: whether steps are captured; without, they run as they are written, on any device.
        most: steps that are kept, the newest.
    """

    capture: bool = True
    most: int = 8
    known: dict[tuple[object, ...], tuple[Step, torch.cuda.CUDAGraph | None]] = field(default_factory=dict)

    def run(self, network: T5Network, batch: Batch) -> tuple[Int[Tensor, "rows horizon"], Bool[Tensor, ""]]:
        """Draw a batch, whose context is masked; return also if all logits were finite."""
        shape = tuple(batch.context[0].keys.shape)
        key = (id(network), shape, batch.horizon, batch.paths, batch.sampler)
        if key not in self.known:
            while len(self.known) >= self.most:
                self.known.pop(next(iter(self.known)))
            step = Step.of(network, batch)
            self.known[key] = (step, _captured(step, batch) if self.capture else None)
        step, graph = self.known[key]
        step.begin(batch)
        for _ in range(batch.horizon):
            step.advance() if graph is None else graph.replay()
        return step.drawn.clone(), step.finite.clone()


def _captured(step: Step, batch: Batch) -> torch.cuda.CUDAGraph:
    """Capture a step, after the few runs on a stream of their own that torch asks for."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step.begin(batch)
        for _ in range(min(3, batch.horizon)):
            step.advance()
    torch.cuda.current_stream().wait_stream(side)
    step.begin(batch)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step.advance()
    return graph


def bytes_per_series(network: T5Network, length: int, horizon: int, paths: int) -> int:
    """Bytes that a series takes while it is decoded: its context's and its paths' keys and values, and logits."""
    size, cross, own = network.cached_numbers
    return size * (cross * length + paths * own * horizon) + paths * 4 * 4 * network.vocabulary
