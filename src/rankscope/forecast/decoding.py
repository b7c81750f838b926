"""Autoregressive decoding of sample paths: eager on a CPU, CUDA graphs on a GPU."""

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
"""On a GPU, contexts are padded to a multiple of this many tokens, to limit the number of graphs."""


class NotFiniteError(CheckpointError):
    """Logits are NaN or infinite: damaged weights, or overflow of the dtype."""


@dataclass(frozen=True)
class Batch:
    """Batch of series to decode.

    Attributes:
        context: keys and values of every cross-attention layer.
        mask: additive mask of the context, (series, 1, 1, length), or None.
        horizon: tokens per path.
        paths: sample paths per series.
        sampler: token sampler.
    """

    context: list[KeyValues]
    mask: Tensor | None
    horizon: int
    paths: int
    sampler: Sampler

    @property
    def rows(self) -> int:
        """Number of sample paths of all series."""
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
    """Sample paths of right-aligned series.

    Args:
        network: the model.
        tokens: token ids, padded on the left, longest series first.
        kept: attention mask; False for padding and missing values.
        horizon: tokens per path.
        paths: sample paths per series.
        sampler: token sampler.
        graphs: CUDA-graph cache; None runs eagerly.

    Raises:
        NotFiniteError: logits are not finite.
    """
    length = int(lengths_of(kept).max())
    tokens, kept = tokens[:, -length:], kept[:, -length:]
    if graphs is not None:
        beside = (-length % GRAIN, 0)
        tokens, kept = nn.functional.pad(tokens, beside), nn.functional.pad(kept, beside, value=False)
    context = network.encode_context(tokens, kept)
    mask = None
    if graphs is not None or not bool(kept.all()):
        mask = masked(kept, context[0].keys.dtype)[:, None, None, :]
    batch = Batch(context, mask, horizon, paths, sampler)
    drawn, finite = _plain(network, batch) if graphs is None else graphs.run(network, batch)
    if not bool(finite):
        kind = str(network.dtype).removeprefix("torch.")
        raise NotFiniteError(
            f"logits are not finite in {kind}: "
            + ("use float32, or bfloat16." if kind == "float16" else "check the weights, which are damaged.")
        )
    return drawn.unflatten(0, (-1, paths))


@cache
def _raise_mmap_threshold() -> None:
    """Raise glibc's dynamic mmap threshold by freeing a large block.

    Otherwise glibc returns freed buffers to the system, and page faults of fresh buffers take longer than the decoding
    step itself. The block is never touched, so it costs no memory.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)


def _plain(network: T5Network, batch: Batch) -> tuple[Int[Tensor, "rows horizon"], Bool[Tensor, ""]]:
    """Decode eagerly, growing the cache with the past; also return whether all logits were finite."""
    _raise_mmap_threshold()
    context, mask, horizon, paths, sampler = batch.context, batch.mask, batch.horizon, batch.paths, batch.sampler
    device, dtype = context[0].keys.device, context[0].keys.dtype
    past = network.allocate(batch.rows, horizon)
    bias = _bias(network, horizon, dtype)
    drawn = torch.empty(batch.rows, horizon, dtype=torch.long, device=device)
    for own in past:
        own.begin(min(GROWTH, horizon))
    # before the first token, all paths of a series are identical
    first = [KeyValues(own.keys[::paths], own.values[::paths]) for own in past]
    start = torch.full((len(context[0].keys),), network.start, device=device)
    logits = network.step(start, 0, first, context, bias[:, 0, :1], mask)
    for own in past:
        for part in (own.keys, own.values):
            part[:, :, 0] = part[::paths, :, 0].repeat_interleave(paths, dim=0)
    total = logits.sum(dtype=torch.float32)  # non-finite if any logit is
    drawn[:, 0] = sampler(logits.repeat_interleave(paths, dim=0))
    for at in range(1, horizon):
        room = min(horizon, ceil((at + 1) / GROWTH) * GROWTH)
        for own in past:
            own.grow(room)
        # torch compiles and caches a kernel per shape of narrow matmuls, so always use the full capacity
        tokens = at + 1 if dtype == torch.float32 else room
        logits = network.step(drawn[:, at - 1], at, past, context, bias[:, at, :tokens], mask)
        total += logits[:, 0].sum(dtype=torch.float32)
        drawn[:, at] = sampler(logits)
    network.release(past)
    return drawn, total.isfinite()


def _bias(network: T5Network, horizon: int, dtype: torch.dtype) -> Float[Tensor, "heads horizon horizon"]:
    """Return the causal position bias of every query and key of the horizon."""
    bias = network.bias(horizon).to(dtype)
    to_come = torch.ones(horizon, horizon, dtype=torch.bool, device=bias.device).triu(1)
    return bias.masked_fill(to_come, torch.finfo(dtype).min)


@dataclass
class Step:
    """Decoding step with static shapes and buffers, for CUDA-graph capture.

    Attributes:
        network: the model.
        context: keys and values of every cross-attention layer, copied in per batch.
        mask: additive mask of the context, copied in per batch.
        past: key/value cache of every self-attention layer.
        bias: causal position bias of the horizon.
        drawn: sampled tokens, (rows, horizon).
        last: latest token of every row.
        at: position of the step.
        finite: True while all logits are finite.
        sampler: token sampler.
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
        """Allocate buffers for batches of this shape."""
        assert batch.mask is not None
        keys = batch.context[0].keys
        start = torch.zeros(batch.rows, dtype=torch.long, device=keys.device)
        return cls(
            network,
            [KeyValues(one.keys.clone(), one.values.clone()) for one in batch.context],
            batch.mask.clone(),
            network.allocate(batch.rows, batch.horizon),
            _bias(network, batch.horizon, keys.dtype),
            start.new_zeros(batch.rows, batch.horizon),
            start,
            start.new_zeros(1),
            torch.ones((), dtype=torch.bool, device=keys.device),
            batch.sampler,
        )

    def begin(self, batch: Batch) -> None:
        """Copy a batch into the buffers."""
        assert batch.mask is not None
        for own, new in zip(self.context, batch.context, strict=True):
            own.keys.copy_(new.keys)
            own.values.copy_(new.values)
        self.mask.copy_(batch.mask)
        for one in self.past:  # masked entries must be finite, too
            one.begin(batch.horizon)
        self.last.fill_(self.network.start)
        self.at.zero_()
        self.finite.fill_(True)

    def advance(self) -> None:
        """Sample one token per row."""
        bias = self.bias.index_select(1, self.at).squeeze(1)
        logits = self.network.step(self.last, self.at, self.past, self.context, bias, self.mask)
        self.finite.logical_and_(logits.sum(dtype=torch.float32).isfinite())
        self.last.copy_(self.sampler(logits))
        self.drawn.index_copy_(1, self.at, self.last.unsqueeze(1))
        self.at.add_(1)


@dataclass
class Graphs:
    """CUDA-graph cache keyed by shape.

    Attributes:
        capture: capture steps; if False, run them eagerly on any device.
        most: maximum number of cached graphs; the oldest are evicted.
    """

    capture: bool = True
    most: int = 8
    known: dict[tuple[object, ...], tuple[Step, torch.cuda.CUDAGraph | None]] = field(default_factory=dict)

    def run(self, network: T5Network, batch: Batch) -> tuple[Int[Tensor, "rows horizon"], Bool[Tensor, ""]]:
        """Decode a batch with a masked context; also return whether all logits were finite."""
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
    """Capture a step, after the warm-up runs on a side stream that torch requires."""
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
    """Estimate the bytes per series while decoding: keys and values of context and paths, and logits."""
    size, cross, own = network.cached_numbers
    return size * (cross * length + paths * own * horizon) + paths * 4 * 4 * network.vocabulary
