"""From a checkpoint to a smaller folder: measure, plan, factorise, write."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rankscope.atomic import atomic_folder, refuse_existing
from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.compress.factorise import truncated_svd
from rankscope.compress.plan import Plan, SitePlan, Spectrum, plan_by_eps, plan_by_ratio, validate_ratio
from rankscope.compress.report import CompressReport, site_report
from rankscope.compress.write import TensorSpec, write_weights
from rankscope.errors import FamilyError, OptionError, unknown_choice
from rankscope.families import Factored, Site
from rankscope.lowrank.layout import low_rank_config
from rankscope.numerics import FactoredMatrix, singular_values, validate_eps
from rankscope.numerics.parallel import parallel_map
from rankscope.placement import resolve_dtype
from rankscope.progress import Progress, silent

METHODS = ("svd",)
_COMPANIONS = (
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "spiece.model",
)


def compress(
    checkpoint: Checkpoint | str | Path | None = None,
    *,
    out: str | Path,
    eps: float | None = None,
    ratio: float | None = None,
    sites: Sequence[str] | str = ("attention",),
    method: str = "svd",
    force: bool = False,
    dtype: str | torch.dtype | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> CompressReport:
    """Write a smaller checkpoint in which selected matrices are stored as two thin ones.

    The folder holds ``config.json``, ``model.safetensors``, the source's ``generation_config.json`` and tokenizer,
    and ``compress.json``, the report. It appears whole or not at all. Matrices are read twice, one per worker at a
    time, once for their singular values and once for their factors; no module is built.

    Args:
        checkpoint: an open checkpoint, or what `open_checkpoint` takes.
        out: folder to write.
        eps: keep every σ_j > ε·σ_1, ε in [0, 1); either this or ``ratio``.
        ratio: keep the selected sites' stored numbers at or below this share, in (0, 1]; the ε is found.
        sites: words as for `rankscope.families.select_sites`; embedding tables are never factored.
        method: ``svd``, the plain truncated SVD.
        force: replace ``out`` if it exists.
        dtype: cast every weight to this format; each keeps its own by default.
        workers: matrices decomposed at the same time, one thread each; all cores by default.
        progress: called with (done, total, what).

    Raises:
        OptionError: options that contradict each other or are out of range.
        OutputError: ``out`` exists, or cannot be written.
        CheckpointError: the source cannot be read.
        FamilyError: the source has no low-rank model class.
    """
    begin = time.perf_counter()
    kind = resolve_dtype(dtype)
    _check_options(eps, ratio, method)
    refuse_existing(out, force)
    source = checkpoint if isinstance(checkpoint, Checkpoint) else open_checkpoint(checkpoint)
    chosen = _factorable(source, sites)
    report_progress = progress or silent
    spectra = _measure(source, chosen, eps, workers, report_progress)
    plan = plan_by_ratio(spectra, ratio) if ratio is not None else plan_by_eps(spectra, _given(eps))
    jobs = _jobs(source, plan, kind)
    with atomic_folder(out, force) as folder:
        _write_config(source, plan, method, kind, folder)
        write_weights(
            folder, [spec for job in jobs for spec in job.specs], _run(source, jobs, workers, report_progress)
        )
        report = CompressReport(
            model=source.source,
            family=source.family.name,
            out=str(out),
            method=method,
            eps=plan.eps,
            target_ratio=plan.target,
            ratio=plan.ratio,
            parameters={
                "before": source.parameters,
                "after": source.parameters - plan.before + plan.after,
            },
            selected_parameters={"before": plan.before, "after": plan.after},
            bytes={"before": source.bytes, "after": sum(spec.bytes for job in jobs for spec in job.specs)},
            dtype=None if kind is None else str(kind).removeprefix("torch."),
            seconds=round(time.perf_counter() - begin, 3),
            sites=tuple(site_report(site, entry) for site, entry in zip(chosen, plan.sites, strict=True)),
        )
        _write_json(folder / "compress.json", report.to_json())
    return report


def _check_options(eps: float | None, ratio: float | None, method: str) -> None:
    if method not in METHODS:
        raise OptionError(unknown_choice("method", method, METHODS))
    if (eps is None) == (ratio is None):
        given = "neither" if eps is None else "both"
        raise OptionError(f"give either eps or ratio, not {given}: e.g. eps 0.05, or ratio 0.4.")
    if eps is not None:
        validate_eps(eps)
    if ratio is not None:
        validate_ratio(ratio)


def _given(eps: float | None) -> float:
    if eps is None:
        raise AssertionError("options were checked")
    return eps


def _factorable(source: Checkpoint, words: Sequence[str] | str) -> tuple[Site, ...]:
    """Return the selected sites that are linear layers; a lookup table has no product to split."""
    if source.family.name == "t5" and not any(site.stack == "decoder" for site in source.sites(["all"])):
        raise FamilyError(f"{source.source} has no decoder: only encoder-decoder T5 models can be compressed.")
    chosen = tuple(site for site in source.sites(words) if site.role != "embedding")
    if not chosen:
        raise OptionError(
            f"sites {words!r} selects only the embedding table, which stays dense: "
            "choose from attention, mlp, q, k, v, o."
        )
    return chosen


def _measure(
    source: Checkpoint, sites: Sequence[Site], eps: float | None, workers: int | None, progress: Progress
) -> list[Spectrum]:
    def values(matrix: Tensor | FactoredMatrix) -> Tensor:
        if isinstance(matrix, FactoredMatrix):
            return matrix.singular_values()
        return singular_values(matrix, smallest_eps=eps)

    spectra = []
    sigmas = parallel_map(values, (source.matrix(site) for site in sites), workers)
    for done, (site, sigma) in enumerate(zip(sites, sigmas, strict=True), start=1):
        now = source.factored.get(site.module)
        stored = (None, None) if now is None else (now.inner, source.stored(site))
        spectra.append(Spectrum(site.name, source.shape(site), sigma, *stored))
        progress(done, len(sites), "singular values")
    return spectra


@dataclass(frozen=True)
class _Job:
    """One unit of writing: the stored tensor ``copy`` under a name, or a site to factor into two."""

    specs: tuple[TensorSpec, ...]
    copy: str = ""
    site: Site | None = None
    plan: SitePlan | None = None


def _jobs(source: Checkpoint, plan: Plan, kind: torch.dtype | None) -> list[_Job]:
    by_name = {site.name: site for site in source.sites(["all"])}
    jobs, replaced = [], set()
    for entry in plan.sites:
        if not entry.changed:
            continue
        site = by_name[entry.name]
        names = [entry.name, f"{entry.module}.up.weight", f"{entry.module}.down.weight"]
        present = [name for name in names if name in source.index]
        replaced.update(present)
        form = kind or source.index[present[0]].dtype
        down = TensorSpec(f"{entry.module}.down.weight", (entry.rank, entry.shape[1]), form)
        up = TensorSpec(f"{entry.module}.up.weight", (entry.shape[0], entry.rank), form)
        jobs.append(_Job((down, up), site=site, plan=entry))
    biases = {f"{entry.module}.bias": f"{entry.module}.up.bias" for entry in plan.sites if entry.changed}
    for name, info in source.index.items():
        if name not in replaced:
            form = info.dtype if kind is None else kind
            jobs.append(_Job((TensorSpec(biases.get(name, name), info.shape, form),), copy=name))
    # Widest numbers first keeps every tensor aligned for readers that map the file.
    return sorted(jobs, key=lambda job: (-job.specs[0].dtype.itemsize, job.specs[0].name))


def _run(
    source: Checkpoint, jobs: Sequence[_Job], workers: int | None, progress: Progress
) -> Iterator[tuple[str, Tensor]]:
    def read() -> Iterator[tuple[_Job, Tensor | FactoredMatrix]]:
        for job in jobs:
            yield job, source.matrix(job.site) if job.site else source.tensor(job.copy)

    def work(item: tuple[_Job, Tensor | FactoredMatrix]) -> list[Tensor]:
        job, stored = item
        if job.plan is not None:
            factors = truncated_svd(stored, job.plan.rank, job.specs[0].dtype)
            return [factors.down, factors.up]
        assert isinstance(stored, Tensor)
        return [stored.to(job.specs[0].dtype)]

    results = parallel_map(work, read(), workers)
    for done, (job, tensors) in enumerate(zip(jobs, results, strict=True), start=1):
        yield from ((spec.name, tensor) for spec, tensor in zip(job.specs, tensors, strict=True))
        progress(done, len(jobs), "factors")


def _write_config(source: Checkpoint, plan: Plan, method: str, kind: torch.dtype | None, folder: Path) -> None:
    factored = {site.module: Factored(site.rank) for site in plan.sites if site.changed}
    config = low_rank_config(source.config, source.family.name, {**source.layouts, **factored}, method)
    if kind is not None:
        keys = [key for key in ("torch_dtype", "dtype") if key in config] or ["torch_dtype"]
        config.update(dict.fromkeys(keys, str(kind).removeprefix("torch.")))
    _write_json(folder / "config.json", config)
    for name in _COMPANIONS:
        if (source.folder / name).is_file():
            shutil.copyfile(source.folder / name, folder / name)


def _write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
