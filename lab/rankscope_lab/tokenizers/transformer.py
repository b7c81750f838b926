"""Encoder–decoder transformer built from `rankscope_lab.blocks`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from rankscope.errors import OptionError, check_least
from rankscope_lab.blocks import AttentionBlock, DecoderBlock, SinusoidalPositions


@dataclass(frozen=True)
class Shape:
    """Sizes of a transformer; the first one had 512, 8, 2048, 6 layers and dropout 0.1.

    Attributes:
        d_model: width of tokens.
        heads: of every attention.
        d_ff: inner width of feed-forward layers.
        layers: of the encoder, and as many of the decoder.
        dropout: of embeddings, attention weights, inner values and sublayer outputs.
    """

    d_model: int = 64
    heads: int = 4
    d_ff: int = 256
    layers: int = 2
    dropout: float = 0.1

    def __post_init__(self) -> None:
        """Validate the fields.

        Raises:
            OptionError: a number out of range.
        """
        check_least(self, 1, ("d_model", "heads", "d_ff", "layers"))
        if not 0 <= self.dropout < 1:
            raise OptionError(f"dropout is {self.dropout}: it must lie in [0, 1).")


class Transformer(nn.Module):
    """Post-norm encoder and decoder with sinusoidal positions (Vaswani et al. 2017).

    Args:
        shape: sizes.
        source: turns what is read into tokens: batch × steps (× variables) → batch × steps × d_model.
        target: likewise, for what is written.
        head: tokens of the decoder → what is written.
        length: most steps of either side.
        causal: no step of the decoder sees a later one.
    """

    def __init__(
        self, shape: Shape, source: nn.Module, target: nn.Module, head: nn.Module, length: int, causal: bool = True
    ) -> None:
        super().__init__()
        d_model, heads, d_ff, dropout = shape.d_model, shape.heads, shape.d_ff, shape.dropout
        self.source, self.target, self.head = source, target, head
        self.positions = SinusoidalPositions(length, d_model)
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.ModuleList(
            AttentionBlock(d_model, heads, d_ff, dropout, norm="post", activation="relu") for _ in range(shape.layers)
        )
        self.decoder = nn.ModuleList(
            DecoderBlock(d_model, heads, d_ff, dropout, causal=causal) for _ in range(shape.layers)
        )

    def encode(self, source: Shaped[Tensor, "batch steps *variables"]) -> Float[Tensor, "batch steps d_model"]:
        """The encoder's output."""
        x = self.drop(self.positions(self.source(source)))
        for block in self.encoder:
            x = block(x)
        return x

    def decode(
        self, target: Shaped[Tensor, "batch written *variables"], memory: Float[Tensor, "batch steps d_model"]
    ) -> Float[Tensor, "batch written outputs"]:
        """Outputs at each step of ``target``, which begins with the start."""
        x = self.drop(self.positions(self.target(target)))
        for block in self.decoder:
            x = block(x, memory)
        return self.head(x)

    def forward(
        self, source: Shaped[Tensor, "batch steps *variables"], target: Shaped[Tensor, "batch written *variables"]
    ) -> Float[Tensor, "batch written outputs"]:
        """Teacher forcing: the outputs at all steps at once, given what should have been written before each."""
        return self.decode(target, self.encode(source))


def shifted(
    target: Shaped[Tensor, "batch steps *variables"], start: Shaped[Tensor, "batch 1 *variables"]
) -> Shaped[Tensor, "batch steps *variables"]:
    """Input of a decoder under teacher forcing: the start, then the target without its last step."""
    return torch.cat([start, target[:, :-1]], 1)


@torch.no_grad()
def write(
    model: Transformer,
    source: Shaped[Tensor, "batch steps *variables"],
    start: Shaped[Tensor, "batch 1 *variables"],
    steps: int,
    choose: Callable[[Tensor], Tensor],
) -> Shaped[Tensor, "batch written *variables"]:
    """Decode autoregressively.

    Args:
        model: in evaluation mode, or dropout will act.
        source: what is read.
        start: first step of the decoder; it is not part of what comes back.
        steps: how many to write.
        choose: the output of the last step → the step that is written, e.g. the likeliest token.
    """
    memory = model.encode(source)
    written = start
    for _ in range(steps):
        written = torch.cat([written, choose(model.decode(written, memory)[:, -1:])], 1)
    return written[:, 1:]
