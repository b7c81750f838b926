"""VQ-VAE tokenizer of series, and its training on a table."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankscope.engine import Progress, silent
from rankscope.engine.randomness import seeded
from rankscope.errors import OptionError, check_least
from rankscope.families.loading import write_module
from rankscope.families.models.totem import Totem
from rankscope.families.models.vector_quantiser import perplexity
from rankscope.io import codec
from rankscope.io.atomic import atomic_folder
from rankscope.measure.spectrum import DEFAULT_EPS
from rankscope.numerics import singular_values
from rankscope_lab.measure.record import Ranks, ranks_of
from rankscope_lab.runs import count_parameters
from rankscope_lab.tokenizers.parts import Descent, ScaledParts, tiles


@dataclass(frozen=True)
class VqSettings:
    """Shape and training of a tokenizer.

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
        """Validate the fields.

        Raises:
            OptionError: a number out of range, or a window that codes do not divide.
        """
        check_least(self, 1, ("codes", "d_model", "window", "batch_size", "epochs"))
        check_least(self, 2, ("hidden",))
        if self.compression < 2 or self.compression & (self.compression - 1):
            raise OptionError(f"compression is {self.compression}: it must be a power of two from 2 on.")
        if self.window % self.compression:
            raise OptionError(f"a code takes {self.compression} values, which do not divide a window of {self.window}.")
        if self.decay is not None and not 0 < self.decay < 1:
            raise OptionError(f"decay must lie between 0 and 1, got {self.decay:g}; None: codes learn from a loss.")
        if self.decay is not None and not self.revive:
            raise OptionError("codes of a moving average are always revived: leave revive on, or decay out.")
        check_least(self, 0, ("commitment",))
        if not self.learning_rate > 0:
            raise OptionError(f"learning_rate is {self.learning_rate:g}: it must be above 0.")

    @property
    def update(self) -> str:
        """Learning of codes in a word: ``ema``, ``loss``, or ``revived`` (loss, unused ones start again)."""
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
    """Error of a rebuilt part, and its use of the codebook.

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
    """Result of a trained tokenizer.

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


SCORED = 512
"""Windows per pass when a part is scored."""


def train_vq(parts: ScaledParts, settings: VqSettings | None = None, *, progress: Progress | None = None) -> VqResult:
    """Train a tokenizer on the training rows, every variable a series of its own.

    The codes start at latents of the first epoch's windows. A loss that is not finite ends the run: see
    `VqResult.diverged`.

    Args:
        parts: of a table; the device is that of its values.
        settings: the tokenizer, and how it learns.
        progress: called with the epochs done.

    Raises:
        DataError: a part is shorter than a window.
    """
    chosen, report = settings or VqSettings(), progress or silent
    begun = time.perf_counter()
    tiles(parts.test, chosen.window)  # a part that is too short is found before the training, not after it
    with seeded(chosen.seed):
        run = VqTraining.begin(parts, chosen)
        points: list[VqPoint] = []
        for epoch in range(1, chosen.epochs + 1):
            points.append(run.epoch(epoch))
            report(epoch, chosen.epochs, f"validation error {points[-1].validation.mse:.4f}")
            if not math.isfinite(points[-1].loss):
                break
    return _result(run, parts, tuple(points), time.perf_counter() - begun)


def _result(run: VqTraining, parts: ScaledParts, points: tuple[VqPoint, ...], seconds: float) -> VqResult:
    module, window = run.module, run.settings.window
    bare = VqResult(run.settings, points, None, None, None, None, count_parameters(module), seconds, module)
    if bare.diverged:
        return bare
    ids, test = score(module, tiles(parts.test, window))
    return replace(
        bare,
        train=score(module, tiles(parts.train, window))[1],
        test=test,
        codebook=spectrum_of(bare.codes),
        stream=spectrum_of(bare.codes[ids.flatten()]),
    )


def spectrum_of(matrix: Float[Tensor, "rows d_model"]) -> Ranks:
    """Singular values and ranks of a matrix, in float64 and not centred."""
    return ranks_of(singular_values(matrix.double(), method="svd"), DEFAULT_EPS)


@torch.no_grad()
def score(module: Totem, x: Float[Tensor, "windows window"]) -> tuple[Int[Tensor, "windows tokens"], Use]:
    """Codes of windows, and how well they are rebuilt; the module ends in evaluation mode."""
    module.eval()
    ids, errors = [], []
    for part in x.split(SCORED):
        rebuilt = module(part)
        ids.append(rebuilt.quantised.ids)
        errors.append((rebuilt.values - part).double().square().sum())
    every = torch.cat(ids)
    mse = float(torch.stack(errors).sum()) / x.numel()
    return every, Use(mse, len(every.unique()), perplexity(every, module.quantiser.codebook.num_embeddings))


@dataclass
class VqTraining:
    """Training of a tokenizer."""

    module: Totem
    descent: Descent
    settings: VqSettings
    train: Float[Tensor, "time variables"]
    held_out: Float[Tensor, "windows window"]

    @classmethod
    def begin(cls, parts: ScaledParts, settings: VqSettings) -> VqTraining:
        """A new module, its codes at latents of the training rows."""
        module = Totem(settings.config()).to(parts.train.device)
        windows = tiles(parts.train, settings.window)
        with torch.no_grad():
            module.quantiser.start_from(module.encode(windows).flatten(0, 1))
        if settings.decay is not None:
            # the codes follow their latents, no gradient reaches them
            module.quantiser.codebook.weight.requires_grad_(False)
        steps = settings.epochs * math.ceil(len(windows) / settings.batch_size)
        descent = Descent(module.parameters(), settings.learning_rate, steps)
        return cls(module, descent, settings, parts.train, tiles(parts.validation, settings.window))

    def epoch(self, number: int) -> VqPoint:
        """All windows of a random offset, in random order."""
        size = self.settings.window
        offset = int(torch.randint(min(size, len(self.train) - size + 1), ()))
        x = tiles(self.train, size, offset)
        x = x[torch.randperm(len(x)).to(x.device)]
        self.module.train()
        hits = torch.zeros(self.settings.codes, dtype=torch.long, device=x.device)
        losses = []
        for batch in x.split(self.settings.batch_size):
            rebuilt = self.module(batch)
            losses.append(self.descent.step(rebuilt.loss) * len(batch))
            hits += torch.bincount(rebuilt.quantised.ids.flatten(), minlength=len(hits))
            if not math.isfinite(losses[-1]):
                break
        revived = 0
        if self.settings.update == "revived" and number < self.settings.epochs and math.isfinite(losses[-1]):
            revived = self.revive(hits == 0, batch)
        use = score(self.module, self.held_out)[1]
        return VqPoint(number, sum(losses) / len(x), use, revived)

    @torch.no_grad()
    def revive(self, dead: Tensor, batch: Float[Tensor, "windows window"]) -> int:
        """Reset codes unused in the epoch to latents of its last batch, with zero momentum."""
        latents = self.module.encode(batch).flatten(0, 1)
        codes = self.module.quantiser.codebook.weight
        count = int(dead.sum())
        codes[dead] = latents[torch.randint(len(latents), (count,)).to(latents.device)]
        self.descent.forget(codes, dead)
        return count
