"""The series of a run, opened once: by the main process first, which draws what all of them read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Float

from rankscope.engine.progress import Progress
from rankscope.io.atomic import atomic_file
from rankscope.train import processes
from rankscope.train.blocks import Blocks
from rankscope.train.config import PretrainConfig
from rankscope.train.data.kernels import kernel_bank
from rankscope.train.data.shards import open_shards
from rankscope.train.stream import SeriesStream

BANK = "bank.npy"
SPARE = 64
"""Values that a kernel of the bank is longer than a window, so that windows of it differ."""


def open_corpus(config: PretrainConfig, run: Path, skip_damaged: bool, progress: Progress) -> Blocks:
    """Open the series of a run.

    Args:
        config: the run.
        run: its folder, which keeps the KernelSynth bank.
        skip_damaged: whether damaged files of a shard folder are left out.
        progress: told about the drawing of the bank, and how many damaged shards were left out.

    Returns:
        A map-style data set whose rows do not depend on the number of processes.

    Raises:
        DataError: the shard folder is missing, empty or damaged, or the user's files cannot be used.
    """
    bank, shards = None, None
    if config.shards:
        shards = open_shards(config.shards, skip_damaged=skip_damaged)
        if shards.damaged:
            progress(0, 0, f"left out {len(shards.damaged)} damaged shards")
    else:
        bank = kernel_series(config, run, progress)
    return Blocks(
        SeriesStream(config, bank, shards, processes=processes.count()), config.batch_size * processes.count()
    )


def kernel_series(config: PretrainConfig, run: Path, progress: Progress) -> Float[np.ndarray, "series time"] | None:
    """Draw the KernelSynth bank, or read the one that the run has drawn before; None where none is asked for."""
    if config.bank_kernels < 1 or config.mixture.kernel_share <= 0:
        return None
    file = run / BANK

    def draw() -> None:
        if not file.exists():
            length = config.context + config.horizon + SPARE
            bank = kernel_bank(config.seed, config.bank_kernels, config.bank_draws, length, progress)
            with atomic_file(file) as path:
                np.save(path, bank)

    processes.on_main(draw)
    return np.load(file, allow_pickle=False)
