"""Chronos-2's sublayers over a residual stream that is narrower than ``d_model``."""

from __future__ import annotations

from typing import Any

from chronos.chronos2.layers import AttentionOutput, FeedForward, GroupSelfAttention, TimeSelfAttention
from torch import Tensor

from rankscope.lowrank.stream import SlicedFeedForward, SlicedLayer


class SlicedTimeAttention(SlicedLayer):
    """Attention along time; called and answered as the stock sublayer is."""

    self_attention: Any

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor, position_ids: Tensor, output_attentions: bool = False
    ) -> AttentionOutput:
        """Attend to the tokens themselves."""
        found = self.self_attention(
            self.layer_norm(hidden_states),
            position_ids=position_ids,
            mask=attention_mask,
            output_attentions=output_attentions,
        )
        return AttentionOutput(hidden_states=self.added(hidden_states, found[0]), attn_weights=found.attn_weights)


class SlicedGroupAttention(SlicedLayer):
    """Attention over the series of a group, position by position; called and answered as the stock sublayer is."""

    self_attention: Any

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor, output_attentions: bool = False
    ) -> AttentionOutput:
        """Attend to the series of the group."""
        normed = self.layer_norm(hidden_states).transpose(0, 1)
        found = self.self_attention(normed, mask=attention_mask, output_attentions=output_attentions)
        update = found[0].transpose(0, 1)
        return AttentionOutput(hidden_states=self.added(hidden_states, update), attn_weights=found.attn_weights)


LAYERS: dict[type, type[SlicedLayer]] = {
    TimeSelfAttention: SlicedTimeAttention,
    GroupSelfAttention: SlicedGroupAttention,
    FeedForward: SlicedFeedForward,
}
"""Sliced sublayer by stock class."""
