"""How much of a healing is over, in steps or in seconds, and the learning rate that follows from it."""

from __future__ import annotations

from time import perf_counter

from rankscope.compress.heal.config import HealConfig


class Budget:
    """Tells the share of a healing that is over.

    By steps it is a function of the step alone, so a resumed healing repeats an undisturbed one exactly. By time it is
    that of the seconds of training, those before a stop included.
    """

    def __init__(self, config: HealConfig, before: float = 0.0) -> None:
        """Take the config, and the seconds that were trained before the snapshot the healing goes on from."""
        self.steps = config.steps
        self.total = 60 * (config.minutes or 0.0)
        self.warmup = config.warmup
        self.before = before
        self.begun: float | None = None

    def begin(self) -> None:
        """Start the clock."""
        self.begun = perf_counter()

    def seconds(self) -> float:
        """Seconds of training in all."""
        return self.before + (0.0 if self.begun is None else perf_counter() - self.begun)

    def over(self, step: int) -> bool:
        """Whether the healing ends after ``step`` steps."""
        return step >= self.steps if self.steps is not None else self.seconds() >= self.total

    def share(self, step: int) -> float:
        """Share that is over when step number ``step``, from 0, begins; by steps the first one begins above 0."""
        if self.steps is not None:
            return min((step + 1) / (self.steps + 1), 1.0)
        return min(self.seconds() / self.total, 1.0)

    def rate(self, step: int) -> float:
        """Learning rate of step number ``step`` as a share of the peak: a linear rise, then a linear fall to 0."""
        share = self.share(step)
        if share < self.warmup:
            return share / self.warmup
        return (1 - share) / (1 - self.warmup)

    def told(self, step: int) -> tuple[int, int]:
        """How much is done and the total, for a progress bar: steps, or seconds."""
        if self.steps is not None:
            return step, self.steps
        return min(int(self.seconds()), int(self.total)), max(int(self.total), 1)
