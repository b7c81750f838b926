"""Additional findings of the audit: constant outcomes, scale of projected positions, baselines, chance level."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rankscope_lab.data.channels import LENGTH, channel_benchmark
from rankscope_lab.encoders.data import RunData, bin_baselines
from rankscope_lab.encoders.geometry import chance_cosines, untrained_positions
from rankscope_lab.encoders.published import Disagreement, disagreements, released_finding
from rankscope_lab.encoders.run_spec import RunResult, RunSpec
from rankscope_lab.encoders.tables.compute import said_of
from rankscope_lab.encoders.tables.paper import SETTINGS
from rankscope_lab.encoders.tables.spec import Measure, Protocol, Runs, diagnostic, leading_value, loss, runs_of
from rankscope_lab.statistics import paired, spread

FINDINGS = "findings"
CONTROLS = ("linear-scaled", "linear-rotated")
"""linear with positions of ppe's initial size; a projection that starts as a rotation."""
POSITIONED = ("linear", "linear-ppe", *CONTROLS)
_UNTRAINED = "untrained ppe"
_C4 = SETTINGS["C=4"]


@dataclass(frozen=True)
class Finding:
    """Measured value.

    Attributes:
        topic: ``zeros``, ``positions``, ``baselines``, ``angles``.
        quantity: what is measured.
        subject: of which encoder, data or baseline.
        mean: over seeds, where it has any; none: its runs or data are missing.
        std: sample deviation over seeds; none: fewer than two.
        n: seeds; 0 where the number has none.
        expected: what the released runs or data of the paper give; none: not known before.
        p: of the paired t-test behind a difference; none: no difference, or too few seeds.
    """

    topic: str
    quantity: str
    subject: str
    mean: float | None
    std: float | None = None
    n: int = 0
    expected: float | None = None
    p: float | None = None


@dataclass(frozen=True)
class FindingsTable:
    """All findings.

    Attributes:
        rows: by topic.
        notes: what is missing.
        disagreements: where the paper's text and its released runs differ.
    """

    rows: tuple[Finding, ...]
    notes: tuple[str, ...]
    disagreements: tuple[Disagreement, ...]


def finding_runs(asked: Protocol) -> list[RunSpec]:
    """Runs that the findings need."""
    return [_C4(encoder, seed, asked.epochs) for encoder in _positioned(asked) for seed in range(asked.seeds)]


def _positioned(asked: Protocol) -> list[str]:
    return [encoder for encoder in POSITIONED if asked.takes(encoder)]


def compute_findings(runs: Runs, asked: Protocol, etth1: RunData | None = None) -> FindingsTable:
    """Measure all findings that runs and data allow.

    Args:
        runs: spec → result.
        asked: seeds, epochs and encoders.
        etth1: its tensors; none: the baselines on it are said to be missing.
    """
    chosen = _positioned(asked)

    def of(setting: str, encoder: str) -> dict[int, RunResult]:
        found = runs_of(SETTINGS[setting], encoder, runs, asked)
        return {seed: run for seed, run in found.items() if not run.diverged}

    rows = [*_zeros(of, chosen), *_positions(of, chosen), *_baselines(etth1), *_angles(of)]
    notes = said_of(finding_runs(asked), runs)
    if etth1 is None:
        notes.append("Baselines on ETTh1 need its table: --data PATH/ETTh1.csv.")
    return FindingsTable(tuple(rows), tuple(notes), disagreements())


_Of = Callable[[str, str], dict[int, RunResult]]
"""(setting, encoder) → seed → run."""


def _over_seeds(topic: str, quantity: str, subject: str, found: dict[int, RunResult], measure: Measure) -> Finding:
    values = [value for run in found.values() if (value := measure(run)) is not None]
    summary = spread(values)
    expected = released_finding(topic, quantity, subject)
    return Finding(topic, quantity, subject, summary.known, summary.std, summary.n, expected)


def _alone(topic: str, quantity: str, subject: str, value: float | None) -> Finding:
    return Finding(topic, quantity, subject, value, expected=released_finding(topic, quantity, subject))


def _gap(
    topic: str, quantity: str, better: str, found: dict[int, RunResult], base: dict[int, RunResult], measure: Measure
) -> Finding:
    """By how much the loss is lower than that of linear, seed by seed."""
    first, second = (
        {seed: value for seed, run in runs.items() if (value := measure(run)) is not None} for runs in (found, base)
    )
    subject = f"{better}, gain"
    if not first.keys() & second.keys():
        return Finding(topic, quantity, subject, None)
    test = paired(second, first)
    return Finding(topic, quantity, subject, test.difference.mean, test.difference.std, test.difference.n, p=test.p)


def _zeros(of: _Of, encoders: Sequence[str]) -> Iterator[Finding]:
    """Seven leading outcomes are 0: six of them are scored, and learnt at once."""
    for quantity, share in _shares_of_zeros().items():
        yield _alone("zeros", quantity, "data", share)
    both = {"linear", "linear-ppe"} <= set(encoders)
    for quantity, field in (
        ("NLL, last epoch", "nll"),
        ("NLL without them", "free_nll"),
        ("accuracy, last epoch", "accuracy"),
        ("accuracy without them", "free_accuracy"),
    ):
        measure = diagnostic("prefix", field)
        for encoder in encoders:
            yield _over_seeds("zeros", quantity, encoder, of("C=4", encoder), measure)
        if both and quantity.startswith("NLL"):
            yield _gap("zeros", quantity, "linear-ppe", of("C=4", "linear-ppe"), of("C=4", "linear"), measure)


@lru_cache(maxsize=1)
def _shares_of_zeros() -> dict[str, float]:
    """In the benchmark of seed 0 at C=4: outcomes that are exactly 0, and the bins that begin and end there."""
    made = channel_benchmark(4, 512, 0)
    zero = int(made.labels[0, 0])
    return {
        "share of outcomes": float((made.outcome == 0).mean()),
        "share of the bin at 0": float((made.labels == zero).mean()),
        "share of the bin below": float((made.labels == zero - 1).mean()),
    }


def _positions(of: _Of, encoders: Sequence[str]) -> Iterator[Finding]:
    """A projection changes the size of positions besides their place: two controls tell these apart."""
    fresh = untrained_positions(4, 64, LENGTH)
    measures: tuple[tuple[str, Measure, float], ...] = (
        ("‖P‖²", diagnostic("position", "energy"), fresh.energy),
        ("top singular value", leading_value, fresh.sigma[0]),
        ("effective rank", diagnostic("position", "effective_rank"), fresh.effective_rank),
        ("share in span W", diagnostic("position", "overlap"), fresh.overlap),
    )
    for quantity, measure, before in measures:
        for encoder in encoders:
            yield _over_seeds("positions", quantity, encoder, of("C=4", encoder), measure)
        yield _alone("positions", quantity, _UNTRAINED, before)
    for encoder in encoders:
        yield _over_seeds("positions", "best NLL", encoder, of("C=4", encoder), loss)
    for encoder in encoders[1:] if "linear" in encoders else ():
        yield _gap("positions", "best NLL", encoder, of("C=4", encoder), of("C=4", "linear"), loss)


def _baselines(data: RunData | None) -> Iterator[Finding]:
    """On ETTh1 the bin of the next hour is mostly that of this hour."""
    found = None if data is None else bin_baselines(data)
    for quantity, subject, field in (
        ("accuracy", "current bin", "current"),
        ("NLL", "transition table", "transition"),
        ("NLL", "marginal", "marginal"),
        ("share of labels", "lowest bin", "lowest"),
        ("share of labels", "lowest two bins", "lowest_two"),
    ):
        yield _alone("baselines", quantity, subject, None if found is None else found[field])


def _angles(of: _Of) -> Iterator[Finding]:
    """Random directions are nearly orthogonal, too."""
    for channels in (4, 8, 16):
        chance, setting = chance_cosines(channels, 64), f"C={channels}"
        for quantity, field in (("mean |cos|", "mean"), ("max |cos|", "max")):
            yield _alone("angles", quantity, f"chance, {setting}", float(getattr(chance, field)))
            found = of(setting, "linear")
            if found:
                yield _over_seeds("angles", quantity, f"linear, {setting}", found, diagnostic("gram", field))
