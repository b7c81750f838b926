"""Finished lab runs with their rank records."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rankscope.errors import DataError
from rankscope.io import codec
from rankscope_lab.encoders.run_spec import SYNTHETIC
from rankscope_lab.encoders.run_spec import RunResult as EncoderResult
from rankscope_lab.encoders.run_spec import RunSpec as EncoderSpec
from rankscope_lab.measure.record import ModelRanks, Ranks
from rankscope_lab.slt.run_spec import RunResult as SltResult
from rankscope_lab.slt.run_spec import RunSpec as SltSpec
from rankscope_lab.tokenizers.run_spec import RunRecord
from rankscope_lab.tokenizers.vq import VqResult, VqSettings

ENCODERS, SLT, TOKENIZERS = "encoders", "slt", "tokenizers"
CODEBOOK, STREAM = "codebook", "stream"
CHECKPOINT = "vq.json"
"""Record of its run in a tokenizer's checkpoint."""
_DEPTH = 3
"""Levels of a document that are searched for a record of ranks."""


@dataclass(frozen=True)
class RankedRun:
    """Finished run.

    Attributes:
        study: ``encoders``, ``slt`` or ``tokenizers``.
        setting: what all compared runs share: data, width, objective.
        variant: what is compared: encoder, model, or number of codes.
        seed: of the run.
        loss: that the run is judged by; NaN where it has none.
        ranks: of the weights that are judged: the last, of SLT runs under ``field`` the best; None where none are kept.
        spectra: ``codebook`` and ``stream`` of a tokenizer.
        spec: of an encoder or SLT run; None otherwise.
        stopped: epoch after which the run was cut; None of whole ones.
        source: file that it was read from.
        digest: of the table that an encoder or SLT run was made on; empty where none is recorded.
    """

    study: str
    setting: str
    variant: str
    seed: int
    loss: float
    ranks: ModelRanks | None
    spectra: Mapping[str, Ranks] = field(default_factory=dict)
    spec: EncoderSpec | SltSpec | None = None
    stopped: int | None = None
    source: str = ""
    digest: str = ""

    @property
    def weights(self) -> Path | None:
        """Path of the evaluated weights, if stored."""
        file = Path(self.source).with_suffix(".safetensors")
        return file if self.source and file.is_file() else None


@dataclass(frozen=True)
class RunSet:
    """All runs of some folders.

    Attributes:
        runs: those that ended, in order of study, setting, variant, seed.
        diverged: files of runs that diverged: counted, part of no mean.
    """

    runs: tuple[RankedRun, ...]
    diverged: tuple[str, ...]


def read_runs(places: Sequence[str | Path]) -> RunSet:
    """Find lab runs in files and folders, ignoring other files.

    Args:
        places: JSON files, or folders that are searched to the bottom.

    Raises:
        DataError: a place is not there, a run is damaged, two files hold the same run, or there is none at all.
    """
    runs: list[RankedRun] = []
    diverged: list[str] = []
    for file in (found for place in places for found in _files(Path(place))):
        document = codec.load(file)
        for run in _runs(document, file):
            if run is None:
                diverged.append(str(file))
            else:
                runs.append(run)
    runs = _without_copies(runs)
    keys: dict[tuple[str, str, str, int], str] = {}
    for run in runs:
        key = (run.study, run.setting, run.variant, run.seed)
        if key in keys:
            raise DataError(f"{run.source} and {keys[key]} hold the same run: name one of the folders only.")
        keys[key] = run.source
    if not runs:
        named = ", ".join(map(str, places))
        raise DataError(f"no finished run in {named}: name folders of rankscope lab encoders, slt or tokenizers.")
    return RunSet(tuple(sorted(runs, key=_order)), tuple(diverged))


def _without_copies(runs: Sequence[RankedRun]) -> list[RankedRun]:
    """Drop tokenizer checkpoints whose run is also present."""
    found = [run for run in runs if Path(run.source).name != CHECKPOINT]
    for run in runs:
        copied = any((run.variant, run.seed, run.spectra) == (one.variant, one.seed, one.spectra) for one in found)
        if Path(run.source).name == CHECKPOINT and not copied:
            found.append(run)
    return found


def _order(run: RankedRun) -> tuple[str, str, int, str, int]:
    number = int(run.variant) if run.variant.isdecimal() else 0
    return run.study, run.setting, number, run.variant, run.seed


def _files(place: Path) -> list[Path]:
    if place.is_dir():
        return sorted(file for file in place.rglob("*.json") if not file.name.startswith("."))
    if not place.is_file():
        raise DataError(f"there is no folder or file {place}: name a folder of runs.")
    return [place]


def _runs(document: Any, file: Path) -> Iterator[RankedRun | None]:
    """Yield the runs of a document, None for diverged ones; nothing for other documents."""
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema == EncoderResult.SCHEMA:
        yield _encoder(file)
    elif schema == SltResult.SCHEMA:
        yield _slt(file)
    else:
        for inner in _inside(document, VqResult.SCHEMA):
            yield _tokenizer(inner, file, _table_of(document))
        for inner in _inside(document, ModelRanks.SCHEMA):
            stem, _, seed = file.stem.rpartition("-s")
            named = (stem, int(seed)) if seed.isdecimal() and stem else (file.stem, 0)
            setting = f"{_table_of(document)}components" if schema == RunRecord.SCHEMA else file.parent.name
            ranks = codec.parse(ModelRanks, inner, str(file))
            yield RankedRun(TOKENIZERS, setting, named[0], named[1], math.nan, ranks, source=str(file))


def _inside(document: Any, schema: str, depth: int = _DEPTH) -> Iterator[dict[str, Any]]:
    """Objects of a schema in a document."""
    if isinstance(document, dict) and document.get("schema") == schema:
        yield document
    elif depth and isinstance(document, (dict, list)):
        for value in document.values() if isinstance(document, dict) else document:
            yield from _inside(value, schema, depth - 1)


def _encoder(file: Path) -> RankedRun | None:
    result = codec.read(EncoderResult, file)
    if result.diverged:
        return None
    spec, record = result.spec, result.diagnostics.get("ranks")
    size = f"C{spec.channels} N{spec.series} d{spec.d_model}" if spec.data == SYNTHETIC else f"ETTh1 d{spec.d_model}"
    ranks = codec.parse(ModelRanks, record, str(file)) if record else None
    return RankedRun(
        ENCODERS,
        f"{size} {spec.objective} {spec.epochs} epochs",
        spec.encoder,
        spec.seed,
        result.best.loss,
        ranks,
        spec=spec,
        stopped=result.stopped if result.cut else None,
        source=str(file),
        digest=result.digest,
    )


def _slt(file: Path) -> RankedRun | None:
    result = codec.read(SltResult, file)
    if result.diverged:
        return None
    spec = result.spec
    setting = replace(spec, model="slt", seed=0, epochs=max(spec.epochs, 1)).id
    setting = setting.removesuffix("-s0").replace("-slt-", "-")
    ranks = codec.parse(ModelRanks, result.ranks, str(file)) if result.ranks else None
    return RankedRun(
        SLT,
        setting,
        spec.model,
        spec.seed,
        result.chosen.test.mse,
        ranks,
        spec=spec,
        source=str(file),
        digest=result.digest,
    )


def _table_of(document: Any) -> str:
    """Name of the table that a tokenizer's run was trained on, where it says so."""
    data = document.get("data") if isinstance(document, dict) else None
    return f"{data.partition(',')[0]} " if isinstance(data, str) else ""


def _tokenizer(document: dict[str, Any], file: Path, table: str) -> RankedRun | None:
    try:
        chosen = codec.parse(VqSettings, document["settings"], f"{file}: settings")
        if document["diverged"]:
            return None
        spectra = {name: codec.parse(Ranks, document[name], f"{file}: {name}") for name in (CODEBOOK, STREAM)}
        loss = float(document["test"]["mse"])
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{file} lacks a part of its run ({error}): delete it and train again.") from error
    setting = f"{table}VQ {chosen.update} d{chosen.d_model} {chosen.epochs} epochs"
    return RankedRun(TOKENIZERS, setting, str(chosen.codes), chosen.seed, loss, None, spectra, source=str(file))
