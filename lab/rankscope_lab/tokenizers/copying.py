"""Copy task: a transformer reproduces eight symbols."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor, nn

from rankscope.engine import Progress, silent
from rankscope.engine.randomness import seeded
from rankscope.errors import check_least
from rankscope_lab.blocks import TokenEmbedding
from rankscope_lab.kernels import accelerate
from rankscope_lab.runs import count_parameters
from rankscope_lab.tokenizers.parts import Descent
from rankscope_lab.tokenizers.transformer import Shape, Transformer, shifted, write

START = 0
"""The token that the decoder begins with; symbols are 1, 2, …"""
EVERY = 50
"""Steps between evaluations."""


@dataclass(frozen=True)
class CopySettings:
    """The task and the training.

    Attributes:
        length: symbols of a sequence.
        symbols: to choose from.
        sequences: that are learnt by heart; None: fresh ones in every step.
        batch_size: sequences per step.
        learning_rate: peak of Adam's.
        steps: at most; training ends at the first look without an error.
        seed: of every random choice.
        shape: of the transformer.
    """

    length: int = 8
    symbols: int = 15
    sequences: int | None = None
    batch_size: int = 64
    learning_rate: float = 2e-3
    steps: int = 2000
    seed: int = 0
    shape: Shape = field(default_factory=lambda: Shape(d_model=32, d_ff=64))

    def __post_init__(self) -> None:
        """Validate the fields.

        Raises:
            OptionError: a number out of range.
        """
        check_least(self, 1, ("length", "symbols", "sequences", "batch_size", "steps"))


@dataclass(frozen=True)
class CopyResult:
    """Trained transformer of the copy task, and its errors.

    Attributes:
        settings: what was asked for.
        looks: (step, mean cross-entropy since the last look, share of wrong symbols among those learnt, or among 512
            fresh sequences where nothing is learnt by heart); written greedily, step by step.
        fresh: share of wrong symbols in 512 sequences that were never learnt.
        parameters: trained numbers.
        model: the weights.
    """

    settings: CopySettings
    looks: tuple[tuple[int, float, float], ...]
    fresh: float
    parameters: int
    model: Transformer = field(repr=False, compare=False)

    KEYS: ClassVar = ("settings", "looks", "error", "fresh", "parameters", "diverged")

    @property
    def error(self) -> float:
        """Share of wrong symbols at the last look."""
        return self.looks[-1][2]

    @property
    def diverged(self) -> bool:
        """A loss was not finite."""
        return not all(math.isfinite(loss) for _, loss, _ in self.looks)


def copier(settings: CopySettings) -> Transformer:
    """The transformer of the task, its weights drawn from torch's generator."""
    d_model, words = settings.shape.d_model, settings.symbols + 1
    source, target = TokenEmbedding(words, d_model), TokenEmbedding(words, d_model)
    return Transformer(settings.shape, source, target, nn.Linear(d_model, words), settings.length)


def copied(model: Transformer, source: Int[Tensor, "batch length"]) -> Int[Tensor, "batch length"]:
    """Decode greedily in evaluation mode."""
    model.eval()
    start = source.new_full((len(source), 1), START)
    return write(model, source, start, source.shape[1], lambda logits: logits.argmax(-1))


def wrong(model: Transformer, source: Int[Tensor, "batch length"]) -> float:
    """Return the symbol error rate."""
    return float((copied(model, source) != source).double().mean())


def train_copier(
    settings: CopySettings | None = None, *, device: str = "cpu", progress: Progress | None = None
) -> CopyResult:
    """Train with teacher-forced cross-entropy until the error rate is 0, or for all steps."""
    chosen, report = settings or CopySettings(), progress or silent
    with seeded(chosen.seed):
        model = copier(chosen).to(device)
        accelerate(model)
        known = None if chosen.sequences is None else _draw(chosen, chosen.sequences).to(device)
        fresh = _draw(chosen, 512).to(device)
        descent = Descent(model.parameters(), chosen.learning_rate, chosen.steps)
        looks: list[tuple[int, float, float]] = []
        losses: list[float] = []
        for step in range(1, chosen.steps + 1):
            losses.append(descent.step(_loss(model.train(), _batch(chosen, known, device))))
            failed = not math.isfinite(losses[-1])
            if step % EVERY and step < chosen.steps and not failed:
                continue
            error = wrong(model, fresh if known is None else known)
            looks.append((step, sum(losses) / len(losses), error))
            losses = []
            report(step, chosen.steps, f"{error:.1%} copied wrongly")
            if failed or error == 0:
                break
    return CopyResult(chosen, tuple(looks), wrong(model, fresh), count_parameters(model), model)


def _draw(settings: CopySettings, count: int) -> Int[Tensor, "batch length"]:
    return torch.randint(1, settings.symbols + 1, (count, settings.length))


def _batch(settings: CopySettings, known: Tensor | None, device: str) -> Int[Tensor, "batch length"]:
    if known is None:
        return _draw(settings, settings.batch_size).to(device)
    return known[torch.randint(len(known), (settings.batch_size,)).to(device)]


def _loss(model: Transformer, source: Int[Tensor, "batch length"]) -> Tensor:
    start = source.new_full((len(source), 1), START)
    return F.cross_entropy(model(source, shifted(source, start)).flatten(0, 1), source.flatten())
