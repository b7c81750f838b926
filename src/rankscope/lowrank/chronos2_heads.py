"""Chronos-2's attention with heads of other widths."""

from __future__ import annotations

from typing import Any

from chronos.chronos2.layers import MHA, AttentionOutput, Chronos2RotaryEmbedding
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.errors import CheckpointError
from rankscope.families import HeadWidth
from rankscope.lowrank.heads import Heads


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
        self.q = nn.Linear(stock.q.in_features, self.qk.total, **like)
        self.k = nn.Linear(stock.k.in_features, self.qk.total, **like)
        self.v = nn.Linear(stock.v.in_features, self.vo.total, **like)
        self.o = nn.Linear(self.vo.total, stock.o.out_features, **like)
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
    def _split(heads: Heads, rows: Float[Tensor, "batch tokens total"]) -> Float[Tensor, "batch heads tokens widest"]:
        return heads.spread(heads.cached(rows))
