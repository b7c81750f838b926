"""Series as these models read them: standardised, without gaps."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor


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


def filled(series: Float[Tensor, "series time"]) -> list[Float[Tensor, " _"]]:
    """Standardise each series, cut it to its observed part and fill the gaps inside by straight lines.

    Series without an observation are left out.
    """
    rows = []
    for row in standardised(series).cpu():
        seen: Bool[Tensor, " time"] = ~row.isnan()
        where = seen.nonzero().flatten()
        if len(where) == 0:
            continue
        first, last = int(where[0]), int(where[-1])
        time = np.arange(first, last + 1)
        rows.append(torch.from_numpy(np.interp(time, where.numpy(), row[seen].numpy())).float())
    return rows
