"""Vector quantisation as in VQ-VAE (van den Oord et al. 2017), which TOTEM uses."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

LEAST_USE = 0.05
"""Average uses per step below which a code of a moving average counts as unused."""


@dataclass(frozen=True)
class Quantised:
    """Quantised latent vectors.

    Attributes:
        straight: the codes; their gradient passes to the latents as it is (straight-through).
        ids: position of each code in the codebook.
        codebook_loss: mean over components of ‖sg[z] − e‖²: moves the codes only.
        commitment_loss: mean over components of ‖z − sg[e]‖²: moves the encoder only.
    """

    straight: Float[Tensor, "*axes d_model"]
    ids: Int[Tensor, "*axes"]
    codebook_loss: Float[Tensor, ""]
    commitment_loss: Float[Tensor, ""]


class VectorQuantiser(nn.Module):
    """A trained codebook of ``codes`` vectors; a latent vector becomes the nearest one (ties: the lowest id).

    The codes learn from the codebook loss, or (``decay``) follow a moving average of the latents that were assigned to
    them, which keeps pace with an encoder that moves fast; then a code that is no longer used starts again at a latent.
    """

    uses: Tensor
    sums: Tensor

    def __init__(self, codes: int, d_model: int, decay: float | None = None) -> None:
        super().__init__()
        self.decay = decay
        self.codebook = nn.Embedding(codes, d_model)
        nn.init.uniform_(self.codebook.weight, -1 / codes, 1 / codes)
        self.register_buffer("uses", torch.ones(codes), persistent=False)
        self.register_buffer("sums", self.codebook.weight.detach().clone(), persistent=False)

    def nearest(self, z: Float[Tensor, "*axes d_model"]) -> Int[Tensor, "*axes"]:
        """Id of the code with the least Euclidean distance to each vector."""
        codes = self.codebook.weight
        # ‖z‖² is the same for every code
        distance = codes.square().sum(1) - 2 * z @ codes.T
        return distance.argmin(-1)

    def forward(self, z: Float[Tensor, "*axes d_model"]) -> Quantised:
        """Replace each vector by its code; in training the codes follow first, where they have a decay."""
        ids = self.nearest(z.detach())
        if self.training and self.decay is not None:
            self._follow(z.detach().flatten(0, -2), ids.flatten(), self.decay)
        code = self.codebook(ids)
        return Quantised(
            straight=z + (code - z).detach(),
            ids=ids,
            codebook_loss=(code - z.detach()).square().mean(),
            commitment_loss=(z - code.detach()).square().mean(),
        )

    @torch.no_grad()
    def start_from(self, z: Float[Tensor, "vectors d_model"]) -> None:
        """Set the codes to latent vectors drawn without replacement: codes that start far from all are never used."""
        picked = torch.randperm(len(z))[: self.codebook.num_embeddings]
        self.codebook.weight[: len(picked)] = z[picked]
        self.sums.copy_(self.codebook.weight)

    @torch.no_grad()
    def _follow(self, z: Float[Tensor, "vectors d_model"], ids: Int[Tensor, " vectors"], decay: float) -> None:
        """Move each code to the running mean of its latents (van den Oord et al. 2017, appendix A.1)."""
        hits = torch.zeros_like(self.uses).index_add_(0, ids, torch.ones_like(z[:, 0]))
        self.uses.lerp_(hits, 1 - decay)
        self.sums.lerp_(torch.zeros_like(self.sums).index_add_(0, ids, z), 1 - decay)
        dead = (self.uses < LEAST_USE).nonzero().flatten()
        fresh = z[torch.randint(len(z), (len(dead),))]
        self.uses[dead], self.sums[dead] = 1.0, fresh
        self.codebook.weight.copy_(self.sums / self.uses[:, None])


def perplexity(ids: Int[Tensor, "*axes"], codes: int) -> float:
    """Exponential of the entropy of code use, from 1 (one code) to ``codes`` (all equally often).

    >>> round(perplexity(torch.tensor([0, 1, 2, 3]), 8), 6)
    4.0
    """
    share = torch.bincount(ids.flatten(), minlength=codes).double() / ids.numel()
    return float(torch.special.entr(share).sum().exp())
