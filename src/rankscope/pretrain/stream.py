"""Batches as a function of the seed and their index: a stopped run goes on with the very series it would have seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch.utils.data import Dataset

from rankscope.pretrain.config import PretrainConfig
from rankscope.pretrain.data.mixture import corpus_batch

FARTHEST = 20.0
"""Targets further from the history's mean than this many of its deviations teach nothing and are left out."""


class SeriesStream(Dataset):
    """Endless-looking map-style data set whose batches are generated when they are asked for.

    ``torch.utils.data`` hands a whole batch of indices to `__getitems__`; the first of them seeds the batch, so the
    stream needs no state, any worker can make any batch, and skipping forward is free.
    """

    def __init__(self, config: PretrainConfig, bank: Float[np.ndarray, "series time"] | None) -> None:
        self.config = config
        self.bank = bank

    def __len__(self) -> int:
        config = self.config
        return config.max_steps * config.batch_size * config.accumulation * 1024

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Generate the series of one batch.

        Args:
            indices: positions in the stream; the batch is a function of the first one and their number.

        Returns:
            One dict per series with ``context`` (time,) and ``target`` (horizon,) in float32.
        """
        config = self.config
        rng = np.random.default_rng([config.seed, 5, indices[0]])
        history, future = corpus_batch(rng, len(indices), config.context, config.horizon, config.mixture, self.bank)
        return [
            {"context": torch.from_numpy(h), "target": torch.from_numpy(f)}
            for h, f in zip(history, future, strict=True)
        ]


class BoltCollator:
    """Stack series for Chronos-Bolt's own forward pass, which scales and scores them."""

    def __call__(self, rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """Return ``context`` (series, time) and ``target`` (series, horizon), NaN where nothing is to be learnt."""
        context = torch.stack([row["context"] for row in rows])
        target = torch.stack([row["target"] for row in rows])
        seen = ~torch.isnan(context)
        count = seen.sum(dim=1, keepdim=True).clamp(min=1)
        filled = torch.where(seen, context, torch.zeros(()))
        mean = filled.sum(dim=1, keepdim=True) / count
        deviation = (torch.where(seen, context - mean, torch.zeros(())).square().sum(1, True) / count).sqrt()
        absurd = (target - mean).abs() > FARTHEST * deviation
        return {"context": context, "target": target.masked_fill(absurd, torch.nan)}


class TokenCollator:
    """Tokenise series for Chronos-T5 with chronos' own tokenizer: context ids, mask, labels ending in EOS."""

    def __init__(self, chronos_config: dict[str, Any]) -> None:
        from chronos import ChronosConfig

        self.bins = ChronosConfig(**chronos_config).create_tokenizer()

    def __call__(self, rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """Return ``input_ids``, ``attention_mask`` (series, time + 1) and ``labels`` (series, horizon + 1)."""
        context = torch.stack([row["context"] for row in rows])
        target = torch.stack([row["target"] for row in rows])
        ids, mask, scale = self.bins.context_input_transform(context)
        labels, label_mask = self.bins.label_input_transform(target, scale)
        labels[~label_mask] = -100
        return {"input_ids": ids, "attention_mask": mask.long(), "labels": labels}
