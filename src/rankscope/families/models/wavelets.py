"""The tokenizer of WaveToken: wavelet coefficients in uniform bins (Masserano et al. 2025)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from math import log, sqrt
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from rankscope.errors import CheckpointError, DataError, nearest, unknown_choice

PAD, END = 0, 1
SPECIAL = 2
"""Ids below this are padding and the end of a series; bins follow."""
THRESHOLDS = ("none", "universal")
_PERIODIC = "periodization"  # the one boundary rule that gives as many coefficients as values
_MAD_OF_NORMAL = 0.6744897501960817  # median of |N(0, 1)|


@dataclass(frozen=True)
class WaveletTokens:
    """Wavelet tokenizer: a series becomes token ids.

    Attributes:
        wavelet: a discrete wavelet of PyWavelets; the published one is biorthogonal.
        level: decompositions; a series is cut to a multiple of 2^level values.
        n_tokens: size of the vocabulary, special ids included.
        limit: bins cover coefficients in [−limit, limit] of the standardised series; others fall into the outer bins.
        threshold: ``universal`` sets detail coefficients below σ̂ √(2 ln n) to zero (Donoho and Johnstone 1994), σ̂
            from the median of the finest ones; ``none`` keeps all.
    """

    wavelet: str = "bior2.2"
    level: int = 1
    n_tokens: int = 1024
    limit: float = 15.0
    threshold: str = "none"

    def __post_init__(self) -> None:
        if self.threshold not in THRESHOLDS:
            raise CheckpointError(unknown_choice("wavetoken.threshold", self.threshold, THRESHOLDS))
        if self.level < 1 or self.n_tokens < SPECIAL + 2 or not self.limit > 0:
            raise CheckpointError(
                f"wavetoken: level {self.level}, n_tokens {self.n_tokens}, limit {self.limit}: the level must be at "
                f"least 1, the vocabulary at least {SPECIAL + 2} and the limit above 0."
            )
        names = _pywt().wavelist(kind="discrete")
        if self.wavelet not in names:
            raise CheckpointError(
                f"wavetoken.wavelet {self.wavelet!r} is not known: {nearest(self.wavelet, names)}PyWavelets has "
                f"{len(names)} discrete ones, bior2.2 among them."
            )

    @classmethod
    def of(cls, part: object) -> WaveletTokens:
        """Read the ``wavetoken`` object of a config.

        Raises:
            CheckpointError: it is none, or a setting is unknown or out of range.
        """
        if not isinstance(part, Mapping):
            raise CheckpointError(f"config.json: wavetoken must be an object, found {part!r}.")
        known = {key: value for key, value in part.items() if key in cls.__dataclass_fields__}
        for key, value in known.items():
            wanted: Any = {"wavelet": str, "threshold": str, "level": int, "n_tokens": int}.get(key, (int, float))
            if isinstance(value, bool) or not isinstance(value, wanted):
                raise CheckpointError(
                    f"config.json: wavetoken.{key} is {value!r}; use the config saved with the weights."
                )
        return cls(**known)

    @property
    def multiple(self) -> int:
        """Series are cut to a multiple of this many values."""
        return 2**self.level

    def encode(self, values: Float[np.ndarray, " time"]) -> Int[np.ndarray, " tokens"]:
        """Token ids of a standardised series: coarse coefficients first, then details from coarse to fine.

        The oldest values beyond a multiple of 2^level are dropped.

        Raises:
            DataError: the series is shorter than 2^level.
        """
        if len(values) < self.multiple:
            raise DataError(
                f"a series of {len(values)} values is too short for a wavelet of level {self.level}: "
                f"give at least {self.multiple}."
            )
        parts = self.decompose(values[len(values) % self.multiple :])
        if self.threshold == "universal":
            parts = [parts[0], *universal_threshold(parts[1:])]
        return self.quantise(np.concatenate(parts))

    def decompose(self, values: Float[np.ndarray, " time"]) -> list[Float[np.ndarray, " _"]]:
        """Coefficients, coarse to fine: as many as values."""
        with warnings.catch_warnings():
            # a short series has no coefficient away from its ends; the periodic rule inverts those, too
            warnings.filterwarnings("ignore", message="Level value of")
            return list(_pywt().wavedec(values, self.wavelet, mode=_PERIODIC, level=self.level))

    def quantise(self, coefficients: Float[np.ndarray, " tokens"]) -> Int[np.ndarray, " tokens"]:
        """Id of the nearest of the evenly spaced bins of each coefficient, the first and last at the limits."""
        step = 2 * self.limit / (self.n_tokens - SPECIAL - 1)
        nearest = np.rint((np.asarray(coefficients, dtype=np.float64) + self.limit) / step)
        return SPECIAL + np.clip(nearest, 0, self.n_tokens - SPECIAL - 1).astype(np.int64)


def universal_threshold(details: list[Float[np.ndarray, " _"]]) -> list[Float[np.ndarray, " _"]]:
    """Detail coefficients (coarse to fine), those below ``σ̂ √(2 ln n)`` set to zero."""
    n = sum(len(part) for part in details)
    noise = float(np.median(np.abs(details[-1]))) / _MAD_OF_NORMAL
    least = noise * sqrt(2 * log(max(n, 1)))
    return [np.where(np.abs(part) < least, 0.0, part) for part in details]


def _pywt() -> ModuleType:
    try:
        import pywt
    except ImportError:
        raise CheckpointError(
            "WaveToken needs PyWavelets, which is not installed: pip install 'rankscope[wavelets]'."
        ) from None
    return pywt
