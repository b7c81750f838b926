"""Series in the forms that models of transformers take, which know no NaN."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankscope.families._record import check_series


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
