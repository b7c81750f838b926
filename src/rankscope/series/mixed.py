"""Several kinds of signals in one corpus, as the paper's Fig. 2a has them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from rankscope.series.exponential import exponentials
from rankscope.series.noise import white_noise
from rankscope.series.sinusoid import sinusoids


def mixed(n: int, length: int, rng: np.random.Generator) -> Float[np.ndarray, "series time"]:
    """Sinusoids, exponentials and white noise in turn, a third each.

    >>> mixed(4, 8, np.random.default_rng(0)).shape
    (4, 8)
    """
    out = np.empty((n, length))
    for start, make in enumerate((sinusoids, exponentials, white_noise)):
        count = len(range(start, n, 3))
        if count:
            out[start::3] = make(count, length, rng)
    return out
