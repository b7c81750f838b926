"""Chronos-Bolt and Chronos-2 with factored sites and heads of other widths, and the pipelines that load them."""

from __future__ import annotations

from typing import Any

import torch
from chronos.chronos2.config import Chronos2CoreConfig
from chronos.chronos2.layers import MHA, AttentionOutput, Chronos2RotaryEmbedding
from chronos.chronos2.model import Chronos2Model
from chronos.chronos2.pipeline import Chronos2Pipeline
from chronos.chronos_bolt import ChronosBoltModelForForecasting, ChronosBoltPipeline
from jaxtyping import Float
from torch import Tensor, nn
from transformers import AutoConfig, T5Config

from rankscope.errors import CheckpointError
from rankscope.families import HeadWidth
from rankscope.lowrank.heads import Heads
from rankscope.lowrank.models import factor_model


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


class LowRankBoltConfig(T5Config):
    """Chronos-Bolt's config (a `T5Config`) plus ``rankscope``: the factored modules and their ranks."""

    model_type = "rankscope-bolt"

    def __init__(self, rankscope: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**{"rankscope": rankscope, **kwargs})


class LowRankBoltModel(ChronosBoltModelForForecasting):
    """The stock Chronos-Bolt with the modules that ``config.rankscope`` names stored as two thin matrices."""

    config_class = LowRankBoltConfig

    def __init__(self, config: LowRankBoltConfig) -> None:
        super().__init__(config)
        factor_model(self, config)


class LowRankBoltPipeline(ChronosBoltPipeline):
    """`ChronosBoltPipeline` over a `LowRankBoltModel`; chronos finds it by name in its registry."""

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> LowRankBoltPipeline:
        """Load a compressed folder or hub id; arguments as for `BaseChronosPipeline.from_pretrained`."""
        # The stock method looks the class up among its own module's names and falls back to the dense model.
        return cls(model=LowRankBoltModel.from_pretrained(pretrained_model_name_or_path, *args, **kwargs))


AutoConfig.register(LowRankBoltConfig.model_type, LowRankBoltConfig, exist_ok=True)


class HeadWidthMHA(MHA):
    """Chronos-2's attention whose head h has queries and keys of width ``qk[h]`` and values of width ``vo[h]``.

    Stored are q and k (Σqk, d_model), v (Σvo, d_model) and o (d_model, Σvo). Attention along time turns coordinate j of
    a head with coordinate j + d_kv/2, by an angle that depends on both, so queries and keys have the stock width there;
    values are not turned. Attention over the series of a group has no positions: all its heads may be of any width.
    Chronos-2 scales no scores, so heads of the stock width are the stock layer.

    Args:
        stock: the layer whose place it takes.
        layout: width of every head.

    Raises:
        CheckpointError: the layout lists another number of heads, or other widths where rotary positions fix them.
    """

    def __init__(self, stock: MHA, layout: HeadWidth) -> None:
        super().__init__(stock.config, stock.use_rope)
        if len(layout.qk) != self.n_heads:
            raise CheckpointError(f"config.json: {len(layout.qk)} head widths where num_heads is {self.n_heads}.")
        if self.use_rope and set(layout.qk) != {self.kv_proj_dim}:
            raise CheckpointError(
                f"config.json: head widths {list(layout.qk)} of queries and keys that rotary positions turn, which "
                f"have to have the stock width, {self.kv_proj_dim}."
            )
        self.layout, self.qk, self.vo = layout, Heads(layout.qk), Heads(layout.vo)
        self.inner_dim = self.vo.total
        like: dict[str, Any] = {"bias": False, "device": stock.q.weight.device, "dtype": stock.q.weight.dtype}
        self.q = nn.Linear(self.d_model, self.qk.total, **like)
        self.k = nn.Linear(self.d_model, self.qk.total, **like)
        self.v = nn.Linear(self.d_model, self.vo.total, **like)
        self.o = nn.Linear(self.vo.total, self.d_model, **like)
        if self.use_rope:
            self.rope_embed = stock.rope_embed

    def forward(
        self,
        hidden_states: Float[Tensor, "batch tokens d_model"],
        mask: Tensor,
        encoder_states: Tensor | None = None,
        position_ids: Tensor | None = None,
        output_attentions: bool = False,
    ) -> AttentionOutput:
        """Attend to the tokens themselves, or to ``encoder_states``; called and answered as the stock layer is."""
        source = hidden_states if encoder_states is None else encoder_states
        query, key = (self._split(self.qk, rows) for rows in (self.q(hidden_states), self.k(source)))
        value = self._split(self.vo, self.v(source))
        if self.use_rope and encoder_states is None:
            assert position_ids is not None
            cos, sin = self.rope_embed(query, position_ids)
            query, key = Chronos2RotaryEmbedding.apply_rotary_pos_emb(query, key, cos, sin)
        eager = output_attentions or self.config._attn_implementation != "sdpa"
        attended, weights = (self._eager_attention if eager else self._sdpa_attention)(query, key, value, mask)
        output = self.o(self.vo.joined(attended.transpose(1, 2)))
        return AttentionOutput(hidden_states=output, attn_weights=weights if output_attentions else None)

    @staticmethod
    def _split(
        heads: Heads, rows: Float[Tensor, "batch tokens total"]
    ) -> Float[torch.Tensor, "batch heads tokens widest"]:
        return heads.spread(heads.cached(rows))
