"""Recipes: everything that a compressed folder was made with, as YAML in the folder, to make it again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rankscope.checkpoints import Checkpoint
from rankscope.choices import Allocation, Decoder, Method, Storage
from rankscope.compress.calibration.passes import CalibrationSet
from rankscope.compress.calibration.statistics import Calibration, fingerprint
from rankscope.compress.options import Budget, CompressOptions
from rankscope.engine.device import resolve_dtype
from rankscope.errors import OptionError
from rankscope.io import codec

RECIPE = "recipe.yaml"
"""File of a written folder that holds its recipe."""


@dataclass(frozen=True)
class Recipe:
    """Model and options of a compression; see `rankscope.compress.CompressOptions` for the options.

    Attributes:
        version: release that wrote it.
        model: name the source was opened by.
        fingerprint: of the source's weights.
        budget: limit by kind (``parameters``, ``bytes`` or ``cache-bytes``).
        calibration: name of the calibration set, or the file of moments.
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
    decoder: Decoder | None
    probe: str | None
    refine: bool | None
    multiple: int
    seed: int
    dtype: str | None
    storage: Storage | None

    SCHEMA: ClassVar = "rankscope/recipe@1"

    @classmethod
    def of(cls, source: Checkpoint, how: CompressOptions) -> Recipe:
        """Return the recipe of a compression."""
        from rankscope import __version__

        sites = how.sites.split(",") if isinstance(how.sites, str) else how.sites
        given = how.calibration.settings.corpus if isinstance(how.calibration, Calibration) else how.calibration
        return cls(
            version=__version__,
            model=source.source,
            fingerprint=fingerprint(source),
            eps=how.eps,
            ratio=how.ratio,
            attention_ratio=how.attention_ratio,
            budget=None if how.budget is None else {how.budget.kind: float(how.budget.limit)},
            sites=None if sites is None else tuple(sites),
            method=how.method,
            allocation=how.allocation,
            calibration=_named(given),
            decoder=how.decoder,
            probe=_named(how.probe),
            refine=how.refine,
            multiple=how.multiple,
            seed=how.seed,
            dtype=None if how.dtype is None else str(resolve_dtype(how.dtype)).removeprefix("torch."),
            storage=how.storage,
        )

    def options(self, source: Checkpoint, device: str = "cpu") -> CompressOptions:
        """Return the options that make the folder again.

        Args:
            source: the model, under whatever name.
            device: where it runs.

        Raises:
            OptionError: it has other weights than the recipe's model, or an option is out of range.
        """
        if fingerprint(source) != self.fingerprint:
            raise OptionError(
                f"the recipe is for {self.model}, and {source.source} has other weights: give that model, or the "
                "options one by one."
            )
        ((kind, limit),) = (self.budget or {"": 0.0}).items()
        return CompressOptions(
            eps=self.eps,
            ratio=self.ratio,
            attention_ratio=self.attention_ratio,
            budget=Budget(kind, limit) if self.budget else None,
            sites=self.sites,
            method=self.method,
            allocation=self.allocation,
            calibration=self.calibration,
            decoder=self.decoder,
            probe=self.probe,
            refine=self.refine,
            multiple=self.multiple,
            seed=self.seed,
            device=device,
            dtype=self.dtype,
            storage=self.storage,
        )


def write_recipe(folder: Path, source: Checkpoint, how: CompressOptions) -> None:
    """Write ``recipe.yaml`` into a folder that is being written."""
    import yaml

    head = f"# Makes this model again: rankscope compress {source.source} --recipe {RECIPE} --out DIR\n"
    content = yaml.safe_dump(codec.plain(Recipe.of(source, how)), sort_keys=False, allow_unicode=True)
    (folder / RECIPE).write_text(head + content, encoding="utf-8")


def read_recipe(path: str | Path) -> Recipe:
    """Read a recipe, or that of a compressed folder.

    Raises:
        DataError: there is none, or it is of another schema.
    """
    return codec.read(Recipe, path, RECIPE)


def _named(given: object) -> str | None:
    """Name of a set of series."""
    if isinstance(given, CalibrationSet):
        return given.name
    return None if given is None else str(given)
