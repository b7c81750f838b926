"""Pretraining and fine-tuning of Chronos-T5, Chronos-Bolt and Chronos-2; names are imported lazily."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankscope.lazy import attach

if TYPE_CHECKING:
    from rankscope.train.config import ModelShape, PretrainConfig, config_from_dict, read_config
    from rankscope.train.data.shard_writer import write_shards
    from rankscope.train.data.shards import open_shards
    from rankscope.train.data.synthesis import Synthesis
    from rankscope.train.spectra import read_spectra
    from rankscope.train.starts import continue_from, learn_from
    from rankscope.train.trainer import PretrainReport, pretrain

_HOMES = {
    "ModelShape": ".config",
    "PretrainConfig": ".config",
    "config_from_dict": ".config",
    "read_config": ".config",
    "PretrainReport": ".trainer",
    "pretrain": ".trainer",
    "continue_from": ".starts",
    "learn_from": ".starts",
    "read_spectra": ".spectra",
    "Synthesis": ".data.synthesis",
    "write_shards": ".data.shard_writer",
    "open_shards": ".data.shards",
}
"""Name → module; lazy, since processes that write shards must not import torch."""

__all__ = [
    "ModelShape",
    "PretrainConfig",
    "PretrainReport",
    "Synthesis",
    "config_from_dict",
    "continue_from",
    "learn_from",
    "open_shards",
    "pretrain",
    "read_config",
    "read_spectra",
    "write_shards",
]

__getattr__, __dir__ = attach(__name__, _HOMES)
