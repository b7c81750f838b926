"""Training data stream, deterministic for a seed and index, so that resumed runs see the same series."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch.utils.data import Dataset

from rankscope.engine import Progress
from rankscope.errors import DataError, one_line
from rankscope.io.atomic import atomic_file
from rankscope.train import processes
from rankscope.train.config import PretrainConfig
from rankscope.train.data.groups import group_batch
from rankscope.train.data.kernelsynth import kernel_bank
from rankscope.train.data.mixture import augment, history_lengths
from rankscope.train.data.pool import random_window, read_pool
from rankscope.train.data.shards import Shards, open_shards

FARTHEST = 20.0
"""Targets farther than this many standard deviations from the history's mean are masked."""
BLOCK = 64
"""Most series that are generated in one go: more gain little speed, fewer would lose some."""
LEAST_BLOCK = 16
"""A batch that no number above this divides is generated in one go."""
BANK = "bank.npy"
SPARE = 64
"""Values that a kernel of the bank is longer than a window, so that windows of it differ."""


class SeriesStream(Dataset):
    """Map-style data set that generates batches, or reads them from shards, on demand.

    ``torch.utils.data`` hands a whole batch of indices to `__getitems__`; the first of them seeds the batch, so the
    stream needs no state, any worker can make any batch, and skipping forward is free. accelerate deals whole batches
    to the processes in turn, so that each makes batches that no other one does, and together they make what one
    process with all the batches would.
    """

    def __init__(
        self,
        config: PretrainConfig,
        bank: Float[np.ndarray, "series time"] | None,
        shards: Shards | None = None,
        processes: int = 1,
    ) -> None:
        """Open the data sources of the config that are not given.

        Args:
            config: the run.
            bank: KernelSynth series to draw from; unused with shards.
            shards: opened ``config.shards``.
            processes: how many share a batch.

        Raises:
            DataError: the shards or the files cannot be used, or hold series too short for the horizon.
        """
        self.config = config
        self.bank = bank
        self.batch = config.batch_size * processes
        self.shards = open_shards(config.shards) if config.shards and shards is None else shards
        if self.shards is not None:
            _check_lengths(self.shards, config)
        files = config.mixture.files if self.shards is None else ()
        mixture = config.mixture
        self.pool = read_pool(files, _least(config), mixture.columns, mixture.freq) if files else None

    @property
    def skipped(self) -> int:
        """Number of skipped damaged shard files."""
        return 0 if self.shards is None else len(self.shards.damaged)

    def __len__(self) -> int:
        config = self.config
        return config.max_steps * config.batch_size * config.accumulation * 1024

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Generate or read the series of one batch.

        Args:
            indices: positions in the stream, of one batch or a part of it; the series are a function of the first one
                and their number, the lengths of histories and targets of the batch.

        Returns:
            One dict per series with ``context`` (time,) and ``target`` (horizon,) in float32; the contexts of all
            are as long as the longest history of the batch.
        """
        config = self.config
        rng, n = np.random.default_rng([config.seed, 5, indices[0]]), len(indices)
        begin = indices[0] // self.batch * self.batch
        shared = rng if begin == indices[0] else np.random.default_rng([config.seed, 5, begin])
        leaders, known = np.arange(n), np.zeros(n, dtype=bool)
        step = begin // (self.batch * config.accumulation)
        patch = config.model.patch_size if config.family_record.strategy == "continuous" else 1
        if self.shards is None:
            context = config.mixture.draw_context(shared, config.context, step, patch)
        asked = _draw_asked(shared, config.horizon) if config.family_record.grouped else config.horizon
        if self.shards is None:
            unit = math.gcd(n, config.batch_size)  # no group is torn between two batches
            sources = (config.mixture, self.bank, self.pool, step)
            history, future, leaders, known = group_batch(rng, n, unit, context, config.horizon, *sources)
        else:
            history, future = stored_batch(rng, n, config, self.shards)
        if config.family_record.grouped:
            return _group_rows(asked, history, future, leaders, known, indices[0], patch)
        pairs = zip(history, future, strict=True)
        return [{"context": torch.from_numpy(h), "target": torch.from_numpy(f)} for h, f in pairs]


def _draw_asked(rng: np.random.Generator, horizon: int) -> int:
    """Steps that a batch is asked for: half of the batches the whole horizon, the others any shorter one."""
    return horizon if rng.random() < 0.5 else int(rng.integers(1, horizon + 1))


def _group_rows(
    steps: int,
    history: Float[np.ndarray, "series context"],
    future: Float[np.ndarray, "series horizon"],
    leaders: Int[np.ndarray, " series"],
    known: Bool[np.ndarray, " series"],
    begin: int,
    patch: int,
) -> list[dict[str, Any]]:
    """Rows of `GroupCollator` that are asked for so many steps."""
    future = future[:, : -(-steps // patch) * patch]
    given = np.where(known[:, None] & (np.arange(future.shape[1]) < steps), future, np.float32(np.nan))
    return [
        {
            "context": torch.from_numpy(h),
            "target": torch.from_numpy(f),
            "known": torch.from_numpy(k),
            "group": begin + i,
        }
        for h, f, k, i in zip(history, future, given, leaders.tolist(), strict=True)
    ]


def stored_batch(
    rng: np.random.Generator, n: int, config: PretrainConfig, shards: Shards
) -> tuple[Float[np.ndarray, "series context"], Float[np.ndarray, "series horizon"]]:
    """Draw random windows of random series of a folder of shards, with the augmentation of synthetic series.

    Args:
        rng: source of all randomness.
        n: number of examples.
        config: run config; only the augmentation settings of its mixture apply.
        shards: the series.

    Returns:
        Histories (series, context) and futures (series, horizon) in float32, NaN where a value is missing.
    """
    length = config.context + config.horizon
    series = [random_window(rng, values, length, _least(config)) for values in shards.draw(rng, n)]
    whole = np.stack(series)
    kept = history_lengths(rng, n, config.context, config.mixture)
    return augment(rng, whole[:, : config.context], whole[:, config.context :], kept, config.mixture)


def _least(config: PretrainConfig) -> int:
    return config.horizon + min(config.mixture.shortest, config.context)


def _check_lengths(shards: Shards, config: PretrainConfig) -> None:
    if shards.shortest < _least(config):
        raise DataError(
            f"{shards.folder} holds series of {shards.shortest} values: horizon {config.horizon} and mixture.shortest "
            f"{config.mixture.shortest} ask for at least {_least(config)}."
        )


def left_padded(rows: Sequence[Mapping[str, torch.Tensor]]) -> Float[torch.Tensor, "series context"]:
    """Stack the histories ``context``, left-padded with NaN."""
    longest = max(len(row["context"]) for row in rows)
    pad = torch.nn.functional.pad
    return torch.stack([pad(one, (longest - len(one), 0), value=torch.nan) for one in (r["context"] for r in rows)])


class BoltCollator:
    """Stack series for Chronos-Bolt's own forward pass, which scales and scores them."""

    def __call__(self, rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """Return ``context`` (series, time) and ``target`` (series, horizon), NaN where nothing is to be learnt."""
        context = left_padded(rows)
        target = torch.stack([row["target"] for row in rows])
        seen = ~torch.isnan(context)
        count = seen.sum(dim=1, keepdim=True).clamp(min=1)
        filled = torch.where(seen, context, torch.zeros(()))
        mean = filled.sum(dim=1, keepdim=True) / count
        deviation = (torch.where(seen, context - mean, torch.zeros(())).square().sum(1, True) / count).sqrt()
        absurd = (target - mean).abs() > FARTHEST * deviation
        return {"context": context, "target": target.masked_fill(absurd, torch.nan)}


class ScaledCollator:
    """Histories as Chronos-Bolt's instance norm leaves them, so that what it emits for them is scaled likewise.

    A constant series, whose scale would be arbitrary, becomes zeros; one without an observation is not asked for.
    """

    def __init__(self) -> None:
        self.stack = BoltCollator()

    def __call__(self, rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """Return ``context`` (series, time) and ``target`` (series, horizon), NaN where nothing was observed or is to
        be learnt, and ``asked`` (series,), 0 or 1; where the rows have a teacher's ``answer`` (quantiles, horizon), it
        is scaled likewise, NaN where it is absurd.
        """
        batch = self.stack(rows)
        context = batch["context"]
        seen = ~context.isnan()
        mean = context.nanmean(dim=1, keepdim=True).nan_to_num()
        spread = (context - mean).square().nanmean(dim=1, keepdim=True).sqrt().nan_to_num()
        scale = torch.where(spread > 0, spread, 1.0)
        target = (batch["target"] - mean) / scale
        scaled = {"context": (context - mean) / scale, "target": target, "asked": seen.any(dim=1).float()}
        if "answer" in rows[0]:
            answer = (torch.stack([row["answer"] for row in rows]) - mean[..., None]) / scale[..., None]
            scaled["answer"] = answer.masked_fill(answer.abs() > FARTHEST, torch.nan)
        return scaled


class GroupCollator:
    """Stack series for Chronos-2's own forward pass, which scales and scores them."""

    def __init__(self, patch: int) -> None:
        """Answer the targets in patches of ``patch`` values."""
        self.patch = patch

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return what ``Chronos2Model.forward`` takes; a known covariate's own future is not a target."""
        target, known = (torch.stack([row[name] for row in rows]) for name in ("target", "known"))
        return {
            "context": left_padded(rows),
            "group_ids": torch.tensor([row["group"] for row in rows]),
            "future_target": target.masked_fill(~known.isnan(), torch.nan),
            "future_covariates": known,
            "num_output_patches": -(-target.shape[1] // self.patch),
        }


class TokenCollator:
    """Tokenise series for Chronos-T5 with chronos' own tokenizer: context ids, mask, labels ending in EOS."""

    def __init__(self, chronos_config: dict[str, Any]) -> None:
        from chronos import ChronosConfig

        self.bins = ChronosConfig(**chronos_config).create_tokenizer()

    def __call__(self, rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """Return ``input_ids``, ``attention_mask`` (series, time + 1) and ``labels`` (series, horizon + 1)."""
        context = left_padded(rows)
        target = torch.stack([row["target"] for row in rows])
        ids, mask, scale = self.bins.context_input_transform(context)
        labels, label_mask = self.bins.label_input_transform(target, scale)
        labels[~label_mask] = -100
        return {"input_ids": ids, "attention_mask": mask.long(), "labels": labels}


class Blocks(Dataset):
    """A stream read in whole blocks of fixed size, by which a batch can be divided.

    A generated batch is a function of its first index and its length, so two processes with half a batch each would
    see other series than one process with all of it. Read by whole blocks every index holds the same series however
    the indices are dealt out. A process generates series in vain only where its batch is not a multiple of the block.
    """

    def __init__(self, stream: Any, batch: int) -> None:
        """Wrap ``stream``; ``batch`` is the number of series that all processes together take at a time."""
        self.stream = stream
        even = (size for size in range(min(BLOCK, batch), LEAST_BLOCK, -1) if batch % size == 0)
        self.size = next(even, batch)

    def __len__(self) -> int:
        return len(self.stream)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Return the rows at ``indices``, generating every block that holds one of them once."""
        numbers = dict.fromkeys(index // self.size for index in indices)
        blocks = {n: self.stream.__getitems__(range(n * self.size, (n + 1) * self.size)) for n in numbers}
        return [blocks[index // self.size][index % self.size] for index in indices]


def open_corpus(config: PretrainConfig, run: Path, skip_damaged: bool, progress: Progress) -> Blocks:
    """Open the series of a run.

    Args:
        config: the run.
        run: its folder, which keeps the KernelSynth bank.
        skip_damaged: whether damaged files of a shard folder are left out.
        progress: called with the progress of drawing the bank and the number of damaged shards left out.

    Returns:
        A map-style data set whose rows do not depend on the number of processes.

    Raises:
        DataError: the shard folder is missing, empty or damaged, the bank is damaged, or the user's files cannot be
            used.
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
    """Generate the KernelSynth bank, or read the run's existing one; None if not needed.

    Raises:
        DataError: the existing one is damaged.
    """
    if config.bank_kernels < 1 or config.mixture.kernel_share <= 0:
        return None
    file, length = run / BANK, config.context + config.horizon + SPARE

    def draw() -> None:
        if not file.exists():
            bank = kernel_bank(config.seed, config.bank_kernels, config.bank_draws, length, progress)
            with atomic_file(file) as path:
                np.save(path, bank)

    processes.on_main(draw)
    return _read_bank(file, (config.bank_kernels * config.bank_draws, length))


def _read_bank(file: Path, shape: tuple[int, int]) -> Float[np.ndarray, "series time"]:
    try:
        with file.open("rb") as stream:
            bank = np.lib.format.read_array(stream, allow_pickle=False)
            if bank.dtype != np.float32 or bank.shape != shape:
                raise ValueError(f"{bank.dtype} of shape {bank.shape}, not float32 of {shape}")
    except (OSError, ValueError, EOFError, MemoryError) as error:
        raise DataError(
            f"{file} holds no series of this run ({one_line(error)[:120]}). Delete the file, and it is made anew."
        ) from error
    return bank
