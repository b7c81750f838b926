"""The models of the audit: an encoder, three causal pre-LN blocks, a head (Lehtinen 2026, section 2.1)."""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from rankscope_lab.blocks.channel_encoders import (
    PROJECTED_SCALE,
    ChannelEncoder,
    ConcatEncoder,
    LinearEncoder,
    MlpEncoder,
    OrthoEncoder,
    ProjectedEncoder,
    ScalarEncoder,
    SumEncoder,
)
from rankscope_lab.blocks.layers import AttentionBlock
from rankscope_lab.data.channels import BINS, LENGTH
from rankscope_lab.encoders.run_spec import MSE, RunSpec

LAYERS = 3
DROPOUT = 0.1

_DROP_IN: dict[str, Callable[[int, int], ChannelEncoder]] = {
    "sum": lambda c, d: SumEncoder(c, d, LENGTH),
    "linear": lambda c, d: LinearEncoder(c, d, LENGTH),
    "linear-ortho": lambda c, d: OrthoEncoder(c, d, LENGTH),
    "linear-ppe": lambda c, d: ProjectedEncoder(c, d, LENGTH),
    "mlp": lambda c, d: MlpEncoder(c, d, LENGTH),
    "concat": lambda c, d: ConcatEncoder(c, d, LENGTH),
    "linear-nobias": lambda c, d: LinearEncoder(c, d, LENGTH, bias=False),
    "linear-scaled": lambda c, d: LinearEncoder(c, d, LENGTH, position_scale=PROJECTED_SCALE),
    "linear-rotated": lambda c, d: ProjectedEncoder(c, d, LENGTH, orthogonal=True),
}


class AuditModel(nn.Module):
    """One token per time step.

    Attributes:
        encoder: of the channels.
        blocks: three causal ones.
        norm: the last LayerNorm.
        head: to the bins, or to one number.
    """

    def __init__(
        self, encoder: ChannelEncoder, d_model: int, heads: int, outputs: int, *, head_width: int = 0, causal: int = 1
    ) -> None:
        """Build it.

        Args:
            encoder: of the channels.
            d_model: width of tokens.
            heads: of each block.
            outputs: of the head.
            head_width: what the head reads; 0: d_model.
            causal: tokens of a time step.
        """
        super().__init__()
        self.encoder = encoder
        self.blocks = nn.ModuleList(
            AttentionBlock(d_model, heads, 4 * d_model, DROPOUT, causal=causal) for _ in range(LAYERS)
        )
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(head_width or d_model, outputs)

    def hidden(self, x: Float[Tensor, "batch time channels"]) -> list[Tensor]:
        """Input of the first block (position included) and output of each: batch × tokens × d_model."""
        stream = [self.tokens(x)]
        for block in self.blocks:
            stream.append(block(stream[-1]))
        return stream

    def tokens(self, x: Float[Tensor, "batch time channels"]) -> Tensor:
        """Input of the first block."""
        return self.encoder(x)

    def read(self, last: Tensor, x: Float[Tensor, "batch time channels"]) -> Tensor:
        """Outputs from what the last block passed on."""
        return self.head(self.norm(last))

    def forward(self, x: Float[Tensor, "batch time channels"]) -> Float[Tensor, "batch time outputs"]:
        """Logits of the next step's bin at every step, or its value."""
        return self.read(self.hidden(x)[-1], x)


class IndependentModel(AuditModel):
    """``ci``: the same transformer over every channel by itself; a head over all channels' outputs side by side."""

    def tokens(self, x: Float[Tensor, "batch time channels"]) -> Float[Tensor, "batch_channels time d_model"]:
        """Every channel a sequence, batch-major."""
        return self.encoder(x).transpose(1, 2).flatten(0, 1)

    def read(self, last: Tensor, x: Float[Tensor, "batch time channels"]) -> Tensor:
        """Normalise each channel, then join them in order."""
        joined = self.norm(last).unflatten(0, (len(x), x.shape[2])).transpose(1, 2).flatten(2)
        return self.head(joined)


class TokenModel(AuditModel):
    """``cat``: every value a token; one looks at all values of its own and of earlier time steps."""

    def tokens(self, x: Float[Tensor, "batch time channels"]) -> Float[Tensor, "batch time_channels d_model"]:
        """Time-major."""
        return self.encoder(x).flatten(1, 2)

    def read(self, last: Tensor, x: Float[Tensor, "batch time channels"]) -> Tensor:
        """Normalise each token, then average those of a time step."""
        return self.head(self.norm(last).unflatten(1, (x.shape[1], x.shape[2])).mean(2))


def build(spec: RunSpec) -> AuditModel:
    """A fresh model, drawn from torch's global generator: encoder, blocks, norm, head in this order."""
    outputs = 1 if spec.objective == MSE else BINS
    shape = (spec.d_model, spec.heads, outputs)
    if spec.encoder == "ci":
        return IndependentModel(ScalarEncoder(spec.d_model, LENGTH), *shape, head_width=spec.channels * spec.d_model)
    if spec.encoder == "cat":
        return TokenModel(ScalarEncoder(spec.d_model, LENGTH, spec.channels), *shape, causal=spec.channels)
    return AuditModel(_DROP_IN[spec.encoder](spec.channels, spec.d_model), *shape)
