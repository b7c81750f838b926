"""From a checkpoint to a smaller folder: measure, plan, factorise, write."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rankscope.atomic import atomic_folder, refuse_existing
from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.compress.allocate import Allocation, plan_by_budget
from rankscope.compress.budget import Budget
from rankscope.compress.calibrated import Source, calibration_for, needs_calibration
from rankscope.compress.groups import METHOD_NAMES, Group, Matrices, check_method, make_groups
from rankscope.compress.plan import SitePlan, Spectrum, plan_by_eps, validate_ratio
from rankscope.compress.report import CompressReport, site_reports
from rankscope.compress.write import TensorSpec, write_weights
from rankscope.errors import FamilyError, OptionError, unknown_choice
from rankscope.families import Layout, Site
from rankscope.lowrank.layout import low_rank_config
from rankscope.numerics import FactoredMatrix, validate_eps
from rankscope.numerics.parallel import parallel_map
from rankscope.placement import resolve_dtype
from rankscope.progress import Progress, silent

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
    budget: Budget | None = None,
    sites: Sequence[str] | str = ("attention",),
    method: str = "svd",
    allocation: str | Allocation | None = None,
    calibration: Source | None = None,
    multiple: int = 1,
    seed: int = 0,
    device: str = "cpu",
    force: bool = False,
    dtype: str | torch.dtype | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> CompressReport:
    """Write a smaller checkpoint in which selected matrices are stored as two thin ones, or heads are narrower.

    The folder holds ``config.json``, ``model.safetensors``, the source's ``generation_config.json`` and tokenizer,
    and ``compress.json``, the report. It appears whole or not at all. Matrices are read twice, one per worker at a
    time, once for their singular values and once for their factors; a module is built for calibration alone.

    Args:
        checkpoint: an open checkpoint, or what `open_checkpoint` takes.
        out: folder to write.
        eps: keep every σ_j > ε·σ_1, ε in [0, 1); either this, ``ratio`` or ``budget``.
        ratio: keep the selected sites' stored numbers at or below this share, in (0, 1].
        budget: a limit on parameters, bytes or key/value-cache bytes instead; its ``fixed`` and ``itemsize`` are
            filled in for the checkpoint.
        sites: words as for `rankscope.families.select_sites`; embedding tables are never factored.
        method: ``svd`` (plain truncated SVD), ``whitened``, ``joint`` (whole heads), ``theorem3``, ``asvd`` or
            ``random``; see `rankscope.compress.methods` and `rankscope.compress.joint`.
        allocation: a name of `rankscope.compress.ALLOCATIONS`, or an `Allocation`. By default ``uniform-eps`` for
            ``svd`` and wherever ``eps`` is given, ``energy`` for the other methods.
        calibration: moments of the layers' inputs for methods that need them: a `Calibration`, a file that one was
            saved in, or the name of a calibration set as `calibration_set` takes it (``mixture:256`` by default).
        multiple: ranks are rounded down to multiples of it.
        seed: of the calibration set, and of the method ``random``.
        device: where calibration runs.
        force: replace ``out`` if it exists.
        dtype: cast every weight to this format; each keeps its own by default.
        workers: matrices decomposed at the same time, one thread each; all cores by default.
        progress: called with (done, total, what).

    Raises:
        OptionError: options that contradict each other or are out of range.
        OutputError: ``out`` exists, or cannot be written.
        CheckpointError: the source cannot be read.
        DataError: the calibration set cannot be used.
        FamilyError: the source has no low-rank model class, or the method does not suit it.
    """
    begin = time.perf_counter()
    kind = resolve_dtype(dtype)
    _check_options(eps, ratio, budget, method, multiple)
    rule = _rule(allocation, method, eps)
    refuse_existing(out, force)
    source = checkpoint if isinstance(checkpoint, Checkpoint) else open_checkpoint(checkpoint)
    chosen = _factorable(source, sites)
    report_progress = progress or silent
    check_method(source, chosen, method)
    moments = None
    if needs_calibration(method):
        moments = calibration_for(source, chosen, calibration, seed=seed, device=device, progress=report_progress)
    groups = make_groups(source, chosen, method, moments, eps=eps, seed=seed)
    spectra = _measure(source, groups, workers, report_progress)
    flat = [spectrum for part in spectra for spectrum in part]
    if eps is not None:
        plan = plan_by_eps(flat, eps, multiple)
    else:
        limit = Budget("ratio", ratio) if ratio is not None else _filled(budget, source, flat, kind)
        plan = plan_by_budget(flat, limit, rule, multiple)
    parts = _split(plan.sites, [len(part) for part in spectra])
    layouts = _layouts(source, groups, parts)
    jobs = _jobs(source, groups, parts, kind)
    with atomic_folder(out, force) as folder:
        _write_config(source, layouts, method, kind, folder)
        write_weights(
            folder, [spec for job in jobs for spec in job.specs], _run(source, jobs, workers, report_progress)
        )
        report = CompressReport(
            model=source.source,
            family=source.family.name,
            out=str(out),
            method=method,
            allocation=plan.allocation,
            calibration=None if moments is None else moments.settings.corpus,
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
            sites=tuple(
                entry
                for group, mine in zip(groups, parts, strict=True)
                for entry in site_reports(source, group.sites, mine)
                if entry.name in {site.name for site in chosen}
            ),
        )
        _write_json(folder / "compress.json", report.to_json())
    return report


def _check_options(eps: float | None, ratio: float | None, budget: Budget | None, method: str, multiple: int) -> None:
    if method not in METHOD_NAMES:
        raise OptionError(unknown_choice("method", method, METHOD_NAMES))
    given = [name for name, value in (("eps", eps), ("ratio", ratio), ("budget", budget)) if value is not None]
    if len(given) != 1:
        said = "neither" if not given else "both" if len(given) == 2 else "all three"
        raise OptionError(f"give either eps or ratio, not {said}: e.g. eps 0.05, or ratio 0.4.")
    if eps is not None:
        validate_eps(eps)
    if ratio is not None:
        validate_ratio(ratio)
    if multiple < 1:
        raise OptionError(f"multiple {multiple} is no rounding: give a whole number, at least 1.")


def _rule(allocation: str | Allocation | None, method: str, eps: float | None) -> Allocation:
    if allocation is None:
        return Allocation("uniform-eps" if method == "svd" or eps is not None else "energy")
    rule = allocation if isinstance(allocation, Allocation) else Allocation(allocation)
    if eps is not None and rule.name != "uniform-eps":
        raise OptionError(
            f"eps is one tolerance for all matrices: with allocation {rule.name} give a ratio or a budget."
        )
    return rule


def _filled(budget: Budget | None, source: Checkpoint, spectra: Sequence[Spectrum], kind: torch.dtype | None) -> Budget:
    """Complete a budget of the whole model with what the selected matrices do not count."""
    assert budget is not None
    if budget.kind == "ratio":
        return budget
    largest = max(source.index.values(), key=lambda info: info.bytes).dtype
    itemsize = (kind or largest).itemsize
    if budget.kind == "cache-bytes":
        if not any(one.cached for one in spectra):
            raise OptionError("a budget of cache bytes needs heads that become narrower: use method joint.")
        return replace(budget, itemsize=itemsize)
    fixed = source.parameters - sum(one.stored for one in spectra)
    return replace(budget, fixed=fixed * (itemsize if budget.kind == "bytes" else 1), itemsize=itemsize)


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
    source: Checkpoint, groups: Sequence[Group], workers: int | None, progress: Progress
) -> list[list[Spectrum]]:
    def work(item: tuple[Group, Matrices]) -> list[Spectrum]:
        group, matrices = item
        return group.spectra(matrices)

    found = []
    for done, part in enumerate(parallel_map(work, ((group, _read(source, group)) for group in groups), workers), 1):
        found.append(part)
        progress(done, len(groups), "singular values")
    return found


def _read(source: Checkpoint, group: Group) -> Matrices:
    return {site.module: source.matrix(site) for site in group.sites}


def _split(plans: Sequence[SitePlan], counts: Sequence[int]) -> list[list[SitePlan]]:
    stream = iter(plans)
    return [[next(stream) for _ in range(count)] for count in counts]


def _layouts(source: Checkpoint, groups: Sequence[Group], parts: Sequence[Sequence[SitePlan]]) -> dict[str, Layout]:
    layouts = dict(source.layouts)
    for group, plans in zip(groups, parts, strict=True):
        if any(plan.changed for plan in plans):
            layouts |= group.layouts(plans)
    return layouts


@dataclass(frozen=True)
class _Job:
    """One unit of writing: the stored tensor ``copy`` under a name, or a group to cut."""

    specs: tuple[TensorSpec, ...]
    copy: str = ""
    group: Group | None = None
    plans: tuple[SitePlan, ...] = ()


def _jobs(
    source: Checkpoint, groups: Sequence[Group], parts: Sequence[Sequence[SitePlan]], kind: torch.dtype | None
) -> list[_Job]:
    jobs: list[_Job] = []
    replaced: set[str] = set()
    biases: dict[str, str] = {}
    for group, plans in zip(groups, parts, strict=True):
        if not any(plan.changed for plan in plans):
            continue
        present = [name for site in group.replaced(plans) for name in _stored_names(source, site)]
        replaced.update(present)
        form = kind or source.index[present[0]].dtype
        specs = [TensorSpec(name, shape, form) for name, shape in group.shapes(plans).items()]
        factored = [spec.name.removesuffix(".up.weight") for spec in specs if spec.name.endswith(".up.weight")]
        biases |= {f"{module}.bias": f"{module}.up.bias" for module in factored}
        jobs.append(_Job(tuple(specs), group=group, plans=tuple(plans)))
    for name, info in source.index.items():
        if name not in replaced:
            form = info.dtype if kind is None else kind
            jobs.append(_Job((TensorSpec(biases.get(name, name), info.shape, form),), copy=name))
    # Widest numbers first keeps every tensor aligned for readers that map the file.
    return sorted(jobs, key=lambda job: (-job.specs[0].dtype.itemsize, job.specs[0].name))


def _stored_names(source: Checkpoint, site: Site) -> list[str]:
    names = [site.name, f"{site.module}.up.weight", f"{site.module}.down.weight"]
    return [name for name in names if name in source.index]


def _run(
    source: Checkpoint, jobs: Sequence[_Job], workers: int | None, progress: Progress
) -> Iterator[tuple[str, Tensor]]:
    def read() -> Iterator[tuple[_Job, Matrices]]:
        for job in jobs:
            yield job, _read(source, job.group) if job.group else {job.copy: source.tensor(job.copy)}

    def work(item: tuple[_Job, Matrices]) -> list[Tensor]:
        job, stored = item
        made = {job.specs[0].name: stored[job.copy]} if job.group is None else job.group.tensors(stored, job.plans)
        return [_cast(made[spec.name], spec.dtype) for spec in job.specs]

    results = parallel_map(work, read(), workers)
    for done, (job, tensors) in enumerate(zip(jobs, results, strict=True), start=1):
        yield from ((spec.name, tensor) for spec, tensor in zip(job.specs, tensors, strict=True))
        progress(done, len(jobs), "factors")


def _cast(tensor: Tensor | FactoredMatrix, dtype: torch.dtype) -> Tensor:
    assert isinstance(tensor, Tensor)
    return tensor.to(dtype).contiguous()


def _write_config(
    source: Checkpoint, layouts: dict[str, Layout], method: str, kind: torch.dtype | None, folder: Path
) -> None:
    config = low_rank_config(source.config, source.family.name, layouts, method)
    if kind is not None:
        keys = [key for key in ("torch_dtype", "dtype") if key in config] or ["torch_dtype"]
        config.update(dict.fromkeys(keys, str(kind).removeprefix("torch.")))
    _write_json(folder / "config.json", config)
    for name in _COMPANIONS:
        if (source.folder / name).is_file():
            shutil.copyfile(source.folder / name, folder / name)


def _write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
