"""The paper's Table 2 for any checkpoint: compression methods across size ratios."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, cast

import numpy as np

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.choices import ALLOCATIONS, METHOD_NAMES, WHOLE_MODEL, Allocation, Method
from rankscope.compress import CompressOptions, CompressReport, compress
from rankscope.compress.calibration import Calibration, calibrate, fingerprint, load_calibration
from rankscope.compress.heal import HealConfig, HealReport, heal
from rankscope.compress.options import SENSITIVITY, needs_calibration, validate_ratio
from rankscope.engine import Progress, silent
from rankscope.engine.device import resolve_device
from rankscope.errors import (
    CheckpointError,
    DataError,
    FamilyError,
    OptionError,
    OutputError,
    RankscopeError,
    check_count,
    unknown_choice,
)
from rankscope.measure.tradeoff import (
    DONE,
    FAILED,
    OUT_OF_REACH,
    DatasetScore,
    Judgement,
    Original,
    Table2Point,
    Table2Report,
    by_row,
    row_key,
)
from rankscope.train.data.mixture import CORPUS_VERSION
from rankscope_eval.relative import Sums
from rankscope_eval.report import EvalRow, summarise
from rankscope_eval.tradeoff.folder import KeptOriginal, KeptPoint, Table2Folder
from rankscope_eval.tradeoff.scorers import OVERLAP_SEED, ForecastScorer, TextScorer, TradeoffOptions

RATIOS = (0.5, 0.25, 0.15, 0.1, 0.075, 0.05)
RANKED = tuple(name for name in METHOD_NAMES if name not in WHOLE_MODEL)
"""Methods that cut the selected matrices."""
METHODS = ("svd", "asvd", "whitened", "theorem3", "joint")
HEALED = "+healed"
"""Suffix of methods that are healed after compression."""
HEAL_STEPS = 300
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Grid:
    """Grid of points.

    Attributes:
        ratios: size ratios of the attention matrices, in (0, 1].
        methods: methods of `rankscope.compress.compress`; ``joint+healed`` is healed afterwards.
        allocations: names of `rankscope.choices.ALLOCATIONS`, combined with every method (default: each method's own).
        seeds: seeds for calibration and healing; methods without randomness are measured once.
        heal_steps: optimiser steps of healing, with batches of 32 series.
    """

    ratios: tuple[float, ...] = RATIOS
    methods: tuple[str, ...] = METHODS
    allocations: tuple[str, ...] = ()
    seeds: tuple[int, ...] = SEEDS
    heal_steps: int = HEAL_STEPS

    def __post_init__(self) -> None:
        for name in ("ratios", "methods", "seeds"):
            if not getattr(self, name):
                raise OptionError(f"{name} is empty: give at least one.")
        for ratio in self.ratios:
            validate_ratio(ratio)
        for method in self.methods:
            if method in WHOLE_MODEL:
                raise OptionError(
                    f"method {method!r} cuts more than attention, and table2 compares methods for attention: "
                    f"choose from {', '.join(RANKED)}."
                )
            if plain(method) not in RANKED:
                raise OptionError(unknown_choice("method", method, (*RANKED, *HEALED_NAMES)))
        for allocation in self.allocations:
            if allocation not in ALLOCATIONS:
                raise OptionError(unknown_choice("allocation", allocation, ALLOCATIONS))
        check_count("heal_steps", self.heal_steps)
        for seed in self.seeds:
            if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < OVERLAP_SEED:
                raise OptionError(f"seed {seed!r} is not usable: give a whole number from 0 to {OVERLAP_SEED - 1}.")

    def points(self) -> tuple[Table2Point, ...]:
        """Return all points, unmeasured, largest ratio first."""
        found = []
        ratios = sorted(set(self.ratios), reverse=True)
        for ratio, method, allocation in product(ratios, self.methods, self.allocations or ("default",)):
            for seed in self.seeds if seeded(method) else (None,):
                end = "" if seed is None else f"-seed{seed}"
                steps = self.heal_steps if heals(method) else None
                end += "" if steps is None else f"-{steps}steps"
                share = f"{ratio:g}" if float(f"{ratio:g}") == ratio else repr(ratio)
                name = f"{share}-{method}-{allocation}{end}"
                found.append(Table2Point(name, ratio, method, allocation, seed, heal_steps=steps))
        return tuple({point.name: point for point in found}.values())


HEALED_NAMES = tuple(f"{name}{HEALED}" for name in RANKED)


def heals(method: str) -> bool:
    """Return whether a method includes healing."""
    return method.endswith(HEALED)


def plain(method: str) -> str:
    """Return the name of a method without the healing suffix.

    >>> plain("joint+healed")
    'joint'
    """
    return method.removesuffix(HEALED)


def seeded(method: str) -> bool:
    """Return whether a method depends on a seed, for calibration, healing or its own randomness."""
    return heals(method) or needs_calibration(method) or method == "random"


def run_table2(
    model: Checkpoint | str | Path | None,
    out: str | Path,
    *,
    grid: Grid | None = None,
    options: TradeoffOptions | None = None,
    resume: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> Table2Report:
    """Compress a model at every point of a grid and compare each with the original.

    All measurements use the same series, seeds and device as for the original. ``resume`` continues an interrupted run
    and keeps finished points; a larger grid adds to them.

    Args:
        model: open checkpoint, or an argument of `open_checkpoint`.
        out: output folder, for ``table2.json``, ``.csv``, ``.md``, ``.png`` and ``.svg``.
        grid: ratios, methods, allocations, seeds.
        options: data and measurement settings.
        resume: continue the table in ``out``.
        force: overwrite the table in ``out``.
        progress: callback ``(points done, points, what)``.

    Returns:
        All points in ``out``, including unreachable ratios and failures with their reasons.

    Raises:
        OptionError: an option is unknown or out of range, or no text is given for a text model.
        OutputError: ``out`` exists, holds something else, or a table with other settings.
        DataError: invalid suite, data, calibration set or text.
        CheckpointError: unreadable model.
        RankscopeError: another process is working on this table.
    """
    points = (grid or Grid()).points()
    checkpoint = open_checkpoint(model)
    scorer = _scorer(checkpoint, options or TradeoffOptions())
    settings = {"model": checkpoint.source, "weights": fingerprint(checkpoint), **scorer.settings()}
    known = {name: value for name, value in settings.items() if name != "model"}
    if checkpoint.family.forecastable:  # calibration, probing and healing use synthetic series
        known["corpus_version"] = CORPUS_VERSION
    folder = Table2Folder(Path(out).resolve(), checkpoint.source, known)
    with folder.opened(resume, force):
        _Run(checkpoint, scorer, folder, progress or silent).go(points)
        report = _report(checkpoint, settings, folder, scorer.options.margin)
        folder.write(report)
        if any(point.state == DONE for point in report.points):
            from rankscope.plots.style import save_figure
            from rankscope.plots.tradeoff import table2

            save_figure(table2(report), folder.root / "table2")
        return report


def _scorer(checkpoint: Checkpoint, options: TradeoffOptions) -> ForecastScorer | TextScorer:
    how = replace(options.how, device=resolve_device(options.how.device))
    return (ForecastScorer if checkpoint.family.forecastable else TextScorer)(checkpoint, replace(options, how=how))


class _Run:
    """Run of the unmeasured points."""

    def __init__(
        self, checkpoint: Checkpoint, scorer: ForecastScorer | TextScorer, folder: Table2Folder, progress: Progress
    ) -> None:
        self.checkpoint, self.scorer, self.folder, self.progress = checkpoint, scorer, folder, progress

    def go(self, points: Sequence[Table2Point]) -> None:
        """Measure all missing points."""
        left = [point for point in points if point not in self.folder]
        original = self.folder.original()
        if original is None:
            original = self.scorer.original(self.progress)
            self.folder.keep_original(original)
        seeds = {point.seed for point in left if point.seed is not None and needs_calibration(plain(point.method))}
        for seed in sorted(seeds):
            self._calibrate(seed)
        for done, point in enumerate(left):
            progress = self._within(done, len(left), point.name)
            self.folder.keep(*self._measured(point, original.original, progress))
            self.progress(done + 1, len(left), point.name)

    def _within(self, done: int, total: int, name: str) -> Progress:
        def report(_done: int, _total: int, what: str) -> None:
            self.progress(done, total, f"{name}: {what}")

        return report

    def _calibrate(self, seed: int) -> None:
        file = self.folder.moments(seed)
        file.parent.mkdir(exist_ok=True)
        series = self.scorer.calibration(seed)
        calibrate(self.checkpoint, series, file=file, device=self.scorer.options.how.device, progress=self.progress)

    def _moments(self, point: Table2Point) -> Calibration | None:
        if point.seed is None or not needs_calibration(plain(point.method)):
            return None
        return load_calibration(self.folder.moments(point.seed))

    def _measured(
        self, point: Table2Point, original: Original, progress: Progress
    ) -> tuple[Table2Point, dict[str, Sums]]:
        progress(0, 0, "compressing")
        try:
            made = self._compress(point, progress)
            healed = self._heal(point, progress)
        except (OptionError, FamilyError) as error:
            shutil.rmtree(self.folder.work, ignore_errors=True)
            return replace(point, state=OUT_OF_REACH, reason=str(error)), {}
        except OutputError:
            raise
        except RankscopeError as error:  # a healing that diverged, moments that are not numbers
            shutil.rmtree(self.folder.work, ignore_errors=True)
            return replace(point, state=FAILED, reason=str(error)), {}
        point = replace(point, allocation=made.allocation)
        try:
            measures, scores, sums = self.scorer.compare(self.folder.work, original, progress)
        except (DataError, CheckpointError) as error:
            return replace(point, state=FAILED, reason=str(error)), {}
        finally:
            shutil.rmtree(self.folder.work, ignore_errors=True)
        measures = replace(
            measures,
            reached=made.selected_ratio,
            compress_seconds=made.seconds,
            heal_seconds=None if healed is None else healed.seconds,
        )
        return replace(point, measures=measures, scores=scores), sums

    def _compress(self, point: Table2Point, progress: Progress) -> CompressReport:
        return compress(
            self.checkpoint,
            CompressOptions(
                attention_ratio=point.ratio,
                method=cast(Method, plain(point.method)),
                allocation=None if point.allocation == "default" else cast(Allocation, point.allocation),
                calibration=self._moments(point),
                probe=self.scorer.probe(point.seed or 0) if point.allocation == SENSITIVITY else None,
                seed=point.seed or 0,
            ),
            out=self.folder.work,
            force=True,
            progress=progress,
        )

    def _heal(self, point: Table2Point, progress: Progress) -> HealReport | None:
        if point.heal_steps is None:
            return None
        return heal(
            self.folder.work,
            self.checkpoint,
            HealConfig(steps=point.heal_steps, seed=point.seed or 0),
            out=self.folder.work,
            force=True,
            device=self.scorer.options.how.device,
            progress=progress,
        )


def _report(checkpoint: Checkpoint, settings: dict[str, Any], folder: Table2Folder, margin: float) -> Table2Report:
    kept = folder.original()
    assert kept is not None
    same: dict[tuple[object, ...], KeptPoint] = {}  # a method's own allocation may have been named, too
    for one in folder.points():
        same.setdefault((*row_key(one.point), one.point.seed), one)
    found = {one.point.name: one for one in same.values()}
    order = dict.fromkeys((*METHODS, *RANKED, *HEALED_NAMES))
    rank = {name: position for position, name in enumerate(order)}
    points = sorted(
        (one.point for one in found.values()),
        key=lambda one: (
            -one.ratio,
            rank.get(one.method, len(rank)),
            one.allocation,
            one.heal_steps or 0,
            one.seed or 0,
        ),
    )
    judgements = [
        _judgement([found[point.name] for point in group if point.scores], kept, margin)
        for group in by_row(points).values()
        if any(point.scores for point in group)
    ]
    return Table2Report(
        checkpoint.source, checkpoint.family.name, settings, kept.original, tuple(points), tuple(judgements)
    )


def _judgement(points: Sequence[KeptPoint], original: KeptOriginal, margin: float) -> Judgement:
    """Judge a row: losses averaged over its seeds, against the original's."""
    rows = [*_rows("model", [(one.point.scores, one.sums) for one in points])]
    rows += _rows("original", [(original.original.scores, original.sums)])
    whole = summarise(rows, ["model"], "original", margin)[-1]
    assert whole.WQL_verdict is not None
    assert whole.MASE_verdict is not None
    return Judgement(
        *row_key(points[0].point),
        whole.relative_WQL,
        whole.relative_MASE,
        whole.WQL_interval,
        whole.MASE_interval,
        whole.WQL_verdict,
        whole.MASE_verdict,
    )


def _rows(name: str, runs: Sequence[tuple[Sequence[DatasetScore], Mapping[str, Sums]]]) -> Iterator[EvalRow]:
    """Rows of a model, averaged over its runs."""
    for same in zip(*(scores for scores, _ in runs), strict=True):
        place = f"{same[0].benchmark}/{same[0].dataset}"
        mase, wql = (fmean(_known(getattr(one, metric)) for one in same) for metric in ("MASE", "WQL"))
        sums = np.mean([sums[place] for _, sums in runs], axis=0)
        first, bands = same[0], sums[:, None]
        kept = {"source": first.source, "bands": bands}
        yield EvalRow(first.benchmark, first.dataset, name, mase, wql, len(sums), 0, 0, 0, math.nan, **kept)


def _known(score: float | None) -> float:
    return math.nan if score is None else score
