"""Linear and nonlinear autoencoders of windows, compared with PCA."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.engine import Progress, silent
from rankscope.engine.randomness import seeded
from rankscope.errors import OptionError, check_least
from rankscope_lab.blocks.layers import ACTIVATIONS
from rankscope_lab.runs import count_parameters
from rankscope_lab.tokenizers.parts import Descent


@dataclass(frozen=True)
class AutoencoderSettings:
    """Shape and training of an autoencoder.

    Attributes:
        latent: D_L, width of the bottleneck.
        hidden: widths between window and bottleneck; the decoder has them in reverse. None at all: two linear maps.
        activation: after every layer but the last of encoder and decoder.
        batch_size: windows per step.
        learning_rate: peak of Adam's.
        epochs: passes over the windows.
        seed: of every random choice.
    """

    latent: int = 8
    hidden: tuple[int, ...] = ()
    activation: str = "gelu"
    batch_size: int = 64
    learning_rate: float = 1e-3
    epochs: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        """Validate the fields.

        Raises:
            OptionError: a number out of range.
        """
        check_least(self, 1, ("latent", "hidden", "batch_size", "epochs"))


class Autoencoder(nn.Module):
    """z = E(x), x̂ = D(z); an activation between layers, none after the last of either half."""

    def __init__(self, window: int, latent: int, hidden: Sequence[int] = (), activation: str = "gelu") -> None:
        super().__init__()
        if not latent < window:
            raise OptionError(f"a bottleneck of {latent} does not narrow windows of {window}: choose a smaller latent.")
        self.encoder = _stack((window, *hidden, latent), activation)
        self.decoder = _stack((latent, *reversed(hidden), window), activation)

    def forward(self, x: Float[Tensor, "windows window"]) -> Float[Tensor, "windows window"]:
        """Reconstruct windows."""
        return self.decoder(self.encoder(x))


def _stack(widths: Sequence[int], activation: str) -> nn.Sequential:
    layers: list[nn.Module] = []
    for wide, narrow in pairwise(widths):
        layers += [nn.Linear(wide, narrow), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers[:-1])


@dataclass(frozen=True)
class AutoencoderResult:
    """Result of a trained autoencoder.

    Attributes:
        settings: what was asked for.
        losses: mean squared error in training, by epoch; a diverged run ends early.
        train: mean squared error per value of the training windows, after the last epoch.
        test: of the test windows.
        components_train: what as many principal components leave of the training windows: no linear map leaves less.
        components_test: what the same components leave of the test windows.
        parameters: trained numbers.
        module: the weights.
    """

    settings: AutoencoderSettings
    losses: tuple[float, ...]
    train: float
    test: float
    components_train: float
    components_test: float
    parameters: int
    module: Autoencoder = field(repr=False, compare=False)

    KEYS: ClassVar = (
        "settings",
        "losses",
        "train",
        "test",
        "components_train",
        "components_test",
        "parameters",
        "diverged",
    )

    @property
    def diverged(self) -> bool:
        """An error was not finite."""
        return not all(map(math.isfinite, (*self.losses, self.train, self.test)))


def components_error(known: Float[Tensor, "windows window"], x: Float[Tensor, "others window"], count: int) -> float:
    """Mean squared error per value of ``x`` rebuilt from the mean and the leading principal components of ``known``."""
    mean = known.double().mean(0)
    _, _, axes = torch.linalg.svd(known.double() - mean, full_matrices=False)
    centred = x.double() - mean
    rest = centred - centred @ axes[:count].mT @ axes[:count]
    return float(rest.square().mean())


def train_autoencoder(
    train: Float[Tensor, "windows window"],
    test: Float[Tensor, "others window"],
    settings: AutoencoderSettings | None = None,
    *,
    progress: Progress | None = None,
) -> AutoencoderResult:
    """Train on windows by the mean squared error; the device is that of ``train``."""
    chosen, report = settings or AutoencoderSettings(), progress or silent
    with seeded(chosen.seed):
        module = Autoencoder(train.shape[1], chosen.latent, chosen.hidden, chosen.activation).to(train.device)
        steps = chosen.epochs * math.ceil(len(train) / chosen.batch_size)
        descent, losses = Descent(module.parameters(), chosen.learning_rate, steps), []
        for epoch in range(1, chosen.epochs + 1):
            total = 0.0
            for rows in torch.randperm(len(train)).split(chosen.batch_size):
                batch = train[rows.to(train.device)]
                total += descent.step(F.mse_loss(module(batch), batch)) * len(batch)
            losses.append(total / len(train))
            report(epoch, chosen.epochs, f"training error {losses[-1]:.4f}")
            if not math.isfinite(losses[-1]):
                break
    with torch.no_grad():
        known, unseen = (float((module(x) - x).double().square().mean()) for x in (train, test))
    return AutoencoderResult(
        chosen,
        tuple(losses),
        known,
        unseen,
        components_error(train, train, chosen.latent),
        components_error(train, test, chosen.latent),
        count_parameters(module),
        module,
    )
