"""Generate training blocks in worker processes, fast enough for a GPU: whole arrays through shared memory."""

from __future__ import annotations

import ctypes
import multiprocessing as mp
import os
import queue
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from rankscope.train.config import PretrainConfig
from rankscope.train.data.groups import group_batch
from rankscope.train.data.kernelsynth import kernel_bank
from rankscope.train.stream import SPARE

ROWS = 1024
"""Series of a block: the generator is several times faster at this size than at a training batch's."""
UNIT = 64
"""No group of series crosses a multiple of this many rows."""
SLOTS = 48
"""Blocks that wait to be trained on."""
CURRICULUM = 1000
"""Resolution of the curriculum, which workers follow by the share of training that is done."""


@dataclass(frozen=True)
class Block:
    """Series of a block: ``values`` hold context and horizon, NaN where missing; ``leaders`` name groups by row."""

    values: Float[np.ndarray, "series time"]
    leaders: Int[np.ndarray, " series"]
    known: Bool[np.ndarray, " series"]


class Feed:
    """Shared memory between the workers and the process that trains; passed to both when they start."""

    def __init__(self, configs: Sequence[PretrainConfig]) -> None:
        """Make room for blocks of any of these runs, which take turns."""
        context = mp.get_context("spawn")
        self.configs = list(configs)
        self.widths = [config.context + config.horizon for config in configs]
        self.floats = context.RawArray(ctypes.c_float, SLOTS * ROWS * max(self.widths))
        self.leaders = context.RawArray(ctypes.c_int32, SLOTS * ROWS)
        self.known = context.RawArray(ctypes.c_bool, SLOTS * ROWS)
        self.which, self.share = context.Value("i", 0), context.Value("d", 0.0)
        self.free: Any = context.Queue()
        self.ready: Any = context.Queue()
        for slot in range(SLOTS):
            self.free.put(slot)

    def turn_to(self, which: int, share: float) -> None:
        """Ask for blocks of ``configs[which]``, of whose training ``share`` is done."""
        self.which.value, self.share.value = which, share

    def next(self, which: int) -> Block:
        """Return a block of ``configs[which]``; those of another run are dropped."""
        while True:
            try:
                slot, made_for = self.ready.get(timeout=120)
            except queue.Empty:
                raise RuntimeError("no block came within two minutes: did the workers end?") from None
            block = None
            if made_for == which:
                seen = self.view(slot, self.widths[which])
                block = Block(seen.values.copy(), seen.leaders.copy(), seen.known.copy())
            self.free.put(slot)
            if block is not None:
                return block

    def view(self, slot: int, width: int) -> Block:
        """Return a slot's memory."""
        whole = np.frombuffer(self.floats, np.float32).reshape(SLOTS, -1)[slot, : ROWS * width]
        rows = slice(slot * ROWS, (slot + 1) * ROWS)
        leaders, known = np.frombuffer(self.leaders, np.int32)[rows], np.frombuffer(self.known, bool)[rows]
        return Block(whole.reshape(ROWS, width), leaders, known)


def start_workers(feed: Feed, workers: int, kernels: int) -> list[Any]:
    """Start processes that fill the feed, each with a KernelSynth bank of its own of ``kernels`` kernels."""
    context = mp.get_context("spawn")
    started = [context.Process(target=_work, args=(number, feed, kernels), daemon=True) for number in range(workers)]
    for worker in started:
        worker.start()
    return started


def _work(number: int, feed: Feed, kernels: int) -> None:
    os.nice(5)
    first = feed.configs[0]
    bank = kernel_bank(first.seed * 1000 + number, kernels, first.bank_draws, max(feed.widths) + SPARE)
    rng = np.random.default_rng([first.seed, 9, number])
    while True:
        slot, which = feed.free.get(), feed.which.value
        made = draw(rng, ROWS, feed.configs[which], bank, feed.share.value)
        block = feed.view(slot, feed.widths[which])
        for kept, values in zip((block.values, block.leaders, block.known), vars(made).values(), strict=True):
            kept[:] = values
        feed.ready.put((slot, which))


def draw(rng: np.random.Generator, rows: int, config: PretrainConfig, bank: Any, share: float) -> Block:
    """Draw ``rows`` series of a run of whose training ``share`` is done."""
    falls = config.mixture.curriculum / config.max_steps  # share of training that the curriculum takes
    mixture = replace(config.mixture, curriculum=CURRICULUM if falls else 0)
    step = int(CURRICULUM * share / falls) if falls else 0
    sizes = (rows, UNIT, config.context, config.horizon)
    history, future, leaders, known = group_batch(rng, *sizes, mixture, bank, None, step)
    return Block(np.concatenate([history, future], axis=1), leaders.astype(np.int32), known)
