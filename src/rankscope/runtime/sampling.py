"""Drawing tokens from logits as transformers' ``generate`` would: temperature, top-k, top-p, no end of sequence."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankscope.errors import OptionError

ENOUGH = 4
"""A vocabulary this many times top-k is sampled by rejection on a CPU, which sorts nothing in most rows."""


@dataclass(frozen=True)
class Sampler:
    """How tokens are drawn.

    Attributes:
        temperature: logits are divided by it.
        top_k: only the k likeliest tokens, and those that tie with the last of them; 0 for all, 1 is greedy.
        top_p: of those, the fewest likeliest whose mass reaches p; 1 for all.
        never: token that is not drawn (the end of sequence), or None.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    never: int | None = None

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise OptionError(f"temperature is {self.temperature}: it must be above 0; top_k 1 is greedy.")
        if self.top_k < 0:
            raise OptionError(f"top_k is {self.top_k}: it must be 0 or more.")
        if not 0 < self.top_p <= 1:
            raise OptionError(f"top_p is {self.top_p}: it must lie in (0, 1].")

    def __call__(self, logits: Float[Tensor, "rows vocabulary"]) -> Int[Tensor, " rows"]:
        """Draw one token per row; ``logits`` may be written to."""
        logits = logits.float()
        if self.never is not None:
            logits[:, self.never] = -torch.inf
        if self.top_k == 1:
            return logits.argmax(dim=-1)
        if self.temperature != 1.0:
            logits = logits / self.temperature
        if self.top_p == 1.0 and not logits.is_cuda and 0 < ENOUGH * self.top_k <= logits.shape[-1]:
            return self._rejecting(logits)
        return self._sorting(logits)

    def _sorting(self, logits: Float[Tensor, "rows vocabulary"]) -> Int[Tensor, " rows"]:
        """Draw from the likeliest tokens, found by sorting."""
        if 0 < self.top_k < logits.shape[-1]:
            least = logits.topk(self.top_k, dim=-1).values[:, -1:]
            logits = logits.masked_fill(logits < least, -torch.inf)
        chances = logits.softmax(dim=-1)
        if self.top_p < 1.0:
            falling, order = chances.sort(dim=-1, descending=True, stable=True)
            before = falling.cumsum(dim=-1) - falling
            chances = torch.zeros_like(chances).scatter(-1, order, falling.masked_fill(before >= self.top_p, 0.0))
        return drawn(chances)

    def _rejecting(self, logits: Float[Tensor, "rows vocabulary"]) -> Int[Tensor, " rows"]:
        """Draw from all tokens, and again, among the k likeliest, where the token is none of them.

        Given that a draw from all is among the k likeliest, it is distributed as one from those alone, and whether it
        is among them is a count of larger logits: rows are sorted only where the mass outside was hit.
        """
        tokens = drawn(logits.softmax(dim=-1))
        likelier = (logits > logits.gather(-1, tokens.unsqueeze(-1))).sum(dim=-1)
        outside = (likelier >= self.top_k).nonzero().squeeze(-1)
        if len(outside):
            tokens[outside] = self._sorting(logits[outside])
        return tokens


def drawn(chances: Float[Tensor, "rows n"]) -> Int[Tensor, " rows"]:
    """Draw one index per row, with chances in proportion to what stands there, by the inverse of the running sum."""
    running = chances.cumsum(dim=-1)
    whole = running[:, -1:]
    u = torch.rand(len(chances), 1, device=chances.device, dtype=running.dtype)
    below = torch.nextafter(whole, torch.zeros_like(whole))  # what rounds up to the sum would find an impossible token
    found = torch.searchsorted(running, torch.minimum(u * whole, below), right=True).squeeze(-1)
    return found.clamp_(max=chances.shape[-1] - 1)  # where sums are NaN, which the caller finds out, none is larger
