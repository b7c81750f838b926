"""Report of the SLT study."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar

from rankscope_lab.slt.ablations import CHOICE, TIME, VALIDATED, Ablation, Setting, Side, ablation
from rankscope_lab.slt.models import MODELS, PATCHTST, SLT
from rankscope_lab.slt.published import Verdict, published_gain, published_mse, published_speed_up, verdict
from rankscope_lab.slt.run_spec import RunResult
from rankscope_lab.statistics import Paired, Spread, paired, spread

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Row:
    """Results of a model on a data set under a protocol, over seeds.

    Attributes:
        dataset: the table.
        protocol: its name.
        model: its name, with ``+revin``.
        mse: test MSE of the weights that the protocol chooses.
        mae: likewise.
        best_mse: test MSE of the weights of the best validation, whatever the protocol chooses.
        precision: of matrix products.
        diverged: runs that are in no mean.
        verdict: beside the published number.
        parameters: trained numbers.
        seconds_per_epoch: median over epochs, then mean over runs; 0 where nothing is learned.
        windows_per_second: mean over runs of the median over passes.
        machine: of the first run.
    """

    dataset: str
    protocol: str
    model: str
    mse: Spread
    mae: Spread
    best_mse: Spread
    precision: str
    diverged: int
    verdict: Verdict | None
    parameters: int
    seconds_per_epoch: float
    windows_per_second: float
    machine: str


@dataclass(frozen=True)
class Comparison:
    """Comparison of two settings on a data set, paired by seed.

    Attributes:
        question: name of the ablation.
        title: what it asks.
        dataset: the table.
        protocol: its name.
        first: a setting, or several whose errors are averaged.
        second: likewise; the difference is first less second.
        mse: of test MSE.
        relative: mean difference over the second's mean.
    """

    question: str
    title: str
    dataset: str
    protocol: str
    first: str
    second: str
    mse: Paired
    relative: float


@dataclass(frozen=True)
class SpeedUp:
    """SLT against PatchTST-like on a table, from the runs themselves: they did not take turns.

    Attributes:
        dataset: the table.
        protocol: its name.
        training: seconds per epoch of PatchTST-like over those of SLT.
        inference: windows per second of SLT over those of PatchTST-like.
        published: the inference ratio that was published.
        gain: 1 − mean MSE of SLT over that of PatchTST-like.
        published_gain: from the published numbers.
    """

    dataset: str
    protocol: str
    training: float
    inference: float
    published: float | None
    gain: float
    published_gain: float | None


@dataclass(frozen=True)
class SltReport:
    """Rows, comparisons and speed-ups of the runs."""

    rows: tuple[Row, ...]
    comparisons: tuple[Comparison, ...]
    speed_ups: tuple[SpeedUp, ...]
    runs: int
    diverged: tuple[str, ...]

    SCHEMA: ClassVar = "rankscope/lab-slt@1"

    def to_frame(self) -> pd.DataFrame:
        """One line per row of the table."""
        import pandas as pd

        lines = []
        for row in self.rows:
            spreads = ("mse", "mae", "best_mse")
            flat = {name: value for name, value in asdict(row).items() if name not in (*spreads, "verdict")}
            errors: dict[str, float | None] = {}
            for name in spreads:
                errors |= {name: getattr(row, name).mean, f"{name}_std": getattr(row, name).std}
            beside = {"published": row.verdict.published, "verdict": row.verdict.word} if row.verdict else {}
            lines.append({**flat, "runs": row.mse.n, **errors, **beside})
        return pd.DataFrame(lines)


def study_report(results: Sequence[RunResult], ablations: Sequence[str] = ()) -> SltReport:
    """Rows, comparisons and speed-ups of runs that differ in table, protocol, setting and seed."""
    groups: dict[tuple[str, str], dict[Setting, list[RunResult]]] = {}
    for result in results:
        spec = result.spec
        place = groups.setdefault((spec.dataset, spec.protocol), {})
        place.setdefault(Setting(spec.model, spec.revin), []).append(result)
    rows, comparisons, speed_ups = [], [], []
    for (dataset, name), found in groups.items():
        for setting in sorted(found, key=lambda one: (one.revin, MODELS.index(one.model))):
            rows.append(_row(dataset, name, setting, found[setting]))
        speed_ups += _speed_up(dataset, name, found)
        for question in ablations:
            comparisons += _comparisons(question, ablation(question), dataset, name, found)
    diverged = tuple(result.spec.id for result in results if result.diverged)
    return SltReport(tuple(rows), tuple(comparisons), tuple(speed_ups), len(results), diverged)


Found = Mapping[Setting, Sequence[RunResult]]


def _row(dataset: str, name: str, setting: Setting, results: Sequence[RunResult]) -> Row:
    whole = [one for one in results if not one.diverged]
    mse = spread([one.chosen.test.mse for one in whole])
    mae = spread([one.chosen.test.mae for one in whole])
    first = results[0]
    learned = first.parameters > 0
    return Row(
        dataset,
        name,
        str(setting),
        mse,
        mae,
        spread([one.best.test.mse for one in whole]),
        first.spec.precision,
        len(results) - len(whole),
        verdict(first.spec, mse.mean, mse.std) if whole else None,
        first.parameters,
        spread([one.seconds_per_epoch for one in whole]).mean if learned else 0.0,
        spread([one.windows_per_second[0] for one in whole]).mean,
        first.machine,
    )


def _speed_up(dataset: str, name: str, found: Found) -> list[SpeedUp]:
    both = [[one for one in found.get(Setting(model), ()) if not one.diverged] for model in (SLT, PATCHTST)]
    if not all(both):
        return []

    def mean(of: Callable[[RunResult], float]) -> tuple[float, float]:
        ours, theirs = ([of(one) for one in results] for results in both)
        return sum(ours) / len(ours), sum(theirs) / len(theirs)

    seconds = mean(lambda one: one.seconds_per_epoch)
    rates = mean(lambda one: one.windows_per_second[0])
    mse = mean(lambda one: one.chosen.test.mse)
    # published ratios are of the published settings
    published = all(published_mse(one.spec) is not None for results in both for one in results)
    return [
        SpeedUp(
            dataset,
            name,
            seconds[1] / seconds[0],
            rates[0] / rates[1],
            published_speed_up(dataset) if published else None,
            1 - mse[0] / mse[1],
            published_gain(dataset) if published else None,
        )
    ]


def _comparisons(question: str, asked: Ablation, dataset: str, name: str, found: Found) -> list[Comparison]:
    made = []
    for first, second in asked.pairs:
        if any(setting not in found for setting in (*first, *second)):
            continue
        ours, theirs = _errors(asked, first, second, found)
        result = paired(ours, theirs)
        base = [theirs[seed] for seed in ours.keys() & theirs.keys()]
        relative = result.difference.mean / (sum(base) / len(base)) if base else math.nan
        ends = _named(asked, first, second)
        made.append(Comparison(question, asked.title, dataset, name, *ends, result, relative))
    return made


def _errors(asked: Ablation, first: Side, second: Side, found: Found) -> tuple[dict[int, float], dict[int, float]]:
    """Seed → test MSE of both sides."""
    if asked.kind == CHOICE:
        return _by_seed(first, found, "best"), _by_seed(second, found, "last")
    if asked.kind == VALIDATED:
        return _by_seed(first, found, "best"), _by_seed(second, found, "best")
    if asked.kind == TIME:
        return _equal_time(found[first[0]], found[second[0]])
    return _by_seed(first, found), _by_seed(second, found)


def _equal_time(first: Sequence[RunResult], second: Sequence[RunResult]) -> tuple[dict[int, float], dict[int, float]]:
    ours = {one.spec.seed: one.last.test.mse for one in first if not one.diverged}
    spent = {one.spec.seed: sum(epoch.seconds for epoch in one.epochs) for one in first}
    theirs = {}
    for one in second:
        epoch = one.within(spent[one.spec.seed]) if one.spec.seed in ours and not one.diverged else None
        if epoch is not None:
            theirs[one.spec.seed] = epoch.test.mse
    return ours, theirs


def _by_seed(side: Side, found: Found, what: str = "chosen") -> dict[int, float]:
    """Seed → test MSE of the weights ``chosen`` (as the protocol says), ``last`` or ``best``, mean over the settings.

    Seeds that one of the settings has not run, or in which it diverged, are left out.
    """
    scores = [
        {one.spec.seed: getattr(one, what).test.mse for one in found[setting] if not one.diverged} for setting in side
    ]
    shared = [seed for seed in scores[0] if all(seed in one for one in scores)]
    return {seed: sum(one[seed] for one in scores) / len(scores) for seed in shared}


def _named(asked: Ablation, first: Side, second: Side) -> tuple[str, str]:
    ours, theirs = (" & ".join(map(str, side)) for side in (first, second))
    if asked.kind == CHOICE:
        return f"{ours}, best", f"{theirs}, last"
    return ours, f"{theirs}, same time" if asked.kind == TIME else theirs
