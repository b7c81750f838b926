"""Chronos-2 with factored sites and heads of other widths, and the pipeline that loads it."""

from __future__ import annotations

from typing import Any

from chronos.chronos2.config import Chronos2CoreConfig
from chronos.chronos2.model import Chronos2Model
from chronos.chronos2.pipeline import Chronos2Pipeline
from transformers import AutoConfig

from rankscope.lowrank.swap import factor_model


class LowRankChronos2Config(Chronos2CoreConfig):
    """`Chronos2CoreConfig` plus ``rankscope``: the factored modules and their ranks."""

    model_type = "rankscope-chronos2"

    def __init__(self, rankscope: dict[str, Any] | None = None, **kwargs: Any) -> None:
        self.rankscope = rankscope
        super().__init__(**kwargs)


class LowRankChronos2Model(Chronos2Model):
    """The stock Chronos-2 with the modules that ``config.rankscope`` names stored as two thin matrices."""

    config_class = LowRankChronos2Config  # type: ignore[assignment]

    def __init__(self, config: LowRankChronos2Config) -> None:
        super().__init__(config)
        factor_model(self, config)


class LowRankChronos2Pipeline(Chronos2Pipeline):
    """`Chronos2Pipeline` over a `LowRankChronos2Model`; chronos finds it by name in its registry."""

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> LowRankChronos2Pipeline:
        """Load a compressed folder or hub id; arguments as for `BaseChronosPipeline.from_pretrained`."""
        # The stock method takes the class from chronos' own package only.
        return cls(model=LowRankChronos2Model.from_pretrained(pretrained_model_name_or_path, *args, **kwargs))


AutoConfig.register(LowRankChronos2Config.model_type, LowRankChronos2Config, exist_ok=True)
