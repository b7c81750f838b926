"""Ranks of each point of a sweep of pretrained models, and all points as one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import nan, prod
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.engine import Progress, silent
from rankscope.errors import DataError, OptionError
from rankscope.families import config_field
from rankscope.io import codec
from rankscope.measure.embedding import measure_embedding
from rankscope.measure.spectrum import SiteSpectrum, eps_key, measure_spectrum

if TYPE_CHECKING:
    import pandas as pd

SWEEP_EPS = (0.1, 0.05, 0.01, 0.001)
ALL = "all"
"""Group of every trained W_Q of a model; the others are ``encoder.self``, ``decoder.self`` and ``decoder.cross``."""

MODELS = "models"
"""Name of a report that `measure_models` made."""


@dataclass(frozen=True)
class EmbeddingRanks:
    """Spectrum of an embedding matrix of a point.

    Attributes:
        matrix: ``corpus`` (embedded sinusoids) or ``vocabulary``.
        tokens: its rows.
        sigma: singular values, descending.
        eps_ranks: ε-ranks by ε.
    """

    matrix: str
    tokens: int
    sigma: tuple[float, ...]
    eps_ranks: dict[str, int]


@dataclass(frozen=True)
class PointRanks:
    """Ranks of the checkpoint of a point.

    Attributes:
        attention_parameters: numbers stored in attention matrices.
        bytes: size of the weights on disk.
        mean_ranks: group of W_Q → ε → mean ε-rank over its layers; the group ``all`` is every trained W_Q.
        layer_ranks: group → ε → ε-rank of each layer.
        head_ranks: group → ε → ε-ranks of the heads of each layer.
        embeddings: the embedding over a corpus, and the vocabulary of a model that has one.
    """

    attention_parameters: int
    bytes: int
    mean_ranks: dict[str, dict[str, float]]
    layer_ranks: dict[str, dict[str, list[int]]]
    head_ranks: dict[str, dict[str, list[list[int]]]]
    embeddings: tuple[EmbeddingRanks, ...]

    def __post_init__(self) -> None:
        if ALL not in self.mean_ranks:
            raise DataError(f"mean_ranks has no group {ALL!r}.")


@dataclass(frozen=True)
class SweepRow:
    """One point of a sweep.

    Attributes:
        point: its name.
        fields: dotted config fields in which it differs from the base, and their values.
        config: the whole config of its run, as its YAML file holds it.
        state: ``waiting``, ``begun``, ``done`` or ``failed``.
        error: why it failed, one line.
        folder: its checkpoint, relative to the sweep's folder.
        parameters: numbers in the model; 0 while unknown.
        steps: optimiser steps taken.
        loss: training loss over the last log interval; None while unknown.
        seconds: wall time of training, of the last attempt where there were several.
        resumed_at: first logged step of each attempt after the first: where a stopped or lost run went on.
        ranks: measurements of the checkpoint.
        scores: e.g. WQL and MASE, where scoring was asked for; None for a score that is not a number.
        scored_with: what they were scored with, e.g. the name of the suite.
    """

    point: str
    fields: dict[str, Any]
    config: dict[str, Any] = field(repr=False)
    state: str = "waiting"
    error: str = ""
    folder: str = ""
    parameters: int = 0
    steps: int = 0
    loss: float | None = None
    seconds: float = 0.0
    resumed_at: tuple[int, ...] = ()
    ranks: PointRanks | None = None
    scores: dict[str, float | None] = field(default_factory=dict)
    scored_with: str = ""

    def number(self, dotted: str) -> float:
        """Value of a dotted field of the config.

        Raises:
            DataError: the config has no such number.
        """
        try:
            return float(config_field(self.config, dotted))
        except (TypeError, ValueError):
            raise DataError(
                f"point {self.point!r} has no number {dotted}: this figure needs a sweep over it."
            ) from None

    def corpus(self) -> EmbeddingRanks:
        """The embedding over a corpus.

        Raises:
            DataError: it was not measured.
        """
        found = (one for one in (self.ranks.embeddings if self.ranks else ()) if one.matrix == "corpus")
        if (first := next(found, None)) is None:
            raise DataError(f"point {self.point!r} has no embedded corpus: measure it again.")
        return first


@dataclass(frozen=True)
class SweepReport:
    """All points of a sweep, in its order.

    Attributes:
        name: of the sweep.
        about: one line on what it shows.
        folder: where it lies.
        eps: tolerances of the ε-ranks.
        points: one row per point, also those that failed or wait.
    """

    name: str
    about: str
    folder: str
    eps: tuple[float, ...]
    points: tuple[SweepRow, ...]

    SCHEMA: ClassVar = "rankscope/sweep@1"

    @property
    def done(self) -> tuple[SweepRow, ...]:
        """Points that were trained and measured."""
        return tuple(row for row in self.points if row.state == "done")

    @property
    def failed(self) -> tuple[SweepRow, ...]:
        """Points that failed."""
        return tuple(row for row in self.points if row.state == "failed")

    def to_frame(self) -> pd.DataFrame:
        """One row per point: its fields, then numbers; ``rank@ε`` is the mean over all trained W_Q."""
        import pandas as pd

        return pd.DataFrame([_flat(row, [eps_key(eps) for eps in self.eps]) for row in self.points])


def read_sweep_report(path: str | Path) -> SweepReport:
    """Read the result of a sweep: its folder, or a ``sweep.json``.

    Raises:
        DataError: nothing is there, or it is not a result of a sweep.
    """
    return codec.read(SweepReport, path, "sweep.json")


def measure_point(
    model: Checkpoint | str | Path, eps: Sequence[float] = SWEEP_EPS, *, device: str = "cpu"
) -> PointRanks:
    """ε-ranks of every trained W_Q, of its heads, and of the embedding, of one checkpoint.

    Args:
        model: an open checkpoint, or what `open_checkpoint` takes.
        eps: tolerances in [0, 1).
        device: where matrices are decomposed.
    """
    checkpoint = open_checkpoint(model)
    report = measure_spectrum(checkpoint, eps, ("q",), device=device)
    rows = [row for row in report.sites if report.is_trained(row)]  # the others have the ranks of their random start
    groups: dict[str, list[SiteSpectrum]] = {}
    for row in rows:
        groups.setdefault(f"{row.site.stack}.{row.site.role.partition('.')[0]}", []).append(row)
    keys = [eps_key(level) for level in eps]
    embedded = measure_embedding([checkpoint], eps=eps, angle_items=1, points=1, device=device).rows
    modules = tuple(site.module + "." for site in checkpoint.sites(("attention",)))
    stored = sum(prod(info.shape) for name, info in checkpoint.index.items() if name.startswith(modules))
    return PointRanks(
        attention_parameters=stored,
        bytes=checkpoint.bytes,
        mean_ranks={
            name: {key: fmean(row.eps_ranks[key] for row in group) for key in keys}
            for name, group in {**groups, ALL: rows}.items()
        },
        layer_ranks={
            name: {key: [row.eps_ranks[key] for row in group] for key in keys} for name, group in groups.items()
        },
        head_ranks={
            name: {key: [list(row.per_head_eps_ranks.get(key, ())) for row in group] for key in keys}
            for name, group in groups.items()
        },
        embeddings=tuple(
            EmbeddingRanks(one.matrix, one.tokens, tuple(one.sigma.tolist()), dict(one.eps_ranks)) for one in embedded
        ),
    )


def measure_models(
    models: Sequence[str | Path], eps: Sequence[float] = SWEEP_EPS, *, device: str = "cpu", progress: Progress = silent
) -> SweepReport:
    """Measure finished checkpoints as the points of a sweep, e.g. the sizes of a published family against their width.

    Args:
        models: checkpoints: hub ids, folders or bundled names.
        eps: tolerances in [0, 1).
        device: where matrices are decomposed.
        progress: progress callback.

    Raises:
        OptionError: no model, or one is named twice.
    """
    names = [str(model) for model in models]
    if not names or len(set(names)) < len(names):
        raise OptionError("models must name at least one checkpoint, and none of them twice.")
    rows = []
    for done, name in enumerate(names):
        progress(done, len(names), f"measuring {name}")
        checkpoint = open_checkpoint(name)
        shape = {key: value for key, value in checkpoint.config.items() if type(value) is int}
        config = {
            "family": checkpoint.family.name,
            "model": {**shape, "patch_size": checkpoint.family.patch_size(checkpoint.config)},
        }
        ranks = measure_point(checkpoint, eps, device=device)
        rows.append(SweepRow(name, {}, config, "done", folder=name, parameters=checkpoint.parameters, ranks=ranks))
    progress(len(names), len(names), "measuring")
    return SweepReport(MODELS, "finished checkpoints", "", tuple(eps), tuple(rows))


def mean_head_rank(ranks: PointRanks, key: str, group: str = ALL) -> float:
    """Mean ε-rank of one head's rows of W_Q over all heads and layers, of all attentions or a group (Fig. 16).

    NaN where a model's number of heads is not known.
    """
    chosen = ranks.head_ranks.values() if group == ALL else (ranks.head_ranks[group],)
    found = [rank for one in chosen for layer in one[key] for rank in layer]
    return fmean(found) if found else nan


def _flat(row: SweepRow, keys: Sequence[str]) -> dict[str, Any]:
    flat = {"point": row.point, **row.fields, "state": row.state, "error": row.error, "parameters": row.parameters}
    flat |= {"steps": row.steps, "loss": row.loss, "seconds": row.seconds, "resumed": len(row.resumed_at)}
    ranks = row.ranks
    if ranks is not None:
        flat |= {"attention_parameters": ranks.attention_parameters, "bytes": ranks.bytes}
        for key in keys:
            if key not in ranks.mean_ranks[ALL]:  # measured at other tolerances
                continue
            flat |= {f"rank@{key}": ranks.mean_ranks[ALL][key], f"head_rank@{key}": mean_head_rank(ranks, key)}
            flat |= {f"{name}.rank@{key}": means[key] for name, means in ranks.mean_ranks.items() if name != ALL}
            flat |= {f"{one.matrix}.rank@{key}": one.eps_ranks[key] for one in ranks.embeddings}
    return {**flat, **row.scores}
