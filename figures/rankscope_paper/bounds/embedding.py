"""A two-layer residual MLP on patches of size k embeds into few directions: Theorem 2."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.errors import OptionError


def theorem2_count(eps: float, patch_size: int) -> float:
    """Bound (1 + ε⁻²)k on the number of singular values of Φ(X) above ε‖W_2‖₂‖W_1X‖₂ (Thm 2).

    Φ(X) = W_3X + W_2 ω(W_1X) with |ω(x)| ≤ |x| and X of k rows. Only the rank of X enters: k may be any number of rows
    that span those of X. Biases are one more row of ones in X: k + 1.

    Raises:
        OptionError: ε is not positive or k is below 1.

    >>> theorem2_count(0.5, 16)
    80.0
    """
    if eps <= 0 or patch_size < 1:
        raise OptionError(f"Theorem 2 needs ε > 0 and k ≥ 1, got ε = {eps:g}, k = {patch_size}.")
    return (1 + eps**-2) * patch_size


def theorem2_levels(
    phi: Float[Tensor, "d_model tokens"],
    w2: Float[Tensor, "d_model d_ff"],
    w1x: Float[Tensor, "d_ff tokens"],
) -> Float[Tensor, " k"]:
    """ε_j = σ_j(Φ)/(‖W_2‖₂‖W_1X‖₂), descending: as ε rises to ε_j, at least j singular values lie above ε.

    So Theorem 2 holds for every ε at once where j ≤ (1 + ε_j⁻²)k for every j.
    """
    unit = torch.linalg.matrix_norm(w2, 2) * torch.linalg.matrix_norm(w1x, 2)
    return torch.linalg.svdvals(phi) / unit
