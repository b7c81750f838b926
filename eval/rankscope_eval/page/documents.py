"""Which results a page is made of, and how each is read from its JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rankscope.compress.calibration.report import CalibrationReport
from rankscope.compress.heal.report import HealReport
from rankscope.compress.report import CompressReport
from rankscope.errors import DataError
from rankscope.families import Site
from rankscope.measure.embedding import EmbeddingReport, EmbeddingSpectrum, Projection
from rankscope.measure.flow import FlowReport, LayerFlow
from rankscope.measure.spectrum import SiteSpectrum, SpectrumReport
from rankscope.measure.sweep import SweepReport
from rankscope.measure.tradeoff import Table2Report
from rankscope_eval.bench import BenchReport
from rankscope_eval.page.typed import build
from rankscope_eval.report import EvalReport

_WORD = re.compile(r"[A-Za-z0-9_.+ -]{1,60}")


@dataclass(frozen=True)
class TheoryCheck:
    """One theorem, checked on many instances."""

    id: str
    instances: int
    worst_ratio: float
    passed: bool = field(metadata={"key": "pass"})
    title: str = ""


@dataclass(frozen=True)
class TheoryReport:
    """The checks that were run."""

    checks: tuple[TheoryCheck, ...]


@dataclass(frozen=True)
class DesignLayer:
    """One attention or feed-forward layer of a design."""

    stack: str
    layer: int
    part: str
    rank: int | None
    parameters_before: int
    parameters_after: int


@dataclass(frozen=True)
class DesignView:
    """What the page shows of a design."""

    model: str
    out: str
    size_ratio: float
    cache_ratio: float | None
    parameters: dict[str, int]
    layers: tuple[DesignLayer, ...]


@dataclass(frozen=True)
class _Site:
    name: str
    stack: str
    layer: int | None
    role: str
    layout: str
    shape: tuple[int, int]
    sigma_max: float
    eps_ranks: dict[str, int]
    per_head_eps_ranks: dict[str, list[int]]
    effective_rank: float | None
    stable_rank: float
    size_ratio: dict[str, float]
    sigma: tuple[float, ...] | None = None


@dataclass(frozen=True)
class _Spectrum:
    model: str
    family: str
    eps: tuple[float, ...]
    ranks_only: bool
    sites: tuple[_Site, ...]


@dataclass(frozen=True)
class _Layer:
    stack: str
    layer: int
    tokens: int
    d_model: int
    sigma: tuple[float, ...]
    eps_ranks: dict[str, int]
    mean_relative: float
    effective_rank: float
    weight_eps_ranks: dict[str, dict[str, int]]


@dataclass(frozen=True)
class _Flow:
    model: str
    signal: str
    n: int
    length: int
    seed: int
    eps: tuple[float, ...]
    layers: tuple[_Layer, ...]


@dataclass(frozen=True)
class _Embedding:
    model: str
    family: str
    strategy: str
    patch_size: int
    matrix: str
    tokens: int
    d_model: int
    sigma: tuple[float, ...]
    eps_ranks: dict[str, int]
    effective_rank: float
    stable_rank: float


@dataclass(frozen=True)
class _Embeddings:
    signal: str
    n: int
    length: int
    seed: int
    eps: tuple[float, ...]
    rows: tuple[_Embedding, ...]


def _spectrum(data: Mapping[str, Any]) -> SpectrumReport:
    read = build(_Spectrum, data)
    if not read.sites or not read.eps:
        raise DataError("it holds no matrix or no ε")
    _same_eps((site.eps_ranks for site in read.sites), "sites")
    _words((text for site in read.sites for text in (site.stack, site.role)), "sites")
    rows = []
    for one in read.sites:
        values = dict(vars(one))
        site = Site(values.pop("name"), values.pop("stack"), values.pop("layer"), values.pop("role"))
        sigma = values.pop("sigma")
        rows.append(SiteSpectrum(site=site, sigma=None if sigma is None else np.asarray(sigma), **values))
    return SpectrumReport(read.model, read.family, read.eps, read.ranks_only, tuple(rows))


def _flow(data: Mapping[str, Any]) -> FlowReport:
    read = build(_Flow, data)
    if not read.layers or any(not layer.sigma for layer in read.layers):
        raise DataError("it holds no layer, or one without singular values")
    _same_eps((layer.eps_ranks for layer in read.layers), "layers")
    _words((layer.stack for layer in read.layers), "layers")
    layers = tuple(LayerFlow(**{**vars(layer), "sigma": np.asarray(layer.sigma)}) for layer in read.layers)
    return FlowReport(**{**vars(read), "layers": layers})


def _embed(data: Mapping[str, Any]) -> EmbeddingReport:
    read = build(_Embeddings, data)
    if not read.rows or any(not row.sigma for row in read.rows):
        raise DataError("it holds no embedding, or one without singular values")
    _same_eps((row.eps_ranks for row in read.rows), "rows")
    nothing: dict[str, Any] = {"angles": np.zeros((0, 0)), "projection": Projection(np.zeros((0, 2)), np.zeros(0), "")}
    rows = tuple(EmbeddingSpectrum(**{**vars(row), "sigma": np.asarray(row.sigma)}, **nothing) for row in read.rows)
    return EmbeddingReport(**{**vars(read), "rows": rows})


def _table2(data: Mapping[str, Any]) -> Table2Report:
    read = build(Table2Report, data)
    _words((text for point in read.points for text in (point.method, point.allocation)), "points")
    return read


def _words(texts: Iterable[str], where: str) -> None:
    """Texts that become names in charts are words, as every writer of ours makes them."""
    odd = next((text for text in texts if not _WORD.fullmatch(text)), None)
    if odd is not None:
        raise DataError(f"{where} have a name that is no word: {odd[:40]!r}")


def _same_eps(ranks: Any, where: str) -> None:
    keys = [tuple(one) for one in ranks]
    if any(one != keys[0] for one in keys) or not keys[0]:
        raise DataError(f"{where} have ε-ranks at no ε, or at different ones")


def _plain(cls: type) -> Callable[[Mapping[str, Any]], Any]:
    return lambda data: build(cls, data)


@dataclass(frozen=True)
class Kind:
    """A kind of result.

    Attributes:
        name: as in its schema, and of the verb that writes it.
        version: of the schema that is read.
        read: makes the result of the parsed document.
    """

    name: str
    version: int
    read: Callable[[Mapping[str, Any]], Any]

    @property
    def schema(self) -> str:
        """Schema of such a document."""
        return f"rankscope/{self.name}@{self.version}"


KINDS = {
    kind.name: kind
    for kind in (
        Kind("spectrum", 1, _spectrum),
        Kind("flow", 1, _flow),
        Kind("embed", 1, _embed),
        Kind("calibrate", 1, _plain(CalibrationReport)),
        Kind("compress", 1, _plain(CompressReport)),
        Kind("heal", 1, _plain(HealReport)),
        Kind("design", 1, _plain(DesignView)),
        Kind("eval", 1, _plain(EvalReport)),
        Kind("bench", 1, _plain(BenchReport)),
        Kind("table2", 1, _table2),
        Kind("sweep", 1, _plain(SweepReport)),
        Kind("theory", 1, _plain(TheoryReport)),
    )
}
"""Results that have a place on the page, in the order in which they are looked at."""


@dataclass(frozen=True)
class Document:
    """A file that was read.

    Attributes:
        path: relative to the folder, with slashes.
        kind: key of `KINDS`; eval for a table of scores.
        schema: as written in the file.
        content: the result.
        command: that made it, None where the file does not say.
        version: of rankscope that made it, None where the file does not say.
        sha256: of the file.
        bytes: its size.
    """

    path: str
    kind: str
    schema: str
    content: Any = field(repr=False)
    command: str | None
    version: str | None
    sha256: str
    bytes: int
