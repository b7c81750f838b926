"""Published results of the SLT benchmark, and the difference between duplicate publications."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from rankscope_lab.slt.forecasters import HORIZON, LOOKBACK
from rankscope_lab.slt.models import PATCHTST, SLT
from rankscope_lab.slt.run_spec import RELEASED, RunSpec

PUBLISHED_NOISE, OWN_SPREAD = "published twice", "2 std of ours"


def published_mse(spec: RunSpec) -> float | None:
    """Return the published test MSE of a run's data set and model; None for other settings."""
    plain = spec.protocol == RELEASED.name and not spec.revin and spec.epochs == RELEASED.epochs
    if not plain or (spec.lookback, spec.horizon) != (LOOKBACK, HORIZON):
        return None
    found: float | None = _row(spec.dataset).get(spec.model)
    return found


def published_noise(dataset: str, model: str) -> float | None:
    """Distance of the two numbers that were published for a run; None where there is one.

    >>> round(published_noise("ETTh1", "patchtst"), 4)
    0.0217
    """
    earlier = _table()["earlier"]["mse"].get(_spelt(dataset), {}).get(model)
    return None if earlier is None else abs(earlier - _row(dataset)[model])


def published_speed_up(dataset: str) -> float | None:
    """Return the published ratio of inference rates, SLT / PatchTST-like."""
    found: float | None = _table()["speed_up"].get(_spelt(dataset))
    return found


def published_gain(dataset: str) -> float | None:
    """Return the published 1 − MSE(SLT) / MSE(PatchTST-like)."""
    row = _row(dataset)
    return 1 - row[SLT] / row[PATCHTST] if row else None


@dataclass(frozen=True)
class Verdict:
    """Comparison of a mean with a published value.

    Attributes:
        published: the number.
        difference: ours less it.
        tolerance: what counts as equal; None where nothing says how much the number moves.
        basis: where the tolerance comes from.
        word: ``within``, ``lower``, ``higher``, or ``–`` without a tolerance.
    """

    published: float
    difference: float
    tolerance: float | None
    basis: str
    word: str


def verdict(spec: RunSpec, mean: float, std: float | None) -> Verdict | None:
    """Compare a mean over seeds; None where nothing was published.

    The tolerance is how far two publications of the same number lie apart where there are two (ETTh1), else twice the
    standard deviation of our seeds: the published runs are one each, without a seed.
    """
    published = published_mse(spec)
    if published is None:
        return None
    noise, basis = published_noise(spec.dataset, spec.model), PUBLISHED_NOISE
    if noise is None:
        noise, basis = (None, "") if std is None else (2 * std, OWN_SPREAD)
    difference = mean - published
    if noise is None:
        word = "–"
    elif abs(difference) <= noise:
        word = "within"
    else:
        word = "lower" if difference < 0 else "higher"
    return Verdict(published, difference, noise, basis, word)


def _row(dataset: str) -> dict[str, float]:
    found: dict[str, float] = _table()["mse"].get(_spelt(dataset), {})
    return found


def _spelt(dataset: str) -> str:
    """The table's name as it was published: files write some in small letters."""
    return next((name for name in _table()["mse"] if name.casefold() == dataset.casefold()), dataset)


@functools.cache
def _table() -> dict[str, Any]:
    text = files("rankscope_lab.slt").joinpath("published.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found
