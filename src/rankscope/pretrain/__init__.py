"""Train Chronos-T5 and Chronos-Bolt models from scratch on generated series."""

from rankscope.pretrain.config import ModelShape, PretrainConfig, config_from_dict, read_config
from rankscope.pretrain.trainer import PretrainReport, pretrain

__all__ = ["ModelShape", "PretrainConfig", "PretrainReport", "config_from_dict", "pretrain", "read_config"]
