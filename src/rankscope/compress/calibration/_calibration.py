"""Moments of every layer's input over a calibration set, and the file that keeps them."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.checkpoints import Checkpoint
from rankscope.choices import DECODERS
from rankscope.compress.calibration.moments import InputMoments, MomentSink, from_tensors, to_tensors
from rankscope.compress.calibration.passes import (
    CalibrationSet,
    by_length,
    pass_inputs,
    stream_of,
    watch_streams,
    watched_modules,
)
from rankscope.compress.calibration.sources import named_set, with_partners
from rankscope.engine.device import fast_products, in_bfloat16, resolve_device, resolve_dtype
from rankscope.engine.progress import Progress, silent
from rankscope.errors import DataError, FamilyError, OptionError, unknown_choice
from rankscope.families import Site, compressible
from rankscope.io.atomic import atomic_file
from rankscope.io.run_store import RunStore, differences

SCHEMA = "rankscope/calibration@1"
SUFFIX = ".safetensors"
PARTIAL = "moments"
"""Item of an unfinished calibration: what was summed so far."""
SAVE_EVERY = 8
"""Batches between saves of an unfinished calibration."""


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


@dataclass(frozen=True)
class Calibration:
    """Moments of what enters the layers of one model.

    Attributes:
        settings: what they are a function of.
        streams: moments by stream; see `rankscope.compress.calibration.passes.stream_of`.
    """

    settings: CalibrationSettings
    streams: Mapping[str, InputMoments] = field(repr=False)

    def of(self, site: Site) -> InputMoments:
        """Moments of what enters a site.

        Raises:
            OptionError: the site was not watched.
        """
        found = self.streams.get(stream_of(site))
        if found is None:
            raise OptionError(
                f"the calibration holds no moments of the input of {site.module}: calibrate with its site selected."
            )
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
        _save(Path(file), self.settings, self.streams, self.settings.series)


def calibrate(
    checkpoint: Checkpoint,
    series: CalibrationSet,
    *,
    sites: tuple[Site, ...] | None = None,
    decoder: str = "teacher",
    batch_size: int = 16,
    seed: int = 0,
    device: str = "cpu",
    dtype: str | torch.dtype | None = None,
    file: str | Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Calibration:
    """Run a model over a calibration set and add up the moments of what enters its layers.

    Memory does not grow with the number of series: a stream of width d keeps 2 d² + 2 d float64 numbers. Batches are
    made of series of like length. Wide models multiply in bfloat16 on processors that have instructions for it
    (`rankscope.engine.device.fast_products`); moments are summed in float32 within a batch and in float64 over batches.

    Args:
        checkpoint: any family, stock or compressed.
        series: histories and what followed.
        sites: matrices whose inputs are wanted; those of attention by default.
        decoder: what the decoder reads, ``teacher`` (the values that followed) or ``sampled`` (the model's own paths).
        batch_size: series per forward pass.
        seed: of sample paths.
        device: ``cpu``, ``cuda`` or ``auto``.
        dtype: number format of the forward passes, float32 by default.
        file: keep the moments in this file. A run that is stopped goes on, from what lies in ``<file>.run``, when it is
            started again with the same settings; one that is finished is read back.
        force: begin anew, and replace ``file`` at the end.
        progress: told the number of series done.

    Raises:
        OptionError: an unknown decoder, a batch size below 1, or ``file`` holds a calibration with other settings.
        OutputError: an unfinished one has other settings, or another process is at work on it.
        DataError: the set is empty, or a layer's input is not finite.
        FamilyError: a family that is not compressed, or sample paths of a text model.
    """
    if checkpoint.family.low_rank is None:
        raise FamilyError(
            f"{checkpoint.source} is a {checkpoint.family.title} model: {compressible()} can be calibrated, since "
            "they can be compressed."
        )
    if decoder not in DECODERS:
        raise OptionError(unknown_choice("decoder", decoder, DECODERS))
    if decoder == "sampled" and not checkpoint.family.forecastable:
        raise FamilyError(f"a {checkpoint.family.title} model draws no sample paths: leave its decoder at teacher.")
    if not len(series):
        raise DataError("the calibration set is empty: name at least one series.")
    if batch_size < 1:
        raise OptionError(f"batch_size {batch_size} is not usable: give a whole number, at least 1.")
    kind = resolve_dtype(dtype) or torch.float32
    chosen = checkpoint.sites() if sites is None else sites
    place, width = resolve_device(device), int(checkpoint.config.get("d_model", 0))
    rounds = kind == torch.float32 and in_bfloat16(place, width)
    settings = CalibrationSettings(
        checkpoint.source,
        fingerprint(checkpoint),
        series.name,
        _digest(series.context, series.future),
        len(series),
        decoder,
        batch_size,
        seed,
        "float32, products bfloat16" if rounds else str(kind).removeprefix("torch."),
    )
    needed = {stream_of(site) for site in chosen}
    report = progress or silent
    store = None if file is None else unfinished(file, settings, needed)
    if store is not None and not (force or store.root.exists()) and Path(str(file)).exists():
        streams = _checked(Path(str(file)), settings, needed)
        report(len(series), len(series), "calibrating")
        return Calibration(settings, streams)
    with contextlib.nullcontext() if store is None else store.open(resume=not force, force=force):
        partial = None if store is None else store.path(PARTIAL, SUFFIX)
        _, before, done = _load(partial) if partial is not None and partial.exists() else (None, {}, 0)
        module = checkpoint.module(kind).to(place)
        order = by_length(series.context)
        watched = watched_modules(module, chosen)
        sinks = {stream: MomentSink(before.get(stream)) for stream in watched}
        for start in range(done, len(series), batch_size):
            report(start, len(series), "calibrating")
            torch.manual_seed(seed + start)  # a run that is resumed draws what it would have drawn
            end = min(start + batch_size, len(series))
            part = order[start:end]
            inputs = pass_inputs(module, checkpoint.family, series.context[part], series.future[part], decoder)
            # sample paths are drawn by now: what enters the layers meanwhile, token by token, is not to be counted
            products = fast_products(place, width) if rounds else contextlib.nullcontext()
            with torch.no_grad(), watch_streams(module, watched, sinks), products:
                module(**inputs)
            if partial is not None and (start // batch_size) % SAVE_EVERY == SAVE_EVERY - 1:
                _save(partial, settings, _moments(sinks), end)
        found = Calibration(settings, _moments(sinks))
        if file is not None and store is not None:
            found.save(file)
            store.discard()
    report(len(series), len(series), "calibrating")
    return found


def unfinished(file: str | Path, settings: CalibrationSettings | None = None, streams: Iterable[str] = ()) -> RunStore:
    """The store of an unfinished calibration into a file."""
    known = {**asdict(settings), "streams": sorted(streams)} if settings else {}
    model = {"model": known.pop("model", None)}
    folder = Path(f"{file}.run")
    return RunStore(folder, "an unfinished calibration", "rankscope/calibration-run@1", known, facts=model)


def calibration_for(
    checkpoint: Checkpoint,
    sites: Sequence[Site],
    source: Calibration | CalibrationSet | str | Path | None,
    *,
    decoder: str | None = None,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Calibration:
    """Return moments of the inputs of the sites, and of what their partners read.

    Args:
        checkpoint: the model.
        sites: matrices that will be cut.
        source: moments, a file of them (told by its content), a calibration set or its name as
            `rankscope.compress.calibration.named_set` takes it; the default set without.
        decoder: what the decoder reads, ``teacher`` by default; given moments have to have it.
        seed: of a set that is named, and of sample paths.
        device: where the model runs.
        progress: told the number of series done.

    Raises:
        OptionError: the moments are another model's, another decoder's, or those of other sites.
        DataError: the set cannot be used.
    """
    if isinstance(source, (str, Path)) and is_saved(source):
        source = load_calibration(source)
    if isinstance(source, Calibration):
        source.check(checkpoint)
        found = source.settings.decoder
        if decoder is not None and decoder != found:
            raise OptionError(f"the calibration was made with decoder {found}, not {decoder}: leave decoder out.")
        return source
    series = source if isinstance(source, CalibrationSet) else named_set(checkpoint, source, seed=seed)
    watched = with_partners(checkpoint, sites)
    return calibrate(
        checkpoint, series, sites=watched, decoder=decoder or "teacher", seed=seed, device=device, progress=progress
    )


def is_saved(file: str | Path) -> bool:
    """Tell saved moments from series by their path: a safetensors file by its first bytes, or by its name.

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
    settings, streams, done = _load(Path(file))
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


def _digest(*tensors: Float[Tensor, "series _"]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(repr(tuple(tensor.shape)).encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()[:16]


def _bytes(tensor: Tensor) -> Any:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def _moments(sinks: Mapping[str, MomentSink]) -> dict[str, InputMoments]:
    return {stream: sink.moments for stream, sink in sinks.items() if sink.moments is not None}


def _checked(file: Path, settings: CalibrationSettings, needed: set[str]) -> Mapping[str, InputMoments]:
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


def _save(file: Path, settings: CalibrationSettings, streams: Mapping[str, InputMoments], done: int) -> None:
    from safetensors.torch import save_file

    tensors = {f"{stream}:{part}": t for stream, m in streams.items() for part, t in to_tensors(m).items()}
    metadata = {"schema": SCHEMA, "settings": json.dumps(asdict(settings)), "done": str(done)}
    with atomic_file(file) as path:
        save_file(tensors, path, metadata=metadata)


def _load(file: Path) -> tuple[CalibrationSettings, dict[str, InputMoments], int]:
    if not file.is_file():
        raise DataError(f"calibration {file} cannot be read: there is no such file.")
    metadata, parts = _read(file)
    try:
        settings = CalibrationSettings(**json.loads(metadata["settings"]))
        streams = {stream: from_tensors(tensors) for stream, tensors in parts.items()}
        _check_shapes(streams)
        return settings, streams, int(metadata["done"])
    except DataError as error:
        raise DataError(f"calibration {file} cannot be used: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(file, error) from error


def _check_shapes(streams: Mapping[str, InputMoments]) -> None:
    for stream, moments in streams.items():
        d = moments.total.numel()
        square = (moments.inside.shape, moments.between.shape) == ((d, d), (d, d))
        if not (square and moments.total.shape == moments.loudness.shape == (d,)):
            raise ValueError(f"the sums of {stream} do not fit each other")
        if bool((moments.outer.diagonal() < 0).any()):
            raise ValueError(f"a variance of {stream} is negative")


def _read(file: Path) -> tuple[dict[str, str], dict[str, dict[str, Tensor]]]:
    """Metadata of a calibration's file, and its tensors by stream and part."""
    from safetensors import SafetensorError, safe_open

    parts: dict[str, dict[str, Tensor]] = {}
    try:
        with safe_open(file, "pt") as opened:
            metadata = opened.metadata() or {}
            if metadata.get("schema") != SCHEMA:
                raise DataError(f"{file} is no calibration: its schema is {metadata.get('schema')!r}, not {SCHEMA!r}.")
            for name in opened.keys():  # noqa: SIM118 - no mapping
                stream, _, part = name.rpartition(":")
                parts.setdefault(stream, {})[part] = opened.get_tensor(name)
    except (OSError, SafetensorError) as error:
        raise _damaged(file, error) from error
    return metadata, parts


def _damaged(file: Path, error: Exception) -> DataError:
    reason = (str(error) or type(error).__name__).splitlines()[0]
    return DataError(
        f"calibration {file} is damaged, if it is one at all ({reason}): name another file, and calibrate again."
    )
