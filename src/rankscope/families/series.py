"""Series in the forms that models take: checked, without padding, of one length, standardised, without gaps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankscope.errors import DataError


def check_series(series: Tensor) -> None:
    """Raise `DataError` unless ``series`` has the axes (series, time) and an observation in it."""
    if series.ndim != 2 or series.shape[0] == 0 or series.shape[1] == 0:
        raise DataError(
            f"series must have two non-empty axes (series, time), found shape {tuple(series.shape)}; "
            f"left-pad shorter series with NaN and stack them."
        )
    if bool(torch.isnan(series).all()):
        raise DataError("series hold no observation: every value is NaN; leave such series out.")


def unpadded(series: Float[Tensor, "series time"], length: int) -> list[Float[Tensor, " _"]]:
    """Each series from its first to its last observation, cut to the last ``length``, gaps filled by straight lines.

    Series without an observation are left out.
    """
    check_series(series)
    return list(_rows(series, length))


def _rows(series: Tensor, length: int) -> Iterator[Tensor]:
    for row in series.cpu().numpy():
        seen = np.flatnonzero(~np.isnan(row))
        if len(seen):
            time = np.arange(seen[0], seen[-1] + 1)
            yield torch.from_numpy(np.interp(time, seen, row[seen])[-length:]).float()


def fixed_length(
    series: Float[Tensor, "series time"], length: int
) -> tuple[Float[Tensor, "series length"], Bool[Tensor, "series length"]]:
    """The last ``length`` values, with zeros where nothing was observed, and the mask of what was.

    >>> values, observed = fixed_length(torch.tensor([[1.0, float("nan"), 3.0]]), 4)
    >>> values.tolist(), observed.tolist()
    ([[0.0, 1.0, 0.0, 3.0]], [[False, True, False, True]])
    """
    check_series(series)
    x = series[:, -length:].float()
    x = torch.nn.functional.pad(x, (length - x.shape[1], 0), value=float("nan"))
    observed = ~x.isnan()
    return x.nan_to_num(nan=0.0), observed


def channel_copies(
    module: Any, series: Float[Tensor, "series time"]
) -> tuple[Float[Tensor, "series length channels"], Bool[Tensor, "series length channels"]]:
    """`fixed_length` at a module's context, in its format and on its device; every one of its channels reads a copy."""
    values, observed = fixed_length(series, int(module.config.context_length))
    channels = int(module.config.num_input_channels)
    past, mask = (x[..., None].expand(-1, -1, channels).contiguous() for x in (values.to(module.dtype), observed))
    return past.to(module.device), mask.to(module.device)


def standardised(series: Float[Tensor, "series time"]) -> Float[Tensor, "series time"]:
    """Mean 0 and standard deviation 1 over the observed values of each series; constant series become 0.

    >>> standardised(torch.tensor([[1.0, float("nan"), 3.0]])).tolist()
    [[-1.0, nan, 1.0]]
    """
    x = series.to(torch.float64)
    mean = x.nanmean(1, keepdim=True)
    spread = (x - mean).square().nanmean(1, keepdim=True).sqrt()
    # the spread of equal values is rounding, not zero
    flat = spread <= 1e-10 * mean.abs()
    return ((x - mean) / torch.where(flat | (spread == 0), 1.0, spread)).masked_fill(flat & ~x.isnan(), 0.0).float()
