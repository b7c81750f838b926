"""T5 with factored sites: Chronos-T5 and text models."""

from __future__ import annotations

from typing import Any

from transformers import AutoConfig, AutoModelForSeq2SeqLM, T5Config, T5ForConditionalGeneration

from rankscope.lowrank.swap import factor_model


class LowRankT5Config(T5Config):
    """`T5Config` plus ``rankscope``: the factored modules and their ranks."""

    model_type = "rankscope-t5"

    def __init__(self, rankscope: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**{"rankscope": rankscope, **kwargs})


class LowRankT5ForConditionalGeneration(T5ForConditionalGeneration):
    """The stock T5 with the modules that ``config.rankscope`` names stored as two thin matrices."""

    config_class = LowRankT5Config

    def __init__(self, config: LowRankT5Config) -> None:
        super().__init__(config)
        factor_model(self, config)


AutoConfig.register(LowRankT5Config.model_type, LowRankT5Config, exist_ok=True)
AutoModelForSeq2SeqLM.register(LowRankT5Config, LowRankT5ForConditionalGeneration, exist_ok=True)
