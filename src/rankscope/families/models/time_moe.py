"""A Time-MoE with dense MLPs: gated point-wise embedding, causal layers, one head per horizon (Shi et al. 2025)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

HUBER = 2.0
"""Errors above this many standard deviations count linearly."""


@dataclass(frozen=True)
class Forecasts:
    """One pass: Huber loss, a mean over the heads, and the forecasts of each head (axes series, time, horizon)."""

    loss: Float[Tensor, ""]
    values: list[Tensor]


class Attention(nn.Module):
    """Causal self-attention with rotary positions; q, k and v have biases."""

    def __init__(self, d_model: int, heads: int, theta: float) -> None:
        super().__init__()
        self.heads, self.theta = heads, theta
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(d_model, d_model) for _ in range(3))
        self.o_proj = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: Float[Tensor, "series time d_model"]) -> Float[Tensor, "series time d_model"]:
        """Mix each position with those before it."""
        q, k, v = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        mixed = F.scaled_dot_product_attention(rotated(q, self.theta), rotated(k, self.theta), v, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


def rotated(x: Float[Tensor, "series heads time d_head"], theta: float) -> Float[Tensor, "series heads time d_head"]:
    """Turn pairs (i, i + d_head/2) of every position by ``position · theta^(−2i/d_head)`` (Su et al. 2021)."""
    half = x.shape[-1] // 2
    rate = theta ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angle = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32)[:, None] * rate
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class GatedMlp(nn.Module):
    """``W_down (silu(W_gate x) · W_up x)``."""

    def __init__(self, d_model: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(d_model, inner, bias=False)
        self.up_proj = nn.Linear(d_model, inner, bias=False)
        self.down_proj = nn.Linear(inner, d_model, bias=False)

    def forward(self, x: Float[Tensor, "*axes d_model"]) -> Float[Tensor, "*axes d_model"]:
        """Map every position by itself."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Attention and MLP, each on the normalised input and added to it."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        d_model, eps = config["hidden_size"], config.get("rms_norm_eps", 1e-6)
        self.input_layernorm = nn.RMSNorm(d_model, eps)
        self.self_attn = Attention(d_model, config["num_attention_heads"], config.get("rope_theta", 10000.0))
        self.post_attention_layernorm = nn.RMSNorm(d_model, eps)
        self.ffn_layer = GatedMlp(d_model, config["intermediate_size"])

    def forward(self, x: Float[Tensor, "series time d_model"]) -> Float[Tensor, "series time d_model"]:
        """Run the layer."""
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.ffn_layer(self.post_attention_layernorm(x))


class Body(nn.Module):
    """Embedding, layers and last norm; names as in the published checkpoints."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.embed_layer = GatedSwish(config["hidden_size"], float(config.get("swish_beta", 1.0)))
        self.layers = nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))
        self.norm = nn.RMSNorm(config["hidden_size"], config.get("rms_norm_eps", 1e-6))

    def forward(self, x: Float[Tensor, "series time"]) -> Float[Tensor, "series time d_model"]:
        """Hidden state of every position."""
        hidden = self.embed_layer(x)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.norm(hidden)


class Head(nn.Module):
    """Forecasts of the next ``horizon`` values."""

    def __init__(self, d_model: int, horizon: int) -> None:
        super().__init__()
        self.out_layer = nn.Linear(d_model, horizon, bias=False)

    def forward(self, hidden: Float[Tensor, "*axes d_model"]) -> Float[Tensor, "*axes horizon"]:
        """Forecast from every position."""
        return self.out_layer(hidden)


class TimeMoe(nn.Module):
    """Next values of standardised series. The MLPs are dense: there are no experts and no router."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.config = dict(config)
        self.horizons = tuple(config["horizon_lengths"])
        self.model = Body(config)
        self.lm_heads = nn.ModuleList(Head(config["hidden_size"], horizon) for horizon in self.horizons)

    def forward(self, values: Float[Tensor, "series time"]) -> Forecasts:
        """Forecast from every position; the loss takes those whose horizon lies inside the series."""
        hidden = self.model(values)
        forecasts = [head(hidden) for head in self.lm_heads]
        losses = []
        for horizon, forecast in zip(self.horizons, forecasts, strict=True):
            truth = values.unfold(1, horizon, 1)[:, 1:] if values.shape[1] > horizon else forecast[:, :0]
            if truth.shape[1]:
                losses.append(F.huber_loss(forecast[:, : truth.shape[1]], truth, delta=HUBER))
        return Forecasts(torch.stack(losses).mean() if losses else hidden.new_zeros(()), forecasts)


class EmbeddingOnly(nn.Module):
    """The embedding of a published model, whose experts are not built."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.config = dict(config)
        self.model = nn.Module()
        self.model.embed_layer = GatedSwish(config["hidden_size"], float(config.get("swish_beta", 1.0)))


def swish(x: Float[Tensor, "*axes"], beta: float = 1.0) -> Float[Tensor, "*axes"]:
    """``x / (1 + exp(−βx))``; β = 1 is SiLU.

    >>> float(swish(torch.tensor(0.0)))
    0.0
    """
    return x * torch.sigmoid(beta * x)


class GatedSwish(nn.Module):
    """One value to ``d_model`` numbers, ``swish_β(w x) · v x``, without biases (Shi et al. 2025; Corollary 2).

    The names of the two weights are those of the published checkpoints: ``gate_layer`` is w, ``emb_layer`` is v.
    """

    def __init__(self, d_model: int, beta: float = 1.0) -> None:
        super().__init__()
        self.beta = beta
        self.emb_layer = nn.Linear(1, d_model, bias=False)
        self.gate_layer = nn.Linear(1, d_model, bias=False)

    def forward(self, x: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes d_model"]:
        """Embed every value by itself."""
        column = x.unsqueeze(-1)
        return swish(self.gate_layer(column), self.beta) * self.emb_layer(column)
