"""Training of a vector-quantised autoencoder on the rows of a table."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankscope.engine.device import resolve_device
from rankscope.engine.progress import Progress, silent
from rankscope.families.models.totem import Totem
from rankscope.families.models.vector_quantiser import perplexity
from rankscope.measure.spectrum import DEFAULT_EPS
from rankscope.numerics import singular_values
from rankscope_lab.measure.record import Ranks, ranks_of
from rankscope_lab.tokenizers.parts import Descent, ScaledParts, tiles
from rankscope_lab.tokenizers.vq import Use, VqPoint, VqResult, VqSettings

SCORED = 512
"""Windows per pass when a part is scored."""


def train_vq(
    parts: ScaledParts,
    settings: VqSettings | None = None,
    *,
    eps: Sequence[float] = DEFAULT_EPS,
    device: str = "cpu",
    progress: Progress | None = None,
) -> VqResult:
    """Train a tokenizer on the training rows, every variable a series of its own.

    The codes start at latents of the first epoch's windows. A loss that is not finite ends the run: see
    `VqResult.diverged`.

    Args:
        parts: of a table.
        settings: the tokenizer, and how it learns.
        eps: tolerances of the ranks.
        device: ``cpu``, ``cuda`` or ``auto``.
        progress: told the epochs done.

    Raises:
        DataError: a part is shorter than a window.
    """
    chosen, report = settings or VqSettings(), progress or silent
    placed = parts.to(resolve_device(device))
    for name in ("train", "validation", "test"):
        tiles(getattr(placed, name), chosen.window, what=f"the {name} part of {parts.name}")
    begun = time.perf_counter()
    devices = [placed.train.device] if placed.train.is_cuda else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(chosen.seed)
        run = _Run.begin(placed, chosen)
        points: list[VqPoint] = []
        for epoch in range(1, chosen.epochs + 1):
            points.append(run.epoch(epoch))
            report(epoch, chosen.epochs, f"validation error {points[-1].validation.mse:.4f}")
            if not math.isfinite(points[-1].loss):
                break
    return _result(run, placed, tuple(points), eps, time.perf_counter() - begun)


def _result(
    run: _Run, parts: ScaledParts, points: tuple[VqPoint, ...], eps: Sequence[float], seconds: float
) -> VqResult:
    module, chosen = run.module, run.settings
    size = sum(p.numel() for p in module.parameters() if p.requires_grad)
    if not all(math.isfinite(v) for point in points for v in (point.loss, point.validation.mse)):
        return VqResult(chosen, points, None, None, None, None, size, seconds, module)
    ids, test = score(module, tiles(parts.test, chosen.window))
    codes = module.quantiser.codebook.weight.detach()
    return VqResult(
        settings=chosen,
        points=points,
        train=score(module, tiles(parts.train, chosen.window))[1],
        test=test,
        codebook=spectrum_of(codes, eps),
        stream=spectrum_of(codes[ids.flatten()], eps),
        parameters=size,
        seconds=seconds,
        module=module,
    )


def spectrum_of(matrix: Float[Tensor, "rows d_model"], eps: Sequence[float]) -> Ranks:
    """Singular values and ranks of a matrix, in float64 and not centred."""
    return ranks_of(singular_values(matrix.double(), method="svd"), eps)


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
class _Run:
    """A module in training."""

    module: Totem
    descent: Descent
    settings: VqSettings
    train: Float[Tensor, "time variables"]
    held_out: Float[Tensor, "windows window"]

    @classmethod
    def begin(cls, parts: ScaledParts, settings: VqSettings) -> _Run:
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
            revived = self._revive(hits == 0, batch)
        use = score(self.module, self.held_out)[1]
        return VqPoint(number, sum(losses) / len(x), use, revived)

    @torch.no_grad()
    def _revive(self, dead: Tensor, batch: Float[Tensor, "windows window"]) -> int:
        """Codes that the epoch never used start again at latents of its last batch, without momentum."""
        latents = self.module.encode(batch).flatten(0, 1)
        codes = self.module.quantiser.codebook.weight
        count = int(dead.sum())
        codes[dead] = latents[torch.randint(len(latents), (count,)).to(latents.device)]
        self.descent.forget(codes, dead)
        return count
