import numpy as np
import pytest
import torch
from scipy.special import expit

from rankscope.families.models.time_moe import GatedSwish, swish


@pytest.mark.parametrize("beta", [0.3, 1.0, 4.0])
def test_swish_is_its_formula(beta: float) -> None:
    x = np.linspace(-30, 30, 241)
    np.testing.assert_allclose(swish(torch.from_numpy(x), beta).numpy(), x * expit(beta * x), rtol=1e-12, atol=1e-15)


def test_one_is_silu() -> None:
    x = torch.linspace(-5, 5, 50)
    torch.testing.assert_close(swish(x), torch.nn.functional.silu(x))


@pytest.mark.parametrize("beta", [1.0, 2.5])
def test_embedding_follows_corollary_2(beta: float) -> None:
    """φ_i(x) = w_i v_i x² / (1 + exp(−β w_i x)): the corollary's formula, with the weight inside the sigmoid."""
    torch.manual_seed(0)
    layer = GatedSwish(7, beta).double()
    x = np.linspace(-2, 2, 11)
    w = layer.gate_layer.weight.detach().numpy()[:, 0]
    v = layer.emb_layer.weight.detach().numpy()[:, 0]
    want = w * v * x[:, None] ** 2 / (1 + np.exp(-beta * w * x[:, None]))
    np.testing.assert_allclose(layer(torch.from_numpy(x)).detach().numpy(), want, rtol=1e-12, atol=1e-15)


def test_scale_of_a_feature_is_the_product_of_its_weights() -> None:
    layer = GatedSwish(3).double()
    x = torch.linspace(-1, 1, 5, dtype=torch.float64)
    before = layer(x)
    with torch.no_grad():
        layer.emb_layer.weight.mul_(3)
    torch.testing.assert_close(layer(x), 3 * before)
