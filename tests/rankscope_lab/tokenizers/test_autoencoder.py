"""The linear autoencoder against principal components."""

import numpy as np
import pytest
import torch

from rankscope.errors import OptionError
from rankscope.io import codec
from rankscope_lab.tokenizers.autoencoder import (
    Autoencoder,
    AutoencoderSettings,
    components_error,
    train_autoencoder,
)

WIDTH, LATENT = 6, 2


@pytest.fixture
def windows() -> tuple[torch.Tensor, np.ndarray]:
    """Rows whose covariance has these eigenvalues exactly."""
    eigenvalues = np.array([4.0, 2.0, 0.3, 0.2, 0.1, 0.05])
    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, WIDTH))
    x = np.linalg.qr(x - x.mean(0))[0] * np.sqrt(400)
    turn = np.linalg.qr(rng.standard_normal((WIDTH, WIDTH)))[0]
    return torch.from_numpy(x * np.sqrt(eigenvalues) @ turn.T + 1.5).float(), eigenvalues


def test_components_leave_the_discarded_eigenvalues(windows: tuple[torch.Tensor, np.ndarray]) -> None:
    x, eigenvalues = windows
    for count in range(WIDTH + 1):
        assert components_error(x, x, count) == pytest.approx(eigenvalues[count:].sum() / WIDTH, abs=1e-6)


def test_a_linear_autoencoder_finds_the_principal_components(windows: tuple[torch.Tensor, np.ndarray]) -> None:
    x, eigenvalues = windows
    settings = AutoencoderSettings(LATENT, batch_size=400, learning_rate=0.02, epochs=700)
    result = train_autoencoder(x, x[:100], settings)
    best = eigenvalues[LATENT:].sum() / WIDTH
    assert best <= result.train * (1 + 1e-5)
    assert result.train < 1.02 * best
    assert result.components_train == pytest.approx(best, abs=1e-6)
    axes = np.linalg.svd(x.numpy() - x.numpy().mean(0), full_matrices=False)[2][:LATENT]
    span = np.linalg.qr(result.module.decoder[0].weight.detach().numpy())[0]
    cosines = np.linalg.svd(axes @ span)[1]
    assert cosines.min() > 0.99
    assert not result.diverged
    assert codec.plain(result)["test"] == result.test


def test_layers_and_activations() -> None:
    module = Autoencoder(16, 3, (8, 5), "relu")
    kinds = [type(layer).__name__ for layer in (*module.encoder, *module.decoder)]
    assert kinds == ["Linear", "ReLU", "Linear", "ReLU", "Linear"] * 2
    assert [layer.out_features for layer in module.decoder[::2]] == [5, 8, 16]
    assert module.encoder(torch.randn(4, 16)).shape == (4, 3)
    assert module(torch.randn(4, 16)).shape == (4, 16)


def test_a_curve_is_beyond_components_but_not_beyond_a_nonlinear_autoencoder() -> None:
    t = torch.linspace(0, 2 * np.pi, 256)[:, None]
    circle = torch.cat([t.cos(), t.sin(), (2 * t).cos(), (2 * t).sin()], 1)
    settings = AutoencoderSettings(1, (16, 16), batch_size=256, learning_rate=0.02, epochs=150)
    result = train_autoencoder(circle, circle, settings)
    assert result.train < 0.5 * result.components_train


def test_seeds_and_divergence(windows: tuple[torch.Tensor, np.ndarray]) -> None:
    x, _ = windows
    short = AutoencoderSettings(LATENT, epochs=2)
    state = torch.random.get_rng_state()
    first = train_autoencoder(x, x, short)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert first.losses == train_autoencoder(x, x, short).losses
    bad = train_autoencoder(x * 1e30, x, short)
    assert bad.diverged
    assert len(bad.losses) == 1


def test_bad_input() -> None:
    with pytest.raises(OptionError, match="a bottleneck of 16 does not narrow windows of 16"):
        Autoencoder(16, 16)
    with pytest.raises(OptionError, match="at least 1"):
        AutoencoderSettings(hidden=(0,))
