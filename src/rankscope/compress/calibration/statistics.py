"""Calibration statistics of a model: moments of every layer's input, their settings, and their file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.checkpoints import Checkpoint
from rankscope.choices import DECODERS, Decoder
from rankscope.compress.calibration.moments import InputMoments, from_tensors, to_tensors
from rankscope.compress.calibration.passes import stream_of
from rankscope.engine.memory import give_back, on_disk
from rankscope.errors import DataError, OptionError
from rankscope.families import Site
from rankscope.io import codec
from rankscope.io.atomic import atomic_file
from rankscope.io.run_store import differences
from rankscope.series import Columns

SCHEMA = "rankscope/calibration@3"
EARLIER = ("rankscope/calibration@1", "rankscope/calibration@2")
"""They weighted every position alike, the first held Σ n x̄ x̄ᵀ in the place of its rows; both are read."""
FACTS = "calibration"
"""The one entry of the file's metadata, whose order safetensors leaves to chance: equal runs write equal bytes."""
SUFFIX = ".safetensors"


@dataclass(frozen=True)
class CalibrationSettings:
    """Settings that the moments are a function of.

    Attributes:
        model: name the checkpoint was opened by.
        fingerprint: of its weights; moments of other weights are refused.
        corpus: name of the calibration set.
        data: fingerprint of its series.
        series: how many there are.
        decoder: ``teacher`` or ``sampled``.
        batch_size: series per forward pass.
        seed: of sample paths.
        dtype: number format of the forward passes.
        columns: column names that the set's files were read with; None for the usual ones.
        freq: frequency that they were read with; None where it was inferred.
        weighting: what counts the same in the sums, every ``series`` or, in earlier files, every ``position``.
    """

    model: str
    fingerprint: str
    corpus: str
    data: str
    series: int
    decoder: str
    batch_size: int
    seed: int
    dtype: str
    columns: Columns | None = None
    freq: str | None = None
    weighting: str = "position"


@dataclass(frozen=True)
class Calibration:
    """Moments of the layer inputs of one model.

    Attributes:
        settings: what they are a function of.
        streams: moments by stream; see `rankscope.compress.calibration.passes.stream_of`.
    """

    settings: CalibrationSettings
    streams: Mapping[str, InputMoments] = field(repr=False)

    def of(self, site: Site) -> InputMoments:
        """Moments of the inputs of a site.

        Raises:
            OptionError: the site was not watched.
        """
        found = self.streams.get(stream_of(site))
        if found is None:
            raise OptionError(
                f"the calibration holds no moments of the input of {site.module}: calibrate again "
                "(rankscope calibrate takes all linear layers by default)."
            )
        return found

    def serves(self, sites: Iterable[Site], decoder: str) -> bool:
        """True if these are the moments of what reads every site, with this decoder."""
        known = {stream_of(site) for site in sites if site.role != "embedding"} <= self.streams.keys()
        return known and self.settings.decoder == decoder and self.settings.weighting == "series"

    def decoder(self, asked: str | None = None) -> Decoder:
        """Return the decoder's inputs, ``teacher`` or ``sampled``.

        Raises:
            OptionError: something else is asked for.
        """
        found = next(one for one in DECODERS if one == self.settings.decoder)
        if asked not in (None, found):
            raise OptionError(f"the calibration was made with decoder {found}, not {asked}: leave decoder out.")
        return found

    def check(self, checkpoint: Checkpoint) -> None:
        """Refuse moments of another model.

        Raises:
            OptionError: the checkpoint's weights are not those that were calibrated.
        """
        if self.settings.fingerprint != fingerprint(checkpoint):
            raise OptionError(
                f"the calibration belongs to {self.settings.model}, whose weights differ from those of "
                f"{checkpoint.source}: calibrate {checkpoint.source} itself."
            )

    def save(self, file: str | Path) -> None:
        """Write one safetensors file, whole or not at all."""
        save_moments(Path(file), self.settings, self.streams, self.settings.series)


def series_for(positions: int, tokens: int, series: int) -> int:
    """Number of series that give so many positions, where ``series`` of them gave ``tokens``.

    >>> series_for(256, 8, 8), series_for(256, 1056, 32), series_for(64, 100, 3)
    (256, 8, 2)
    """
    return -(-positions * series // tokens)


def is_saved(file: str | Path) -> bool:
    """True if a path names saved moments, not series: a safetensors file by its first bytes, or by its name.

    Series never begin so: eight bytes of length, then the JSON object of that length.
    """
    if str(file).endswith(SUFFIX):
        return True
    try:
        with Path(file).open("rb") as opened:
            begin = opened.read(9)
    except (OSError, ValueError):  # a name such as mixture:256
        return False
    return len(begin) == 9 and begin[8:] == b"{" and begin[4:8] == bytes(4)


def load_calibration(file: str | Path) -> Calibration:
    """Read the moments that `calibrate` or `Calibration.save` wrote.

    Raises:
        DataError: there is no such file, it is none of ours, damaged, or the calibration was not finished.
    """
    settings, streams, done = load_moments(Path(file))
    if done < settings.series:  # as releases before this one left them
        raise DataError(f"{file} holds {done} of {settings.series} series only: calibrate again with --force.")
    return Calibration(settings, streams)


def fingerprint(checkpoint: Checkpoint) -> str:
    """A short hash of a checkpoint's config and of every number it stores."""
    digest = hashlib.sha256(json.dumps(checkpoint.config, sort_keys=True, default=str).encode())
    for name, info in sorted(checkpoint.index.items()):
        digest.update(repr((name, info.shape, str(info.dtype))).encode())
        digest.update(_bytes(checkpoint.tensor(name)))
    return digest.hexdigest()[:16]


def _bytes(tensor: Tensor) -> Any:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def digest(*tensors: Float[Tensor, "series _"]) -> str:
    """A short hash of the series of a calibration set."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(repr(tuple(tensor.shape)).encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()[:16]


def finished_moments(file: Path, settings: CalibrationSettings, needed: set[str]) -> Mapping[str, InputMoments]:
    """Streams of a finished file, which has to be of the same calibration."""
    found = load_calibration(file)
    for name, was, now in differences(found.settings, settings):
        if name != "model":
            raise OptionError(
                f"{file} holds a calibration with another {name} ({was}, not {now}): name another file, or remove it."
            )
    if not needed <= found.streams.keys():
        raise OptionError(f"{file} holds a calibration of other sites: name another file, or remove it.")
    return found.streams


def save_moments(file: Path, settings: CalibrationSettings, streams: Mapping[str, InputMoments], done: int) -> None:
    """Write moments over the first ``done`` series."""
    from safetensors.torch import save_file

    tensors = {f"{stream}:{part}": t for stream, m in streams.items() for part, t in to_tensors(m).items()}
    facts = {"schema": SCHEMA, "settings": json.dumps(asdict(settings)), "done": str(done)}
    with atomic_file(file) as path:
        save_file(tensors, path, metadata={FACTS: json.dumps(facts)})


def load_moments(file: Path) -> tuple[CalibrationSettings, dict[str, InputMoments], int]:
    """Read what `save_moments` wrote: settings, streams and the number of series done."""
    if not file.is_file():
        raise DataError(f"calibration {file} cannot be read: there is no such file.")
    metadata, parts = _read(file)
    try:
        settings = codec.parse(CalibrationSettings, json.loads(metadata["settings"]))
    except (DataError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise _damaged(file, error) from error
    try:
        streams = {stream: from_tensors(tensors) for stream, tensors in parts.items()}
        _check_shapes(streams)
        give_back()
        return settings, streams, int(metadata["done"])
    except DataError as error:
        raise DataError(f"calibration {file} cannot be used: {error}") from error
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise _damaged(file, error) from error


def _check_shapes(streams: Mapping[str, InputMoments]) -> None:
    for stream, moments in streams.items():
        d = moments.total.numel()
        square = moments.inside.shape == (d, d) and moments.means.shape[1:] == (d,)
        if not (square and moments.total.shape == moments.loudness.shape == (d,)):
            raise ValueError(f"the sums of {stream} do not fit each other")
        if bool((moments.outer.diagonal() < 0).any()):
            raise ValueError(f"a variance of {stream} is negative")


def _read(file: Path) -> tuple[dict[str, Any], dict[str, dict[str, Tensor]]]:
    """Metadata of a calibration's file, and its tensors by stream and part."""
    from safetensors import SafetensorError, safe_open

    parts: dict[str, dict[str, Tensor]] = {}
    try:
        with safe_open(file, "pt") as opened:
            metadata = _facts(opened.metadata() or {})
            if metadata.get("schema") not in (SCHEMA, *EARLIER):
                schema = metadata.get("schema")
                raise DataError(f"{file} is not a calibration: its schema is {schema!r}, not {SCHEMA!r}.")
            for name in opened.keys():  # noqa: SIM118 - no mapping
                stream, _, part = name.rpartition(":")
                # a copy each: a single view would keep all that was read of the file in memory
                parts.setdefault(stream, {})[part] = on_disk(opened.get_tensor(name).clone())
    except (OSError, SafetensorError, json.JSONDecodeError, TypeError, RecursionError) as error:
        raise _damaged(file, error) from error
    return metadata, parts


def _facts(metadata: dict[str, str]) -> dict[str, Any]:
    """Schema, settings and count of a file's metadata; earlier files have an entry for each."""
    found = json.loads(metadata[FACTS]) if FACTS in metadata else metadata
    if not isinstance(found, dict):
        raise TypeError(f"its {FACTS} is not a JSON object")
    return found


def _damaged(file: Path, error: Exception) -> DataError:
    reason = (str(error) or type(error).__name__).splitlines()[0]
    return DataError(
        f"calibration {file} is damaged, if it is one at all ({reason}): name another file, and calibrate again."
    )
