"""Token sampling as in transformers' ``generate``: temperature, top-k, top-p, without end of sequence."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from rankscope.errors import OptionError

BLOCKS = 4
"""Minimum number of blocks per top-k token on a CPU, so that few of the top tokens share a block."""
TRIES = 4
"""Rejections per row before falling back to sorting."""
BELOW_ONE = 1 - 2**-22
"""Factor that keeps u·sum below the sum for every float32 u in [0, 1], despite rounding."""
LEAST = -torch.finfo(torch.float32).tiny
"""Largest float32 below zero."""


@dataclass(frozen=True)
class Sampler:
    """Sampler of tokens from logits.

    Attributes:
        temperature: divisor of the logits.
        top_k: sample from the k most likely tokens, including ties; 0 for all, 1 for greedy.
        top_p: of those, the smallest set of most likely tokens with mass p; 1 for all.
        never: token that is never sampled (end of sequence), or None.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    never: int | None = None

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise OptionError(f"temperature is {self.temperature}; must be above 0 (top_k 1 is greedy).")
        if self.top_k < 0:
            raise OptionError(f"top_k is {self.top_k}; must be 0 or more.")
        if not 0 < self.top_p <= 1:
            raise OptionError(f"top_p is {self.top_p}; must be in (0, 1].")

    def __call__(self, logits: Float[Tensor, "rows vocabulary"]) -> Int[Tensor, " rows"]:
        """Sample one token per row; ``logits`` may be modified in place."""
        logits = logits.float()
        if self.never is not None:
            logits[:, self.never] = -torch.inf
        if self.top_k == 1:
            return logits.argmax(dim=-1)
        if self.temperature != 1.0:
            logits = logits / self.temperature
        blocks = 2 ** ceil(log2(BLOCKS * self.top_k)) if self.top_k else 0
        if self.top_p == 1.0 and not logits.is_cuda and 0 < BLOCKS * blocks <= logits.shape[-1]:
            return self._rejecting(logits, blocks)
        return self._sorting(logits)

    def _sorting(self, logits: Float[Tensor, "rows vocabulary"]) -> Int[Tensor, " rows"]:
        """Sample from the most likely tokens, found by sorting."""
        if 0 < self.top_k < logits.shape[-1]:
            least = logits.topk(self.top_k, dim=-1).values[:, -1:]
            logits = logits.masked_fill(logits < least, -torch.inf)
        chances = logits.softmax(dim=-1)
        if self.top_p < 1.0:
            falling, order = chances.sort(dim=-1, descending=True, stable=True)
            before = falling.cumsum(dim=-1) - falling
            chances = torch.zeros_like(chances).scatter(-1, order, falling.masked_fill(before >= self.top_p, 0.0))
        return drawn(chances)

    def _rejecting(self, logits: Float[Tensor, "rows vocabulary"], blocks: int) -> Int[Tensor, " rows"]:
        """Sample from a slight superset of the top-k tokens, and reject tokens outside the top k.

        The k-th largest of the block maxima is a lower bound of the k-th largest logit, and a close one, since
        neighbouring tokens are in different blocks. Conditional on being in the top k, a sample from the tokens above
        that bound has the top-k distribution; membership is tested by counting larger logits. This avoids sorting and
        cumulative sums over the vocabulary.
        """
        if logits.shape[-1] % blocks:
            logits = nn.functional.pad(logits, (0, -logits.shape[-1] % blocks), value=-torch.inf)
        least = logits.unflatten(-1, (-1, blocks)).amax(1).topk(self.top_k, dim=-1, sorted=False).values
        least = least.amin(-1, keepdim=True)
        if not bool(least.isfinite().all()):
            return self._sorting(logits)
        work = torch.threshold_(logits - least, LEAST, -torch.inf)
        chances = work.softmax(dim=-1).unflatten(-1, (-1, blocks))  # (rows, tokens of a block, blocks)
        sums = chances.sum(1)
        tokens = self._one_of(chances, sums)
        outside = self._unlikely(logits, tokens, work)
        for _ in range(TRIES - 1):
            if not len(outside):
                break
            tokens[outside] = again = self._one_of(chances[outside], sums[outside])
            some = logits[outside]
            outside = outside[self._unlikely(some, again, torch.empty_like(some))]
        if len(outside):
            tokens[outside] = self._sorting(logits[outside])
        return tokens

    @staticmethod
    def _one_of(chances: Float[Tensor, "rows size blocks"], sums: Float[Tensor, "rows blocks"]) -> Int[Tensor, " rows"]:
        """Sample a block, then one of its tokens."""
        blocks = drawn(sums)
        within = chances.gather(2, blocks[:, None, None].expand(-1, chances.shape[1], 1)).squeeze(2)
        return drawn(within) * chances.shape[2] + blocks

    def _unlikely(
        self,
        logits: Float[Tensor, "rows vocabulary"],
        tokens: Int[Tensor, " rows"],
        work: Float[Tensor, "rows vocabulary"],
    ) -> Int[Tensor, " some"]:
        """Return the rows whose token is outside the top k; modifies ``work``."""
        beyond = torch.sub(logits, logits.gather(-1, tokens.unsqueeze(-1)), out=work)
        return (beyond.gt_(0.0).sum(dim=-1) >= self.top_k).nonzero().squeeze(-1)


def drawn(chances: Float[Tensor, "rows n"]) -> Int[Tensor, " rows"]:
    """Sample one index per row in proportion to unnormalised probabilities, by inverting the cumulative sum."""
    running = chances.cumsum(dim=-1)
    u = torch.rand(len(chances), 1, device=chances.device, dtype=running.dtype)
    u = u.mul_(BELOW_ONE).mul_(running[:, -1:])  # rounding up to the sum would select a token of probability zero
    found = torch.searchsorted(running, u, right=True).squeeze(-1)
    return found.clamp_(max=chances.shape[-1] - 1)  # for NaN sums, detected by the caller
