"""A forecaster of patches whose blocks may attend or only project: SLT and the PatchTST-like baseline are two settings.

Source: Sparse-Layered Transformers (README of the repository of that name, and its benchmark).
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from rankscope.errors import OptionError, unknown_choice
from rankscope_lab.blocks import (
    AttentionBlock,
    LearnedPositions,
    MultiplicativePositions,
    ProjectionBlock,
    patch_count,
    patches,
)

ATTENTION, PROJECTION = "attention", "projection"
BLOCKS = (ATTENTION, PROJECTION)
ADDITIVE, MULTIPLICATIVE, NO_POSITIONS = "additive", "multiplicative", "none"
POSITIONS = (ADDITIVE, MULTIPLICATIVE, NO_POSITIONS)

LOOKBACK, HORIZON = 512, 96


@dataclass(frozen=True)
class ForecasterShape:
    """Settings of a `PatchForecaster`; the defaults are those of SLT.

    Attributes:
        blocks: kind of every block, the first one next to the patches.
        positions: ``additive`` and ``multiplicative`` are learned and drawn from N(0, 1).
        offset: added to multiplicative positions.
        lookback: steps read.
        horizon: steps forecast.
        patch: steps of a patch.
        stride: steps from one patch to the next.
        d_model: width of tokens.
        heads: of attention.
        d_ff: inner width of the feed-forward layers.
        dropout: of attention weights and of both feed-forward outputs.
    """

    blocks: tuple[str, ...] = (PROJECTION, PROJECTION, ATTENTION)
    positions: str = MULTIPLICATIVE
    offset: float = 0.0
    lookback: int = LOOKBACK
    horizon: int = HORIZON
    patch: int = 16
    stride: int = 8
    d_model: int = 128
    heads: int = 8
    d_ff: int = 256
    dropout: float = 0.15

    def __post_init__(self) -> None:
        """Refuse unknown kinds.

        Raises:
            OptionError: a block or positions of no known kind, or an offset where nothing is multiplied.
        """
        for block in self.blocks:
            if block not in BLOCKS:
                raise OptionError(unknown_choice("block", block, BLOCKS))
        if self.positions not in POSITIONS:
            raise OptionError(unknown_choice("positions", self.positions, POSITIONS))
        if self.offset and self.positions != MULTIPLICATIVE:
            raise OptionError(f"offset {self.offset} belongs to multiplicative positions, these are {self.positions}.")

    @property
    def tokens(self) -> int:
        """Patches of one series: 63 by default; the ends are not padded."""
        return patch_count(self.lookback, self.patch, self.stride)


class PatchForecaster(nn.Module):
    """Patches → linear embedding → positions → post-norm blocks → a linear map of all patches to the horizon.

    Every variable is a series of its own; all of them share the weights and none sees another.
    """

    def __init__(self, shape: ForecasterShape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Linear(shape.patch, shape.d_model)
        self.positions = _positions(shape)
        self.blocks = nn.ModuleList(_block(kind, shape) for kind in shape.blocks)
        self.head = nn.Linear(shape.tokens * shape.d_model, shape.horizon)

    def forward(self, x: Float[Tensor, "batch lookback variables"]) -> Float[Tensor, "batch horizon variables"]:
        """Forecast."""
        last = self.hidden(x)[-1]
        return self.head(last.flatten(1)).unflatten(0, (x.shape[0], x.shape[2])).transpose(1, 2)

    def hidden(
        self, x: Float[Tensor, "batch lookback variables"]
    ) -> list[Float[Tensor, "batch_variables tokens d_model"]]:
        """The stream of tokens after embedding and positions, then after every block."""
        if x.shape[1] != self.shape.lookback:
            raise OptionError(f"the model reads {self.shape.lookback} steps, got {x.shape[1]}.")
        stream = [self.positions(self.embedding(patches(x, self.shape.patch, self.shape.stride)))]
        for block in self.blocks:
            stream.append(block(stream[-1]))
        return stream


def _positions(shape: ForecasterShape) -> nn.Module:
    if shape.positions == ADDITIVE:
        return LearnedPositions(shape.tokens, shape.d_model)
    if shape.positions == MULTIPLICATIVE:
        return MultiplicativePositions(shape.tokens, shape.d_model, shape.offset)
    return nn.Identity()


def _block(kind: str, shape: ForecasterShape) -> nn.Module:
    if kind == PROJECTION:
        return ProjectionBlock(shape.d_model, shape.d_ff, shape.dropout)
    return AttentionBlock(shape.d_model, shape.heads, shape.d_ff, shape.dropout, norm="post", drop_output=False)
