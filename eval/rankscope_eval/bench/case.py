"""Benchmark cases: model, runtime, dtype and forecast size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from rankscope.choices import BENCH_RUNTIMES, DTYPES
from rankscope.errors import FamilyError, OptionError, check_count, unknown_choice
from rankscope_eval.baselines import BASELINES

LOCAL = "local"
"""Runtime of local models, which are fitted per series."""


@dataclass(frozen=True)
class Settings:
    """Settings shared by all cases of a benchmark.

    Attributes:
        batches: batch sizes; one section of the report each.
        num_samples: sample paths per series (sampling models).
        horizon: forecast horizon in steps.
        context: values per series.
        rounds: interleaved rounds.
        device: ``cpu``, ``cuda`` or ``auto``.
        threads: torch threads per process (default: torch's).
        seed: seed of series and sampling.
        timeout: time limit in seconds for loading and warm-up, and for each round.
        together: time all batch sizes in the same rounds, which makes them comparable; every model is then in memory
            once per batch size.
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
    together: bool = False

    def __post_init__(self) -> None:
        counts = {"num_samples": self.num_samples, "horizon": self.horizon, "context": self.context}
        counts |= {"rounds": self.rounds, "threads": 1 if self.threads is None else self.threads}
        if not self.batches:
            raise OptionError("batch is empty; give at least one batch size.")
        for name, value in [*counts.items(), *(("batch", one) for one in self.batches)]:
            check_count(name, value)
        if not self.timeout > 0:
            raise OptionError(f"timeout {self.timeout!r} is not a positive number of seconds.")


@dataclass(frozen=True)
class Case:
    """Benchmark case.

    Attributes:
        model: hub id, local folder, bundled name, or naive, seasonal-naive, auto-ets, auto-theta.
        runtime: ``fast``, ``stock``, ``compile``, or ``local`` for a model without a checkpoint.
        dtype: compute dtype; None for the default of `rankscope.load_pipeline`.
        batch: series per forecast.
        num_samples: sample paths per series.
        horizon: steps.
        context: values per series.
        device: ``cpu`` or ``cuda``.
        threads: torch threads; None for torch's default.
        seed: seed of series and sampling.
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
        """Command-line form of the case, without sizes.

        >>> Case("bundled", "stock", "bfloat16").label
        'bundled:stock:bfloat16'
        """
        model = self.model if self.revision is None else f"{self.model}@{self.revision}"
        return ":".join([model, self.runtime, *([self.dtype] if self.dtype else [])])


def read_case(text: str, *, runtime: str = "auto", dtype: str | None = None, revision: str | None = None) -> Case:
    """Parse ``MODEL[:RUNTIME[:DTYPE]]``, with defaults for missing parts.

    >>> read_case("bundled:stock:bfloat16").dtype, read_case("naive").runtime
    ('bfloat16', 'local')

    Raises:
        OptionError: unknown runtime or dtype.
    """
    parts = [text] if Path(text).exists() else text.split(":")
    if len(parts) > 3 or not all(parts):
        raise OptionError(f"{text!r} is not of the form MODEL, MODEL:RUNTIME or MODEL:RUNTIME:FORMAT.")
    model, how, number = [*parts, "", ""][:3]
    if model in BASELINES:
        if how:
            raise OptionError(f"{text!r} is invalid: {model} takes no runtime or dtype.")
        return Case(model, LOCAL)
    how, kind = how or runtime, number or dtype
    if how not in BENCH_RUNTIMES:
        raise OptionError(unknown_choice("runtime", how, BENCH_RUNTIMES))
    if kind is not None and kind not in DTYPES:
        raise OptionError(unknown_choice("dtype", kind, DTYPES))
    return Case(model, how, kind, revision=revision)


def checked(case: Case, device: str) -> Case:
    """Resolve ``auto`` for a device and validate the case against the model's headers.

    Raises:
        CheckpointError: no such model, or unreadable.
        FamilyError: not a forecasting model, or not supported by the runtime.
    """
    if case.runtime == LOCAL:
        return case
    from rankscope.checkpoints import open_checkpoint
    from rankscope.forecast.pipeline import resolve_runtime

    family = open_checkpoint(case.model, revision=case.revision).family
    if not family.forecastable:
        raise FamilyError(
            f"{case.model} is a {family.title} model, which rankscope cannot forecast with: name a Chronos checkpoint."
        )
    if case.runtime == "fast" and not family.fast:
        raise FamilyError(f"runtime fast does not support {family.title} ({case.model}); use stock or auto.")
    return replace(case, runtime=resolve_runtime(case.runtime, family, device))


def sized(case: Case, settings: Settings, batch: int) -> Case:
    """Return the case with the sizes of the settings."""
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
