"""Fast Chronos-Bolt: quantiles of a whole block from patches, in one pass."""

from __future__ import annotations

from typing import Any

import torch
from chronos.chronos_bolt import ChronosBoltOutput
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rankscope.forecast.attention import Attention, attend_shared
from rankscope.forecast.batches import chunks, in_batches, lengths_of
from rankscope.forecast.network import Encoder, FeedForward, Norm, Skip, masked


class BoltDecoderLayer:
    """Decoder layer over a single token; its self-attention is trivial, so queries, keys and biases are not needed."""

    def __init__(self, stock: Any) -> None:
        self.norm, self.skip = Norm(stock.layer[0].layer_norm), Skip(stock.layer[0])
        self.value, self.output = stock.layer[0].SelfAttention.v, stock.layer[0].SelfAttention.o
        self.cross_norm, self.cross_skip = Norm(stock.layer[1].layer_norm), Skip(stock.layer[1])
        self.cross = Attention(stock.layer[1].EncDecAttention, cached=False, crossed=True)
        self.feed_forward = FeedForward(stock.layer[-1])

    def self_attention(self, x: Float[Tensor, "series d_own"]) -> Float[Tensor, "series d_next"]:
        """Apply the self-attention sub-layer."""
        return self.skip(x) + self.output(self.value(self.norm(x)))

    def cross_attention_and_mlp(
        self,
        x: Float[Tensor, "series d_own"],
        hidden: Float[Tensor, "series patches d_memory"],
        mask: Float[Tensor, "series 1 1 patches"] | None,
    ) -> Float[Tensor, "series d_next"]:
        """Apply the remaining sub-layers; ``x`` may be modified in place."""
        (queries,) = self.cross.project(self.cross_norm(x))
        keys, values = (part.transpose(1, 2) for part in self.cross.keys_values(hidden))
        attended = attend_shared(queries.unsqueeze(1), keys, values, mask).squeeze(1)
        x = self.cross.add_output(self.cross_skip(x), attended)
        return self.feed_forward(x)


class FastBoltModel(nn.Module):
    """Chronos-Bolt with the fast encoder and decoder; shares the stock module's weights.

    Args:
        stock: a `ChronosBoltModelForForecasting`, dense or compressed, in inference mode.
    """

    def __init__(self, stock: Any) -> None:
        super().__init__()
        self.stock = stock
        self.config, self.chronos_config = stock.config, stock.chronos_config
        self._build()
        self.most: int | None = None
        """Series per pass; None chooses a size for the device."""
        self.eval()

    def _build(self) -> None:
        self.encoder = Encoder(self.stock.encoder)
        self.layers = [BoltDecoderLayer(block) for block in self.stock.decoder.block]
        self.norm = Norm(self.stock.decoder.final_layer_norm)

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return self.stock.device

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the weights."""
        return self.stock.dtype

    def encode(self, context: Tensor, mask: Tensor | None = None) -> Any:
        """Call the stock method."""
        return self.stock.encode(context=context, mask=mask)

    @torch.inference_mode()
    def forward(self, context: Float[Tensor, "series time"], mask: Tensor | None = None) -> ChronosBoltOutput:
        """Forecast the quantiles of the next block.

        Args:
            context: values, with NaN for missing ones; truncated to the model's context length from the left.
            mask: 1 for observed values (default: those that are not NaN).

        Returns:
            ``quantile_preds`` (series, quantiles, prediction_length), unscaled.
        """
        own = self.chronos_config
        if (self.norm.gain.device, self.norm.gain.dtype) != (self.device, self.dtype):  # the module was moved or cast
            self._build()
        context = context[..., -own.context_length :]
        real = ~torch.isnan(context) if mask is None else mask[..., -own.context_length :].bool()
        scaled, place = self.stock.instance_norm(context)
        shape = (len(context), self.stock.num_quantiles, own.prediction_length)
        answers = self._scaled_quantiles(scaled.to(self.dtype), real.to(self.dtype))
        unscaled = self.stock.instance_norm.inverse(answers, place).view(shape)
        return ChronosBoltOutput(quantile_preds=unscaled)

    def _scaled_quantiles(self, values: Float[Tensor, "series time"], real: Float[Tensor, "series time"]) -> Tensor:
        """Compute scaled quantiles (series, quantiles · prediction_length), grouping series by length."""
        patches, seen = self.stock.patch(values), torch.nan_to_num(self.stock.patch(real), nan=0.0)
        patches = torch.cat([torch.where(seen > 0, patches, 0.0), seen], dim=-1)
        kept = seen.sum(dim=-1) > 0
        order = lengths_of(kept).argsort(descending=True, stable=True)
        answers = patches.new_empty(len(patches), self.stock.num_quantiles * self.chronos_config.prediction_length)

        def work(some: Tensor) -> None:
            length = int(lengths_of(kept[some]).max())
            answers[some] = self._block(patches[some, -length:], kept[some, -length:]).to(answers.dtype)

        size = len(order)
        for run in chunks(order, lengths_of(kept), self.most):
            size = in_batches(run, size, work)
        return answers

    def _block(self, patches: Float[Tensor, "series patches numbers"], kept: Bool[Tensor, "series patches"]) -> Tensor:
        x = self.stock.input_patch_embedding(patches)
        series = len(x)
        if self.chronos_config.use_reg_token:
            token = self.stock.shared.weight[self.config.reg_token_id]
            x = torch.cat([x, token.expand(series, 1, -1)], dim=1)
            kept = nn.functional.pad(kept, (0, 1), value=True)
        part = None if bool(kept.all()) else kept
        hidden = self.encoder(x, part)
        mask = None if part is None else masked(part, hidden.dtype)[:, None, None, :]
        start: Int[Tensor, " 1"] = kept.new_full((1,), self.config.decoder_start_token_id, dtype=torch.long)
        x = self.stock.decoder.embed_tokens(start)
        for number, layer in enumerate(self.layers):
            x = layer.self_attention(x)
            if number == 0:  # every forecast starts with the same token
                x = x.repeat(series, 1)
            x = layer.cross_attention_and_mlp(x, hidden, mask)
        return self.stock.output_patch_embedding(self.norm(x))
