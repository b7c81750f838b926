"""TOTEM: a convolutional VQ-VAE of time series (Talukder et al. 2024)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.families.models.vector_quantiser import Quantised, VectorQuantiser

SETTINGS: dict[str, Any] = {
    "hidden": 128,
    "residual_hidden": 64,
    "residual_layers": 2,
    "codes": 256,
    "d_model": 64,
    "compression": 4,
    "commitment": 0.25,
    "decay": None,
}
"""The published sizes: a codebook of 256 × 64, one code per four values, β = 0.25, codes trained by their loss."""


@dataclass(frozen=True)
class Rebuilt:
    """One pass.

    Attributes:
        loss: mean squared error + β × commitment loss, + codebook loss where the codes have no moving average.
        values: the rebuilt series.
        quantised: its codes.
    """

    loss: Float[Tensor, ""]
    values: Float[Tensor, "series time"]
    quantised: Quantised


class Residual(nn.Module):
    """``x + W_2 relu(W_1 relu(x))``: a convolution over three steps, then one over single steps."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.wide = nn.Conv1d(hidden, inner, 3, padding=1, bias=False)
        self.point = nn.Conv1d(inner, hidden, 1, bias=False)

    def forward(self, x: Float[Tensor, "series hidden time"]) -> Float[Tensor, "series hidden time"]:
        """Add the block's part."""
        return x + self.point(F.relu(self.wide(F.relu(x))))


class Totem(nn.Module):
    """Encoder, codebook and decoder; ``compression`` values become one code, each halving by one convolution."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.config = {**SETTINGS, **config}
        hidden, inner = self.config["hidden"], self.config["residual_hidden"]
        layers, d_model = self.config["residual_layers"], self.config["d_model"]
        halvings = int(self.config["compression"]).bit_length() - 1
        widths = [1, *(hidden // 2 for _ in range(halvings - 1)), hidden]
        down: list[nn.Module] = []
        for i in range(halvings):
            down += [nn.Conv1d(widths[i], widths[i + 1], 4, stride=2, padding=1), nn.ReLU()]
        self.encoder = nn.Sequential(
            *down,
            nn.Conv1d(hidden, hidden, 3, padding=1),
            *(Residual(hidden, inner) for _ in range(layers)),
            nn.ReLU(),
            nn.Conv1d(hidden, d_model, 1),
        )
        self.quantiser = VectorQuantiser(self.config["codes"], d_model, self.config["decay"])
        up: list[nn.Module] = []
        for i in reversed(range(halvings)):
            up += [nn.ConvTranspose1d(widths[i + 1], widths[i], 4, stride=2, padding=1), nn.ReLU()]
        self.decoder = nn.Sequential(
            nn.Conv1d(d_model, hidden, 3, padding=1),
            *(Residual(hidden, inner) for _ in range(layers)),
            nn.ReLU(),
            *up[:-1],  # the reconstruction has no sign of its own
        )

    @property
    def compression(self) -> int:
        """Values per code."""
        return int(self.config["compression"])

    def encode(self, x: Float[Tensor, "series time"]) -> Float[Tensor, "series tokens d_model"]:
        """Latent vectors before quantisation; the time must be a multiple of ``compression``."""
        return self.encoder(x.unsqueeze(1)).mT

    def decode(self, z: Float[Tensor, "series tokens d_model"]) -> Float[Tensor, "series time"]:
        """Series of such codes."""
        return self.decoder(z.mT).squeeze(1)

    def forward(self, values: Float[Tensor, "series time"]) -> Rebuilt:
        """Rebuild standardised series from their codes."""
        quantised = self.quantiser(self.encode(values))
        rebuilt = self.decode(quantised.straight)
        # squared error is the likelihood of a Gaussian decoder
        loss = F.mse_loss(rebuilt, values) + self.config["commitment"] * quantised.commitment_loss
        if self.config["decay"] is None:
            loss = loss + quantised.codebook_loss
        return Rebuilt(loss, rebuilt, quantised)


@torch.no_grad()
def embedded(module: Totem, rows: list[Float[Tensor, " _"]]) -> Float[Tensor, "tokens d_model"]:
    """Codes of standardised series, the oldest values beyond a multiple of ``compression`` dropped."""
    size = module.compression
    weight = module.quantiser.codebook.weight
    codes = [
        module.quantiser.codebook(module.quantiser.nearest(module.encode(row[len(row) % size :][None].to(weight))))[0]
        for row in rows
        if len(row) >= size
    ]
    return torch.cat(codes) if codes else weight.new_empty(0, weight.shape[1])
