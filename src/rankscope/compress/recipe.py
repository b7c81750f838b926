"""Recipes: everything that a compressed folder was made with, as YAML in the folder, to make it again."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

from rankscope import __version__
from rankscope.checkpoints import Checkpoint
from rankscope.choices import DECODERS, Allocation, Decoder, Method, Storage
from rankscope.compress.calibration.collect import BATCH, calibrate
from rankscope.compress.calibration.passes import CalibrationSet, with_partners
from rankscope.compress.calibration.sources import named_set
from rankscope.compress.calibration.statistics import Calibration, CalibrationSettings, digest, fingerprint
from rankscope.compress.options import WHOLE, Budget, CompressOptions
from rankscope.compress.prepare import check_family
from rankscope.engine.device import resolve_dtype
from rankscope.errors import DataError, OptionError
from rankscope.io import codec
from rankscope.series import Columns

RECIPE = "recipe.yaml"
"""File of a written folder that holds its recipe."""
Seen = dict[str, Any]
"""Fields of a `Recipe` about the series that a model was calibrated on."""


@dataclass(frozen=True)
class Sought:
    """Target of a search for a size.

    Attributes:
        measure: what was measured, 1 being the original's.
        most: how large it may be.
        conditions: what a clock's times hold for: processor, cores, device, threads, runtime and batch.
    """

    measure: str
    most: float
    conditions: dict[str, str] | None = None


@dataclass(frozen=True)
class Recipe:
    """Model and options of a compression; see `rankscope.compress.CompressOptions` for the options.

    Attributes:
        version: release that wrote it.
        model: name the source was opened by.
        fingerprint: of the source's weights.
        budget: limit by kind, as `rankscope.compress.options.Budget` has them.
        calibration: name of the calibration set, None where none was looked at.
        calibration_seed: its seed.
        data: fingerprint of its series.
        columns: column names that files of series are read with.
        freq: frequency that they are read with.
        batch_size: series per pass of saved moments, None where it is that of a compression.
        passes: number format of their passes, None where it is that of a compression.
        sought: the search that found the size, None where the size was asked for.
    """

    version: str
    model: str
    fingerprint: str
    eps: float | None
    ratio: float | None
    attention_ratio: float | None
    budget: dict[str, float] | None
    sites: tuple[str, ...] | None
    method: Method | None
    allocation: Allocation | None
    calibration: str | None
    calibration_seed: int | None
    data: str | None
    decoder: Decoder | None
    probe: str | None
    refine: bool | None
    multiple: int
    seed: int
    dtype: str | None
    storage: Storage | None
    prices: dict[str, float] | None = None
    columns: Columns | None = None
    freq: str | None = None
    batch_size: int | None = None
    passes: str | None = None
    sought: Sought | None = None

    SCHEMA: ClassVar = "rankscope/recipe@1"

    @classmethod
    def of(cls, source: Checkpoint, how: CompressOptions, seen: Seen | None) -> Recipe:
        """Return the recipe of a compression.

        Args:
            source: the model.
            how: its options.
            seen: the series that it was calibrated on; None where it was not.
        """
        values: dict[str, Any] = {one.name: getattr(how, one.name, None) for one in fields(cls)}
        sites = how.sites.split(",") if isinstance(how.sites, str) else how.sites
        read = {name: value for name, value in (seen or {}).items() if value is not None}
        values |= {
            "version": __version__,
            "model": source.source,
            "fingerprint": fingerprint(source),
            "budget": None if how.budget is None else {how.budget.kind: float(how.budget.limit)},
            "sites": None if sites is None else tuple(sites),
            **dict.fromkeys(("calibration", "data", "calibration_seed")),
            **read,
            "probe": how.probe.name if isinstance(how.probe, CalibrationSet) else how.probe,
            "dtype": None if how.dtype is None else str(resolve_dtype(how.dtype)).removeprefix("torch."),
        }
        return cls(**values)

    def options(self, source: Checkpoint, device: str = "cpu") -> CompressOptions:
        """Return the options that make the folder again.

        Args:
            source: the model, under whatever name.
            device: where it runs.

        Raises:
            OptionError: it has other weights than the recipe's model, or the calibration set is another one by now.
            DataError: the calibration set cannot be used.
        """
        check_family(source)
        if fingerprint(source) != self.fingerprint:
            raise OptionError(
                f"the recipe is for {self.model}, and {source.source} has other weights: give that model, or the "
                "options one by one."
            )
        own = {one.name for one in fields(CompressOptions)} - {"budget", "calibration"}
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.name in own}
        budgets = [Budget(kind, limit) for kind, limit in (self.budget or {}).items()]
        return CompressOptions(
            **values, budget=next(iter(budgets), None), calibration=self._calibration(source, device), device=device
        )

    def _calibration(self, source: Checkpoint, device: str) -> CalibrationSet | Calibration | None:
        """The series, or moments of them that a compression would not collect in the same way."""
        series = self._series(source)
        if series is None or (self.batch_size is None and self.passes is None):
            return series
        return calibrate(
            source,
            series,
            sites=tuple(site for site in with_partners(source, source.sites(WHOLE)) if site.role != "embedding"),
            decoder=self.decoder or DECODERS[0],
            batch_size=self.batch_size or BATCH,
            device=device,
            dtype=self.passes,
        )

    def _series(self, source: Checkpoint) -> CalibrationSet | None:
        if self.calibration is None:
            return None
        seed = self.calibration_seed or 0
        found = named_set(source, self.calibration, seed=seed, columns=self.columns, freq=self.freq)
        if digest(found.context, found.future) != self.data:
            raise OptionError(
                f"the recipe was calibrated on {self.calibration}, which gives other series here: use the files and "
                f"the release that it was made with ({self.version}), or give the options one by one."
            )
        return found


def seen(series: CalibrationSet) -> Seen:
    """Fields of a recipe about a calibration set."""
    data = digest(series.context, series.future)
    return _told(series.name, data, series.seed, series.columns, series.freq)


def collected(settings: CalibrationSettings) -> Seen:
    """Fields of a recipe about moments: their series, and how they were collected if a compression would not do so."""
    return {
        **_told(settings.corpus, settings.data, settings.seed, settings.columns, settings.freq),
        "batch_size": None if settings.batch_size == BATCH else settings.batch_size,
        "passes": None if settings.dtype.startswith("float32") else settings.dtype,
    }


def _told(name: str, data: str, seed: int, columns: Columns | None, freq: str | None) -> Seen:
    return {"calibration": name, "data": data, "calibration_seed": seed, "columns": columns, "freq": freq}


def write_recipe(folder: Path, source: Checkpoint, how: CompressOptions, seen: Seen | None) -> None:
    """Write ``recipe.yaml`` into a folder that is being written; see `Recipe.of`."""
    _write(folder, Recipe.of(source, how, seen))


def note_search(folder: Path, sought: Sought) -> None:
    """Say in the recipe of a folder how its size was found."""
    _write(folder, replace(read_recipe(folder), sought=sought))


def _write(folder: Path, recipe: Recipe) -> None:
    import yaml

    command = f"rankscope compress {shlex.quote(recipe.model)} --recipe {RECIPE} --out DIR"
    head = f"# Makes this model again, before any healing: {command}\n"
    content = yaml.safe_dump(codec.plain(recipe), sort_keys=False, allow_unicode=True)
    (folder / RECIPE).write_text(head + content, encoding="utf-8")


def read_recipe(path: str | Path) -> Recipe:
    """Read a recipe, or that of a compressed folder.

    Raises:
        DataError: there is none, or it is of another schema.
    """
    if not Path(path).exists():
        raise DataError(f"there is no file or folder {path}: name a {RECIPE}, or the folder of a compressed model.")
    return codec.read(Recipe, path, RECIPE, f"Name {RECIPE} of a compressed model, or its folder.")
