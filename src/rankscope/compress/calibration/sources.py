"""Sources of calibration and probe sets: generated series, a user's own, both, or windows of a text, by name."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from rankscope.checkpoints import Checkpoint
from rankscope.compress.calibration.passes import CalibrationSet
from rankscope.compress.calibration.statistics import Calibration, digest, is_saved, load_calibration
from rankscope.compress.calibration.text import TEXT, text_set, without_count
from rankscope.compress.options import SENSITIVITY, CompressOptions
from rankscope.errors import DataError, OptionError, RankscopeError, nearest
from rankscope.series import Columns, read_series

KINDS = ("mixture", "kernelsynth")
"""Generated sets: the pretraining corpus in all its kinds, or KernelSynth series alone."""
DEFAULT, PATCHES = "mixture:256", 1024
"""Set that a model of single tokens is calibrated on, and the fewest series for one of patches."""
SHORTEST_HISTORY = 16
CONTEXT, HORIZON = 512, 64
"""Longest history that a model is calibrated at, and the values that follow where a config does not say."""
PROBE, PATCHES_PROBE = "mixture:32", "mixture:128"
"""The same for a probe."""
PROBED_WINDOWS = 32
"""Windows of a text, where the name of the probe does not say."""
PROBE_SEED = 10_007
"""Added to the seed of calibration, so that the series are others."""
_BANK_DRAWS = 4
_LENGTH = re.compile(r"(.+)@(\d{1,9})")
"""Name of a set, and the length of its histories."""


def calibration_set(
    source: str | Path,
    *,
    context: int,
    horizon: int = 64,
    seed: int = 0,
    columns: Columns | None = None,
    freq: str | None = None,
) -> CalibrationSet:
    """Make the set that ``source`` names, the same for the same seed.

    Args:
        source: ``mixture:N`` or ``kernelsynth:N`` for N generated series, a file of series for windows of them, or
            several of these with commas between.
        context: observations of a history; shorter ones are filled up with NaN on the left.
        horizon: observations that follow.
        seed: of every random choice.
        columns: non-default column names of the files.
        freq: frequency of the files (default: inferred).

    Raises:
        OptionError: an unknown kind, or a number of series below 1.
        DataError: the file cannot be used, or holds no series longer than the horizon.
    """
    parts = [part.strip() for part in str(source).split(",") if part.strip()]
    if not parts:
        raise OptionError(f"calibration set {str(source)!r} is empty: try {DEFAULT}, or name a file of series.")
    made = [
        _part(part, context, horizon, np.random.default_rng([seed, 23, index]), columns, freq)
        for index, part in enumerate(parts)
    ]
    contexts, futures = zip(*made, strict=True)
    return CalibrationSet(
        ",".join(parts),
        torch.from_numpy(np.concatenate(contexts)).float(),
        torch.from_numpy(np.concatenate(futures)).float(),
        columns,
        freq,
        seed,
    )


def default_set(checkpoint: Checkpoint, *, probe: bool = False) -> str:
    """Name of the generated series that a model is calibrated on, or probed with, by default.

    A decoder that reads one position of every series needs as many series as its feed-forward blocks have units.
    """
    patched = checkpoint.family.strategy == "continuous"
    if probe or not patched:
        return (PATCHES_PROBE if patched else PROBE) if probe else DEFAULT
    units = int(checkpoint.config.get("d_ff") or 0) if checkpoint.family.decoding == "once" else 0
    return f"mixture:{max(PATCHES, units)}"


def with_moments(how: CompressOptions) -> CompressOptions:
    """The same options, saved moments read, and the decoder that given moments were made with.

    Raises:
        OptionError: another decoder is asked for.
        DataError: the file cannot be used.
    """
    given = how.calibration
    if isinstance(given, (str, Path)) and is_saved(given):
        given = load_calibration(given)
    if not isinstance(given, Calibration):
        return how
    return replace(how, calibration=given, decoder=given.decoder(how.decoder))


def given_series(checkpoint: Checkpoint, how: CompressOptions) -> CalibrationSet | None:
    """The calibration set of a compression; None where moments are given whose series cannot be regenerated.

    Raises:
        DataError: the set that is named cannot be used.
        OptionError: the moments are those of other weights.
    """
    given = how.calibration
    if isinstance(given, CalibrationSet):
        return given
    if isinstance(given, (str, Path)) and is_saved(given):
        given = load_calibration(given)
    if not isinstance(given, Calibration):
        return named_set(checkpoint, given, seed=how.seed, columns=how.columns, freq=how.freq)
    given.check(checkpoint)
    said = given.settings
    try:
        found = named_set(checkpoint, said.corpus, seed=said.seed, columns=said.columns, freq=said.freq)
    except RankscopeError:  # a file that is elsewhere, or series that never had such a name
        return None
    return found if digest(found.context, found.future) == said.data else None


def named_set(
    checkpoint: Checkpoint,
    source: str | Path | None = None,
    *,
    seed: int = 0,
    count: int | None = None,
    probe: bool = False,
    columns: Columns | None = None,
    freq: str | None = None,
) -> CalibrationSet:
    """Make the set that ``source`` names, at the lengths of one model.

    Args:
        checkpoint: the model.
        source: of a model that forecasts, as `rankscope.compress.calibration.calibration_set` takes it,
            `default_set` by default, with ``@C`` at its end for histories of C values; of a text model ``text:FILE`` or
            ``text:FILE:N``, see `rankscope.compress.calibration.text.text_set`.
        seed: of every random choice.
        count: windows of a text whose name does not say.
        probe: of a text, draw from the part that is not calibrated on.
        columns: non-default column names of files of series.
        freq: frequency of files of series (default: inferred).

    Raises:
        OptionError: the source is not one for this kind of model.
        DataError: the file cannot be used.
    """
    if source is not None and not isinstance(source, (str, Path)):
        raise OptionError(f"calibration must be a name, a file, or calibration_set(…), not {type(source).__name__}.")
    word = None if source is None else str(source)
    if checkpoint.family.forecastable:
        if word is not None and word.startswith(TEXT):
            raise OptionError(
                f"{checkpoint.source} reads series, and {word!r} is a text: try {DEFAULT}, or name a file of series."
            )
        name = default_set(checkpoint) if word is None else word
        context, horizon = lengths(checkpoint)
        plain, context = _with_length(name, checkpoint, context)
        found = calibration_set(plain, context=context, horizon=horizon, seed=seed, columns=columns, freq=freq)
        return found if plain == name else replace(found, name=f"{found.name}@{context}")
    if word is None or not word.startswith(TEXT):
        raise OptionError(
            f"{checkpoint.source} is a {checkpoint.family.title} model, which reads text: calibrate it on text:FILE "
            "(plain text, or token ids)."
        )
    return text_set(word, checkpoint, seed=seed, count=count, probe=probe)


def _with_length(name: str, checkpoint: Checkpoint, context: int) -> tuple[str, int]:
    """Name of a set without the length of its histories, and that length: ``context`` where the name has none."""
    found = _LENGTH.fullmatch(name)
    if found is None or Path(name).exists():  # a file may be called so
        return name, context
    wanted, most = int(found[2]), checkpoint.family.context(checkpoint.config)
    if not SHORTEST_HISTORY <= wanted <= (most or wanted):
        raise OptionError(
            f"calibration set {name!r}: histories of {wanted} values are not usable, {checkpoint.source} reads "
            f"{SHORTEST_HISTORY} to {most or 'any number'}."
        )
    return found[1], wanted


def cap_note(checkpoint: Checkpoint, name: str) -> tuple[str, ...]:
    """Say that histories are shorter than what the model reads, where nobody asked for that."""
    most = checkpoint.family.context(checkpoint.config)
    if most is None or most <= CONTEXT or not checkpoint.family.forecastable or _LENGTH.fullmatch(name):
        return ()
    return (
        f"calibration set {name} has histories of {CONTEXT} values, {checkpoint.source} reads {most}: {name}@{most} "
        "has longer ones, and takes longer.",
    )


def lengths(checkpoint: Checkpoint) -> tuple[int, int]:
    """Context and horizon to calibrate at: the model's own, the context no longer than 512."""
    family, config = checkpoint.family, checkpoint.config
    return min(family.context(config) or CONTEXT, CONTEXT), min(family.horizon(config) or HORIZON, HORIZON)


def probe_set(source: Checkpoint, how: CompressOptions) -> CalibrationSet:
    """Series to probe a model with: those that are named, or generated ones.

    A text model is probed with windows of the text that it is calibrated on, from a part that calibration leaves out.

    Raises:
        OptionError: a text model, for which nothing can be generated, has none.
        DataError: what was named cannot be used.
    """
    given, looked_at = how.probe, how.calibration
    if isinstance(given, CalibrationSet):
        return given
    if given is None and source.family.forecastable:
        given = default_set(source, probe=True)
    elif given is None and (name := _name_of(looked_at)).startswith(TEXT):
        given = without_count(name)
    if given is None:
        raise OptionError(
            f"allocation {SENSITIVITY} probes a {source.family.title} model with tokens, and there are none: give a "
            "probe, text:FILE, or use allocation energy."
        )
    seed = how.seed + PROBE_SEED
    return named_set(source, given, seed=seed, count=PROBED_WINDOWS, probe=True, columns=how.columns, freq=how.freq)


def _name_of(given: Calibration | CalibrationSet | str | Path | None) -> str:
    if isinstance(given, (str, Path)) and is_saved(given):
        given = load_calibration(given)
    if isinstance(given, Calibration):
        return given.settings.corpus
    return given.name if isinstance(given, CalibrationSet) else str(given or "")


def names_file(source: str | Path | None) -> bool:
    """True if a calibration set names a file of series, alone or among others.

    >>> names_file("mixture:64,mine.csv@128"), names_file("mixture:64"), names_file("text:book.txt")
    (True, False, False)
    """
    parts = [part.strip() for part in str(source or "").split(",") if part.strip()]
    return any(part.partition(":")[0] not in (*KINDS, "text") and not is_saved(part) for part in parts)


def _part(
    part: str, context: int, horizon: int, rng: np.random.Generator, columns: Columns | None, freq: str | None
) -> tuple[np.ndarray, np.ndarray]:
    kind, colon, number = part.partition(":")
    if kind in KINDS:
        return _generated(kind, _whole(part, number), context, horizon, rng)
    file, count = (kind, _whole(part, number)) if colon and number.isdecimal() else (part, None)
    if not os.path.exists(file) and (meant := nearest(kind, KINDS)):  # a Path refuses names that are too long
        raise OptionError(f"calibration set {part!r} is neither a file nor generated series: {meant.strip()}")
    series = [_observed(one.target) for one in read_series(file, freq=freq, columns=columns, dated=False)]
    return _windows(file, series, count, context, horizon, rng)


def _whole(part: str, number: str) -> int:
    if not number.isdecimal() or int(number) < 1:
        raise OptionError(f"calibration set {part!r} needs a number of series of at least 1, e.g. {DEFAULT}.")
    return int(number)


def _generated(
    kind: str, n: int, context: int, horizon: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    from rankscope.train.data.kernelsynth import kernelsynth, standardised
    from rankscope.train.data.mixture import Mixture, corpus_batch

    if kind == "kernelsynth":
        series = kernelsynth(rng, n, context + horizon)
        return series[:, :context], series[:, context:]
    mixture = Mixture(
        kernel_share=0.25,
        mixup_share=0.15,
        short_share=0.35,
        shortest=SHORTEST_HISTORY,
        seasonal_share=0.25,
        growth_share=0.25,
    )
    bank = standardised(kernelsynth(rng, max(n, 2 * _BANK_DRAWS), context + horizon, _BANK_DRAWS))
    return corpus_batch(rng, n, context, horizon, mixture, bank.astype(np.float32))


def _windows(
    file: str, series: list[np.ndarray], count: int | None, context: int, horizon: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return one window of every series, or of ``count`` drawn at random; a short one is filled up on the left."""
    series = [values for values in series if len(values) > horizon]
    if not series:
        raise DataError(f"{file} holds no series longer than the horizon, {horizon} values: nothing to calibrate on.")
    chosen = range(len(series)) if count is None else rng.integers(len(series), size=count).tolist()
    whole = np.full((len(chosen), context + horizon), np.nan, dtype=np.float32)
    for row, index in zip(whole, chosen, strict=True):
        values = series[index]
        end = len(values) if count is None else int(rng.integers(horizon + 1, len(values) + 1))
        cut = values[max(0, end - len(row)) : end]
        row[-len(cut) :] = cut
    return whole[:, :context], whole[:, context:]


def _observed(values: np.ndarray) -> np.ndarray:
    """Series of a wide table are filled up at both ends; what is missing between observations stays."""
    known = np.flatnonzero(~np.isnan(values))
    return values[known[0] : known[-1] + 1] if len(known) else values[:0]
