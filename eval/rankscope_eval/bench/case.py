"""Cases that are timed: a model in a runtime and a number format, and the size of its forecast."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from rankscope.choices import BENCH_RUNTIMES, DTYPES
from rankscope.errors import FamilyError, OptionError, unknown_choice
from rankscope_eval.baselines import BASELINES

"""``compile`` is the stock pipeline with its networks under ``torch.compile``."""
LOCAL = "local"
"""Runtime of the models without a checkpoint, which are fitted series by series."""


@dataclass(frozen=True)
class Settings:
    """Size, number and device of forecasts; shared by all that is compared.

    Attributes:
        batches: series per forecast; one section of the result each.
        num_samples: sample paths per series, of models that draw them.
        horizon: steps to forecast.
        context: values per series.
        rounds: turns of everything compared.
        device: ``cpu``, ``cuda`` or ``auto``.
        threads: of torch, in every process; torch's own choice by default.
        seed: of the series and of the draws.
        timeout: seconds that a process may take to load and warm up, or for one turn.
    """

    batches: tuple[int, ...] = (1, 8, 32)
    num_samples: int = 20
    horizon: int = 64
    context: int = 512
    rounds: int = 9
    device: str = "cpu"
    threads: int | None = None
    seed: int = 0
    timeout: float = 900.0

    def __post_init__(self) -> None:
        counts = {"num_samples": self.num_samples, "horizon": self.horizon, "context": self.context}
        counts |= {"rounds": self.rounds, "threads": 1 if self.threads is None else self.threads}
        if not self.batches:
            raise OptionError("batch is empty: give at least one number of series.")
        for name, value in [*counts.items(), *(("batch", one) for one in self.batches)]:
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise OptionError(f"{name} {value!r} is not usable: give a whole number, at least 1.")
        if not self.timeout > 0:
            raise OptionError(f"timeout {self.timeout!r} is not usable: give seconds above 0.")


@dataclass(frozen=True)
class Case:
    """One thing that is timed.

    Attributes:
        model: hub id, local folder, bundled name, or naive, seasonal-naive, auto-ets, auto-theta.
        runtime: ``fast``, ``stock``, ``compile``, or ``local`` for a model without a checkpoint.
        dtype: number format to compute in; None for the stored one.
        batch: series per forecast.
        num_samples: sample paths per series.
        horizon: steps.
        context: values per series.
        device: ``cpu`` or ``cuda``.
        threads: of torch; None for its own choice.
        seed: of the series and of the draws.
        revision: branch, tag or commit of a hub model.
    """

    model: str
    runtime: str = "auto"
    dtype: str | None = None
    batch: int = 1
    num_samples: int = 20
    horizon: int = 64
    context: int = 512
    device: str = "cpu"
    threads: int | None = None
    seed: int = 0
    revision: str | None = None

    @property
    def label(self) -> str:
        """The case as it is written on the command line, without sizes.

        >>> Case("bundled", "stock", "bfloat16").label
        'bundled:stock:bfloat16'
        """
        return ":".join([self.model, self.runtime, *([self.dtype] if self.dtype else [])])


def read_case(text: str, *, runtime: str = "auto", dtype: str | None = None, revision: str | None = None) -> Case:
    """Read ``MODEL[:RUNTIME[:FORMAT]]``; what it does not say is as given.

    >>> read_case("bundled:stock:bfloat16").dtype, read_case("naive").runtime
    ('bfloat16', 'local')

    Raises:
        OptionError: the runtime or the number format is not known.
    """
    parts = [text] if Path(text).exists() else text.split(":")
    if len(parts) > 3 or not all(parts):
        raise OptionError(f"{text!r} is not usable: write MODEL, MODEL:RUNTIME or MODEL:RUNTIME:FORMAT.")
    model, how, number = [*parts, "", ""][:3]
    if model in BASELINES:
        if how:
            raise OptionError(f"{text!r} is not usable: {model} has one runtime and number format, its own.")
        return Case(model, LOCAL)
    how, kind = how or runtime, number or dtype
    if how not in BENCH_RUNTIMES:
        raise OptionError(unknown_choice("runtime", how, BENCH_RUNTIMES))
    if kind is not None and kind not in DTYPES:
        raise OptionError(unknown_choice("dtype", kind, DTYPES))
    return Case(model, how, kind, revision=revision)


def checked(case: Case) -> Case:
    """Give the case with ``auto`` resolved, after a look at the model's headers.

    Raises:
        CheckpointError: there is no such model, or it cannot be read.
        FamilyError: it forecasts no series, or the runtime does not know it.
    """
    if case.runtime == LOCAL:
        return case
    from rankscope.checkpoints import open_checkpoint

    family = open_checkpoint(case.model, revision=case.revision).family
    if not family.forecastable:
        raise FamilyError(
            f"{case.model} is a {family.title} model, which rankscope cannot forecast with: name a Chronos checkpoint."
        )
    if case.runtime == "fast" and not family.fast:
        raise FamilyError(f"runtime fast does not know {family.title} ({case.model}): use stock, or leave it at auto.")
    if case.runtime != "auto":
        return case
    return replace(case, runtime="fast" if family.fast else "stock")


def sized(case: Case, settings: Settings, batch: int) -> Case:
    """The case with the sizes of the settings."""
    return replace(
        case,
        batch=batch,
        num_samples=settings.num_samples,
        horizon=settings.horizon,
        context=settings.context,
        device=settings.device,
        threads=settings.threads,
        seed=settings.seed,
    )


def distinct(cases: Iterator[Case] | list[Case]) -> list[Case]:
    """The cases without repetitions, in order."""
    return list(dict.fromkeys(cases))
