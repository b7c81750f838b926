"""Chronos-Bolt and Chronos-2 with the layouts of their config, and the pipelines that load them."""

from __future__ import annotations

import functools
from types import FunctionType
from typing import Any

import chronos.chronos2
import chronos.chronos_bolt
from chronos.chronos2.config import Chronos2CoreConfig
from chronos.chronos2.model import Chronos2Model
from chronos.chronos2.pipeline import Chronos2Pipeline
from chronos.chronos_bolt import ChronosBoltModelForForecasting, ChronosBoltPipeline
from transformers import AutoConfig, T5Config

from rankscope.lowrank.chronos2_stream import LAYERS
from rankscope.lowrank.models import factor_model


class LowRankChronos2Config(Chronos2CoreConfig):
    """`Chronos2CoreConfig` plus ``rankscope``: how each module is stored."""

    model_type = "rankscope-chronos2"

    def __init__(self, rankscope: dict[str, Any] | None = None, **kwargs: Any) -> None:
        self.rankscope = rankscope
        super().__init__(**kwargs)


class LowRankChronos2Model(Chronos2Model):
    """The stock Chronos-2 with its modules stored as ``config.rankscope`` says: in factors, narrower, in int8."""

    config_class = LowRankChronos2Config  # type: ignore[assignment]

    def __init__(self, config: LowRankChronos2Config) -> None:
        super().__init__(config)
        factor_model(self, config, LAYERS)
        self.model_dim = self.encoder.final_layer_norm.weight.shape[0]  # checked in every forecast


class LowRankChronos2Pipeline(Chronos2Pipeline):
    """`Chronos2Pipeline` over a `LowRankChronos2Model`; chronos finds it by name in its registry."""

    @functools.wraps(Chronos2Pipeline.fit, assigned=())  # its signature
    def fit(self, *args: Any, **kwargs: Any) -> LowRankChronos2Pipeline:
        """Fine-tune a copy, in its own layout; arguments as for `Chronos2Pipeline.fit`. Int8 layers are not trained."""
        stock = Chronos2Pipeline.fit  # builds its copy and its result by the names of the stock classes
        names = {**stock.__globals__, "Chronos2Model": type(self.model), "Chronos2Pipeline": type(self)}
        return FunctionType(stock.__code__, names, stock.__name__, stock.__defaults__)(self, *args, **kwargs)


AutoConfig.register(LowRankChronos2Config.model_type, LowRankChronos2Config, exist_ok=True)


class LowRankBoltConfig(T5Config):
    """Chronos-Bolt's config (a `T5Config`) plus ``rankscope``: how each module is stored."""

    model_type = "rankscope-bolt"

    def __init__(self, rankscope: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**{"rankscope": rankscope, **kwargs})


class LowRankBoltModel(ChronosBoltModelForForecasting):
    """The stock Chronos-Bolt with its modules stored as ``config.rankscope`` says: in factors, narrower, in int8."""

    config_class = LowRankBoltConfig

    def __init__(self, config: LowRankBoltConfig) -> None:
        super().__init__(config)
        factor_model(self, config)


class LowRankBoltPipeline(ChronosBoltPipeline):
    """`ChronosBoltPipeline` over a `LowRankBoltModel`; chronos finds it by name in its registry."""


AutoConfig.register(LowRankBoltConfig.model_type, LowRankBoltConfig, exist_ok=True)

# Stock pipelines look a checkpoint's class up among these modules' names; without it Bolt's takes the dense one.
chronos.chronos_bolt.LowRankBoltModel = LowRankBoltModel  # type: ignore[attr-defined]
chronos.chronos2.LowRankChronos2Model = LowRankChronos2Model  # type: ignore[attr-defined]
