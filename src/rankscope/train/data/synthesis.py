"""Kinds of synthetic series for shards, and the settings that determine their content."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from rankscope.choices import SHARD_FORMATS
from rankscope.errors import OptionError, check_least, unknown_choice
from rankscope.series import Columns
from rankscope.train.data.kernelsynth import kernelsynth, standardised
from rankscope.train.data.mixture import Mixture, clean_series, mix, mixed_counts
from rankscope.train.data.pool import SeriesPool
from rankscope.train.data.structured import structured_series

Series = Float[np.ndarray, "series time"]
Lengths = Int[np.ndarray, " series"]

LONGEST = 1 << 20
"""Maximum observations per series."""
MOST_VALUES = 2**31 - 1
"""Maximum values per file, since Arrow list offsets have 32 bits."""
CHUNK = 256
"""Series generated per chunk; bounds memory, and affects the content of shards."""


@dataclass(frozen=True)
class Synthesis:
    """Settings that determine a folder of shards.

    Attributes:
        kind: key of `KINDS`.
        n: number of series.
        length: maximum length of a series.
        min_length: minimum length; lengths are uniform in between. 0 means ``length``.
        seed: random seed.
        shard_size: series per file.
        format: ``arrow`` or ``parquet``.
        files: the user's series files, for kinds ``tsmixup`` and ``mixture``.
        file_share: fraction of series from those files.
        columns: non-default column names of the files.
        freq: frequency of the files (default: inferred).
    """

    kind: str
    n: int
    length: int = 1024
    min_length: int = 0
    seed: int = 0
    shard_size: int = 16384
    format: str = "arrow"
    files: tuple[str, ...] = ()
    file_share: float = 0.0
    columns: Columns | None = None
    freq: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise OptionError(unknown_choice("kind", self.kind, KINDS))
        if self.format not in SHARD_FORMATS:
            raise OptionError(unknown_choice("format", self.format, SHARD_FORMATS))
        check_least(self, 1, ("n", "length", "shard_size"))
        check_least(self, 0, ("seed",))
        if self.length > LONGEST:
            raise OptionError(f"length is {self.length}: it must be at most {LONGEST}.")
        if self.shard_size * self.length > MOST_VALUES:
            raise OptionError(
                f"shard_size {self.shard_size} times length {self.length} is more than a file holds: lower shard_size "
                f"to {MOST_VALUES // self.length}."
            )
        if not 0 <= self.min_length <= self.length:
            raise OptionError(f"min_length is {self.min_length}: it must be from 1 to length, {self.length}.")
        if self.files and self.kind not in MIXED:
            raise OptionError(f"files have no place in kind {self.kind}: choose {' or '.join(MIXED)}.")
        if not 0 <= self.file_share <= 1 or bool(self.files) != (self.file_share > 0):
            raise OptionError(
                f"file_share is {self.file_share}: it must be above 0 and at most 1 with files, and 0 without."
            )

    @property
    def shortest(self) -> int:
        """Minimum length of a series."""
        return self.min_length or self.length

    @property
    def shards(self) -> int:
        """Number of files."""
        return -(-self.n // self.shard_size)

    def rows(self, shard: int) -> int:
        """Number of series of a shard: ``shard_size``, or fewer in the last."""
        return min(self.shard_size, self.n - shard * self.shard_size)


def shard_series(
    spec: Synthesis, shard: int, pool: SeriesPool | None, tick: Callable[[int], None] = lambda done: None
) -> tuple[Series, Lengths]:
    """Generate the series of one shard.

    Args:
        spec: generation settings.
        shard: shard number; ``spec`` and this number determine the series.
        pool: series of ``spec.files``, read with `rankscope.train.data.pool.read_pool`.
        tick: called after every chunk with its number of series.

    Returns:
        float32 array (series, ``spec.length``), right-aligned, and the length of each series.
    """
    rng = np.random.default_rng([spec.seed, 83, shard])
    rows = spec.rows(shard)
    series = np.empty((rows, spec.length), dtype=np.float32)
    lengths = rng.integers(spec.shortest, spec.length + 1, rows)
    for start in range(0, rows, CHUNK):
        part = slice(start, min(start + CHUNK, rows))
        series[part] = KINDS[spec.kind](rng, lengths[part], spec, pool)
        tick(len(lengths[part]))
    begins = np.argmax(~np.isnan(series), axis=1)  # the user's series and their mixtures may start later
    return series, np.minimum(lengths, spec.length - begins)


def _structured(rng: np.random.Generator, lengths: Lengths, spec: Synthesis, pool: SeriesPool | None) -> Series:
    return structured_series(rng, len(lengths), spec.length, lengths)


def _kernelsynth(rng: np.random.Generator, lengths: Lengths, spec: Synthesis, pool: SeriesPool | None) -> Series:
    return kernelsynth(rng, len(lengths), spec.length)


def _mixture(rng: np.random.Generator, lengths: Lengths, spec: Synthesis, pool: SeriesPool | None) -> Series:
    return _sources(rng, lengths, spec, pool, Mixture().mixup_share)


def _tsmixup(rng: np.random.Generator, lengths: Lengths, spec: Synthesis, pool: SeriesPool | None) -> Series:
    """Draw mixtures of 1 to 3 series, each used once and scaled over the length of the mixture."""
    counts = mixed_counts(rng, len(lengths))
    spans = np.repeat(lengths, counts)
    parts = _sources(rng, spans, spec, pool, 0.0)
    parts[np.arange(spec.length)[None, :] < (spec.length - spans)[:, None]] = np.nan
    return mix(rng, parts, counts)


def _sources(
    rng: np.random.Generator, lengths: Lengths, spec: Synthesis, pool: SeriesPool | None, mixup_share: float
) -> Series:
    """Draw series of the training corpus before augmentation, with a separate kernel per KernelSynth series."""
    mixture = Mixture(mixup_share=mixup_share, files=spec.files, file_share=spec.file_share)
    return clean_series(rng, len(lengths), spec.length, lengths, mixture, _fresh_kernels, pool)


def _fresh_kernels(rng: np.random.Generator, n: int, length: int) -> Series:
    return standardised(kernelsynth(rng, n, length))


KINDS: dict[str, Callable[[np.random.Generator, Lengths, Synthesis, SeriesPool | None], Series]] = {
    "kernelsynth": _kernelsynth,
    "tsmixup": _tsmixup,
    "structured": _structured,
    "mixture": _mixture,
}
"""Kind → generator of a chunk's series (series, time) from their lengths."""

MIXED = ("tsmixup", "mixture")
"""Kinds that can include the user's series."""
