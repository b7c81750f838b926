"""The smallest checkpoint whose measured loss is still allowed."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.compress.apply import adopt, write_folder
from rankscope.compress.calibration.sources import with_moments
from rankscope.compress.joint_stream import JointStream, suited
from rankscope.compress.options import JOINT_STREAM, Budget, CompressOptions
from rankscope.compress.prepare import prepare
from rankscope.compress.report import CompressReport, LossSearch, LossStep
from rankscope.engine import Progress, silent
from rankscope.errors import DataError, OptionError, check_count
from rankscope.io.atomic import atomic_folder, refuse_existing


@dataclass(frozen=True)
class Measured:
    """A score relative to the original, and how high it may be.

    Attributes:
        value: 1 for equal, above 1 for worse.
        upper: its upper bound, with 95 % confidence; None where there is none.
    """

    value: float
    upper: float | None = None


Score = Callable[[Path], float | Measured]
"""Score of a folder relative to the original."""
STEPS = 7
"""Bisections, after which two neighbours differ by a few per cent of their size."""
CLOSE = 1.02
"""Sizes that differ by less count as equal."""
HOLDS, FAILS = "holds", "does not hold"
"""Endings of the progress messages after a size was measured."""
_CANDIDATES = ".candidates"


def compress_to_loss(
    checkpoint: Checkpoint | str | Path | None = None,
    options: CompressOptions | None = None,
    *,
    out: str | Path,
    max_loss: float,
    score: Score,
    measure: str = "score",
    steps: int = STEPS,
    force: bool = False,
    progress: Progress | None = None,
) -> CompressReport:
    """Find by bisection the smallest size ratio at which ``score(folder)`` is at most 1 + ``max_loss``, and keep it.

    Where the score has an upper bound, it is the bound that has to hold: among sizes whose scores scatter, one that
    happens to score well would be chosen else.

    Calibration, singular values and what terms are worth are shared by all steps. The least ratio that the rule can
    reach is tried first; ratio 1 only where nothing smaller holds. A score need not fall with size everywhere: the
    folder that is kept was measured and holds, one that is smaller and was not tried might hold, too.

    Args:
        checkpoint: an open checkpoint, or what `rankscope.checkpoints.open_checkpoint` takes.
        options: which matrices, and how; no size.
        out: folder to write; it appears whole or not at all.
        max_loss: L, from 0 to 1: 0.02 allows a score of 1.02.
        score: measures a folder; what is not finite does not hold.
        measure: what it measures, for the report.
        steps: bisections.
        force: replace ``out`` if it exists.
        progress: called with (step, steps, what).

    Returns:
        The report of the folder, with every step in ``search``.

    Raises:
        OptionError: the loss is out of range, or even ratio 1 does not hold; it names the nearest.
        RankscopeError: as `rankscope.compress.compress` says.
    """
    begin = time.perf_counter()
    validate_loss(max_loss)
    if options is not None and options.sizes:
        raise OptionError(f"max_loss searches for the size; remove {' and '.join(options.sizes)}.")
    check_count("steps", steps)
    refuse_existing(out, force)
    source = open_checkpoint(checkpoint)
    least, write = _writer(source, options or CompressOptions(), progress or silent)
    with atomic_folder(out, force) as folder:
        (folder / _CANDIDATES).mkdir()
        search = _Search(least, write, folder / _CANDIDATES, max_loss, score, measure, steps, progress or silent)
        best, found = search.run()
        seconds = round(time.perf_counter() - begin, 3)
        report = adopt(folder, best, replace(found, out=str(out), seconds=seconds, search=search.record()))
        shutil.rmtree(folder / _CANDIDATES)
    return report


def validate_loss(max_loss: float) -> float:
    """Return ``max_loss`` where it is from 0 to 1.

    Raises:
        OptionError: it is not.
    """
    if not 0 <= max_loss <= 1:
        raise OptionError(f"max loss {max_loss:g} is not usable: give a share from 0 to 1, e.g. 0.02 for 2 %.")
    return max_loss


Write = Callable[[float, Path, Progress], CompressReport]
"""Writes a folder with a share of all parameters."""


def _writer(source: Checkpoint, how: CompressOptions, progress: Progress) -> tuple[float, Write]:
    """The least share of all parameters, and what writes any; everything is measured once."""
    how = with_moments(how)
    narrowed = how if how.method == JOINT_STREAM else suited(source, replace(how, ratio=1.0))
    if narrowed is not None:
        both = JointStream(source, narrowed, progress)
        return both.least, lambda ratio, out, tell: both.write(Budget("ratio", ratio), out, progress=tell)
    prepared = prepare(source, how, progress=progress)

    def write(ratio: float, out: Path, tell: Progress) -> CompressReport:
        inner = replace(prepared, how=replace(prepared.how, ratio=ratio), progress=tell)
        return write_folder(inner, inner.by_budget(Budget("ratio", ratio)), out)

    return prepared.least("ratio"), write


class _Search:
    """Tries one ratio after the other; only the smallest folder that holds is kept."""

    def __init__(
        self,
        least: float,
        write: Write,
        folder: Path,
        max_loss: float,
        score: Score,
        measure: str,
        steps: int,
        progress: Progress,
    ) -> None:
        self.least, self.write, self.folder, self.max_loss = least, write, folder, max_loss
        self.score, self.measure, self.steps, self.progress = score, measure, steps, progress
        self.tried: list[LossStep] = []
        self.best: tuple[Path, CompressReport] | None = None

    def run(self) -> tuple[Path, CompressReport]:
        """Bisect sizes on a logarithmic scale."""
        low, high = self.least, 1.0
        if not self._holds(low):
            for _ in range(self.steps):
                if high < CLOSE * low:
                    break
                middle = math.sqrt(low * high)
                if self._holds(middle):
                    high = middle
                else:
                    low = middle
            if self.best is None:
                self._holds(1.0)
        if self.best is None:
            raise OptionError(self._out_of_reach())
        return self.best

    def record(self) -> LossSearch:
        """Return every size that was measured, and the loss allowed."""
        assert self.best is not None
        kept = next(step for step in reversed(self.tried) if step.holds)
        return LossSearch(self.measure, self.max_loss, kept.score, tuple(self.tried))

    def _holds(self, ratio: float) -> bool:
        target = self.folder / str(len(self.tried))
        label = f"ratio {ratio:.3g}"
        report = self.write(ratio, target, self._within(label))
        self._tell(f"{label}: {self.measure}")
        try:
            found = self.score(target)
        except OSError as error:  # which would be taken for one of writing
            raise DataError(f"{self.measure} cannot be measured: {error.strerror or error}.") from error
        measured = found if isinstance(found, Measured) else Measured(float(found))
        step = LossStep(report.ratio, measured.value, False, measured.upper)
        step = replace(step, holds=_bound(step) <= 1 + self.max_loss)
        self.tried.append(step)
        bound = "" if step.upper is None else f", at most {step.upper:.4f},"
        self._tell(f"{label}: {self.measure} {step.score:.4f}{bound} {HOLDS if step.holds else FAILS}")
        if not step.holds:
            shutil.rmtree(target)
            return False
        if self.best is not None:
            shutil.rmtree(self.best[0])
        self.best = target, report
        return True

    def _tell(self, what: str) -> None:
        self.progress(len(self.tried), self.steps + 2, what)

    def _within(self, label: str) -> Progress:
        def report(_done: int, _total: int, what: str) -> None:
            self._tell(f"{label}: {what}")

        return report

    def _out_of_reach(self) -> str:
        """Say the nearest loss that would have been allowed, rounded up so that asking for it succeeds."""
        finite = [step for step in self.tried if math.isfinite(_bound(step))]
        if not finite:
            return f"max loss {self.max_loss:g} is out of reach: {self.measure} is not finite at any ratio."
        nearest = min(finite, key=_bound)
        last = _bound(self.tried[-1])
        return (
            f"max loss {self.max_loss:g} is out of reach: even at ratio 1 {self.measure} is {last:.4f} at most; the "
            f"nearest is a max loss of {math.ceil((_bound(nearest) - 1) * 1e4) / 1e4:g}, at ratio {nearest.ratio:.3g}."
        )


def _bound(step: LossStep) -> float:
    """The upper bound, or the score where there is none; infinite where one of them is not a number."""
    ends = (step.score, step.score if step.upper is None else step.upper)
    return max(ends) if all(map(math.isfinite, ends)) else math.inf
