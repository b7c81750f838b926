"""Linear probes: how much of every channel a ridge regression reads back from the stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope_lab.data.channels import channel_benchmark

RIDGE = 1e-3
PROBE_SERIES, PROBE_SEED = 256, 99
HELD_OUT = 51
"""Of the probe's series."""
_BATCH = 32


def ridge_weights(
    hidden: Float[Tensor, "rows d_model"], inputs: Float[Tensor, "rows channels"], ridge: float = RIDGE
) -> Float[Tensor, "d_model channels"]:
    """(HᵀH + λI)⁻¹ HᵀX in float64, without intercept or centring. Source: Lehtinen 2026, section 2.5."""
    h, x = hidden.double(), inputs.double()
    normal = h.T @ h + ridge * torch.eye(h.shape[1], dtype=h.dtype, device=h.device)
    return torch.linalg.solve(normal, h.T @ x)


def r_squared(
    predicted: Float[Tensor, "rows channels"], actual: Float[Tensor, "rows channels"]
) -> Float[Tensor, " channels"]:
    """1 − Σ(x − x̂)² / Σ(x − mean x)² of each channel, on the rows given."""
    residual = (actual - predicted).square().sum(0)
    return 1 - residual / (actual - actual.mean(0)).square().sum(0)


@lru_cache(maxsize=4)
def probe_data(channels: int) -> tuple[Float[Tensor, "fit time channels"], Float[Tensor, "held_out time channels"]]:
    """Series that no model was trained on: 205 to fit a probe, 51 to score it."""
    drawn = torch.from_numpy(channel_benchmark(channels, PROBE_SERIES, PROBE_SEED).inputs)
    order = torch.randperm(PROBE_SERIES, generator=torch.Generator().manual_seed(0))
    return drawn[order[:-HELD_OUT]], drawn[order[-HELD_OUT:]]


@torch.inference_mode()
def probe_streams(
    streams: Callable[[Tensor], Sequence[Tensor]],
    fit: Float[Tensor, "fit time channels"],
    held_out: Float[Tensor, "held_out time channels"],
) -> list[list[float]]:
    """R² of every channel at every depth of the stream, on held-out rows (all series × all steps).

    Args:
        streams: inputs → the stream after the encoder and after every block, each batch × time × d_model.
        fit: series that the probes are fitted on.
        held_out: series that they are scored on.

    Returns:
        [depth][channel]
    """
    fitted, scored = _rows(streams, fit), _rows(streams, held_out)
    x, y = fit.flatten(0, 1).double(), held_out.flatten(0, 1).double()
    return [
        r_squared(after @ ridge_weights(before, x), y).tolist() for before, after in zip(fitted, scored, strict=True)
    ]


def _rows(streams: Callable[[Tensor], Sequence[Tensor]], inputs: Tensor) -> list[Tensor]:
    """One float64 matrix per depth, on the CPU."""
    batches = [[one.flatten(0, 1).cpu() for one in streams(batch)] for batch in inputs.split(_BATCH)]
    return [torch.cat(depth).double() for depth in zip(*batches, strict=True)]
