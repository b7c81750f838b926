"""A vector-quantised autoencoder as tokenizer of series: what is chosen, and what came of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor

from rankscope.errors import OptionError
from rankscope.families._loading import write_module
from rankscope.families.models.totem import Totem
from rankscope.io import codec
from rankscope.io.atomic import atomic_folder
from rankscope_lab.measure import Ranks


@dataclass(frozen=True)
class VqSettings:
    """How a tokenizer looks and learns.

    Attributes:
        codes: of the codebook.
        d_model: width of a code.
        compression: values per code, a power of two from 2 on.
        hidden: channels of encoder and decoder.
        commitment: β, how strongly latents are drawn to their codes.
        decay: codes follow a moving average of their latents; None: they learn from the codebook loss.
        revive: codes that nothing uses start again at a latent. A moving average does so in every step, and cannot do
            without; codes with a loss do it after every epoch but the last.
        window: values of a series that are seen at once.
        batch_size: windows per step.
        learning_rate: peak of Adam's; linear warm-up, cosine to a tenth.
        epochs: each takes as many windows as lie side by side in the training rows, from a random offset.
        seed: of every random choice.
    """

    codes: int = 256
    d_model: int = 64
    compression: int = 4
    hidden: int = 64
    commitment: float = 0.25
    decay: float | None = 0.95
    revive: bool = True
    window: int = 96
    batch_size: int = 64
    learning_rate: float = 1e-3
    epochs: int = 80
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be trained.

        Raises:
            OptionError: a number out of range, or a window that codes do not divide.
        """
        for name in ("codes", "d_model", "hidden", "window", "batch_size", "epochs"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.hidden < 2 or self.compression < 2 or self.compression & (self.compression - 1):
            raise OptionError(
                f"compression must be a power of two from 2 on and hidden at least 2, got {self.compression} and "
                f"{self.hidden}."
            )
        if self.window % self.compression:
            raise OptionError(f"a code takes {self.compression} values, which do not divide a window of {self.window}.")
        if self.decay is not None and not 0 < self.decay < 1:
            raise OptionError(f"decay must lie between 0 and 1, got {self.decay:g}; None: codes learn from a loss.")
        if self.decay is not None and not self.revive:
            raise OptionError("codes of a moving average are always revived: leave revive on, or decay out.")
        if self.commitment < 0 or self.learning_rate <= 0:
            raise OptionError("commitment must be at least 0 and learning_rate above 0.")

    @property
    def update(self) -> str:
        """How codes learn, in a word: ``ema``, ``loss``, or ``revived`` (loss, unused ones start again)."""
        if self.decay is not None:
            return "ema"
        return "revived" if self.revive else "loss"

    def config(self) -> dict[str, Any]:
        """``config.json`` of a checkpoint of the TOTEM family."""
        return {
            "model_type": "totem",
            "architectures": ["Totem"],
            "hidden": self.hidden,
            "residual_hidden": self.hidden // 2,
            "residual_layers": 2,
            "codes": self.codes,
            "d_model": self.d_model,
            "compression": self.compression,
            "commitment": self.commitment,
            "decay": self.decay,
        }


@dataclass(frozen=True)
class Use:
    """How well, and with how much of the codebook, a part was rebuilt.

    Attributes:
        mse: mean squared error per value, in squared standard deviations of training.
        used: codes that occur.
        perplexity: exponential of the entropy of code use, from 1 to the number of codes.
    """

    mse: float
    used: int
    perplexity: float


@dataclass(frozen=True)
class VqPoint:
    """One epoch.

    Attributes:
        epoch: from 1.
        loss: mean training loss, commitment and codebook terms included.
        validation: after the epoch.
        revived: codes that started again at its end; of a moving average they are not counted.
    """

    epoch: int
    loss: float
    validation: Use
    revived: int = 0


@dataclass(frozen=True)
class VqResult:
    """A trained tokenizer.

    Attributes:
        settings: what was asked for.
        points: one per epoch; a diverged run ends early.
        train: the training rows, after the last epoch; None where the run diverged.
        test: the test rows.
        codebook: spectrum of the codebook.
        stream: spectrum of the test rows as codes, one code a row: the codebook weighted by use.
        parameters: trained numbers.
        seconds: of training.
        module: the weights after the last epoch.
    """

    settings: VqSettings
    points: tuple[VqPoint, ...]
    train: Use | None
    test: Use | None
    codebook: Ranks | None
    stream: Ranks | None
    parameters: int
    seconds: float
    module: Totem = field(repr=False, compare=False)

    SCHEMA: ClassVar = "rankscope/lab-vq@1"
    KEYS: ClassVar = (
        *("settings", "points", "train", "test", "codebook", "stream", "parameters", "seconds", "diverged"),
    )

    @property
    def diverged(self) -> bool:
        """A loss or an error was not finite."""
        values = [value for point in self.points for value in (point.loss, point.validation.mse)]
        return not all(map(math.isfinite, values))

    @property
    def codes(self) -> Float[Tensor, "codes d_model"]:
        """The final codebook."""
        return self.module.quantiser.codebook.weight.detach()

    def save_pretrained(self, folder: str | Path, force: bool = False) -> None:
        """Write a checkpoint that ``rankscope embed`` and ``rankscope spectrum --sites embedding`` open.

        It holds config.json and model.safetensors in TOTEM's layout, and vq.json with all else.

        Raises:
            OptionError: the run diverged.
            OutputError: the folder exists (without ``force``) or cannot be written.
        """
        if self.diverged:
            raise OptionError("the run diverged: its weights are not worth a checkpoint. Lower the learning rate.")
        with atomic_folder(folder, force) as work:
            write_module(self.module.cpu(), self.settings.config(), work)
            codec.write(work / "vq.json", self)
