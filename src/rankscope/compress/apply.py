"""From a checkpoint to a smaller folder: measure, plan, factorise, write."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from rankscope.checkpoints import Checkpoint
from rankscope.compress.allocate import Allocation
from rankscope.compress.budget import Budget
from rankscope.compress.calibrated import Source
from rankscope.compress.calibration import CalibrationSet
from rankscope.compress.calibration.report import series_for
from rankscope.compress.encoding import Encoding, encoded
from rankscope.compress.groups import Group, Matrices
from rankscope.compress.plan import Plan, SitePlan, validate_ratio
from rankscope.compress.prepared import CompressOptions, Prepared, prepare, read_matrices, stored_names
from rankscope.compress.report import CompressReport, SiteReport, site_reports
from rankscope.compress.sensitivity import weighed
from rankscope.compress.write import TensorSpec, write_weights
from rankscope.engine.progress import Progress
from rankscope.errors import OptionError
from rankscope.families import Layout
from rankscope.io import codec
from rankscope.io.atomic import atomic_folder, refuse_existing
from rankscope.lowrank.layout import low_rank_config
from rankscope.numerics import validate_eps
from rankscope.numerics.parallel import parallel_map

REPORT = "compress.json"
"""File of a written folder that holds its report."""
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
    decoder: str | None = None,
    probe: CalibrationSet | str | None = None,
    multiple: int = 1,
    seed: int = 0,
    device: str = "cpu",
    force: bool = False,
    dtype: str | torch.dtype | None = None,
    workers: int | None = None,
    storage: str | None = None,
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
        allocation: a name of `rankscope.choices.ALLOCATIONS`, or an `Allocation`. By default ``uniform-eps`` for
            ``svd`` and wherever ``eps`` is given, ``sensitivity`` for ``joint`` (but of a
            text model), ``energy`` for the other methods.
        calibration: moments of the layers' inputs for methods that need them: a `Calibration`, a file that one was
            saved in, or the name of a calibration set as `rankscope.compress.calibration.named_set` takes it
            (``mixture:256`` by default; ``text:FILE`` of a text model).
        decoder: what the decoder reads while the model is calibrated: ``teacher`` (what did follow, the default) or
            ``sampled`` (paths of the model's own, Chronos-T5).
        probe: series on which allocation ``sensitivity`` compares the model's answers, a set or its name
            (``mixture:32`` by default, 128 for a model of patches, others than calibration sees; of a text model, 32
            windows of the part of the text that is not calibrated on).
        multiple: ranks are rounded down to multiples of it.
        seed: of the calibration set, and of the method ``random``.
        device: where the model runs.
        force: replace ``out`` if it exists.
        dtype: cast every weight to this format, with int8 every one but those of linear layers; each keeps its own by
            default.
        workers: matrices decomposed at the same time, one thread each; all cores by default.
        storage: ``int8`` writes the weights of all linear layers (see `rankscope.families.storage`) as whole numbers
            with a scale per row, ``float`` writes floating point; as the source is by default. Where it is given, a
            size need not be: nothing is cut then.
        progress: called with (done, total, what).

    Raises:
        OptionError: options that contradict each other or are out of range.
        OutputError: ``out`` exists, or cannot be written.
        CheckpointError: the source cannot be read.
        DataError: the calibration set cannot be used, or a row cannot be stored in int8.
        FamilyError: the source has no low-rank model class, or the method does not suit it.
    """
    begin = time.perf_counter()
    if storage is not None and eps is None and budget is None:
        ratio = 1.0 if ratio is None else ratio
    _check_target(eps, ratio, budget)
    refuse_existing(out, force)
    how = CompressOptions(
        sites, method, allocation, calibration, probe, multiple, seed, device, dtype, workers, decoder, storage
    )
    prepared = prepare(checkpoint, how, eps=eps, progress=progress)
    if eps is not None:
        plan = prepared.by_eps(eps)
    else:
        limit = Budget("ratio", ratio) if ratio is not None else budget
        assert limit is not None
        prepared = weighed(prepared)
        plan = prepared.by_budget(limit)
    return write_folder(prepared, plan, out, force=force, begin=begin)


def write_folder(
    prepared: Prepared, plan: Plan, out: str | Path, *, force: bool = False, begin: float | None = None
) -> CompressReport:
    """Factorise everything as planned and write the folder, whole or not at all.

    Args:
        prepared: the measured checkpoint.
        plan: which rank where.
        out: folder to write.
        force: replace ``out`` if it exists.
        begin: `time.perf_counter` when the work began, for the report; now by default.
    """
    start = time.perf_counter() if begin is None else begin
    source, parts = prepared.source, prepared.parts(plan)
    layouts = _layouts(source, prepared.groups, parts)
    jobs = _jobs(source, prepared.groups, parts, prepared.encoding(layouts))
    with atomic_folder(out, force) as folder:
        _write_config(prepared, layouts, folder)
        tensors = _run(source, jobs, prepared.how.workers, prepared.progress)
        write_weights(folder, [spec for job in jobs for spec in job.specs], tensors)
        report = CompressReport(
            model=source.source,
            family=source.family.name,
            out=str(out),
            method=prepared.how.method,
            allocation=plan.allocation,
            calibration=None if prepared.calibration is None else prepared.calibration.settings.corpus,
            eps=plan.eps,
            target_ratio=plan.target,
            ratio=plan.ratio,
            parameters={"before": source.parameters, "after": source.parameters - plan.before + plan.after},
            selected_parameters={"before": plan.before, "after": plan.after},
            bytes={"before": source.bytes, "after": sum(spec.bytes for job in jobs for spec in job.specs)},
            dtype=None if prepared.dtype is None else str(prepared.dtype).removeprefix("torch."),
            storage=prepared.storage,
            seconds=round(time.perf_counter() - start, 3),
            notes=_notes(prepared, parts),
            sites=_site_reports(prepared, parts),
        )
        codec.write(folder / REPORT, report, indent=2)
    return report


def _site_reports(prepared: Prepared, parts: Sequence[Sequence[SitePlan]]) -> tuple[SiteReport, ...]:
    chosen = {site.name for site in prepared.sites}
    return tuple(
        entry
        for group, plans in zip(prepared.groups, parts, strict=True)
        for entry in site_reports(prepared.source, group.sites, plans)
        if entry.name in chosen
    )


def _notes(prepared: Prepared, parts: Sequence[Sequence[SitePlan]]) -> tuple[str, ...]:
    """What a user should know of the calibration: whether it showed fewer positions than there are ranks to choose."""
    found = [(group.shortage(plans), group) for group, plans in zip(prepared.groups, parts, strict=True)]
    short = [(shortage, group.sites[0].module) for shortage, group in found if shortage is not None]
    if not short or prepared.calibration is None:
        return ()
    (tokens, rank), module = min(short)
    settings = prepared.calibration.settings
    enough = max(series_for(ranks, positions, settings.series) for (positions, ranks), _ in short)
    return (
        f"calibration set {settings.corpus} shows {len(short)} of {len(found)} matrices or "
        f"attentions fewer positions than they have ranks, {module} {tokens} for {rank}: directions that it does not "
        f"show count as equally loud and very quiet; {enough} series would do in place of {settings.series}.",
    )


def _check_target(eps: float | None, ratio: float | None, budget: Budget | None) -> None:
    budgeted = "" if budget is None else f"a budget of {budget.kind}"
    given = [name for name, value in (("eps", eps), ("ratio", ratio), (budgeted, budget)) if value is not None]
    if not given:
        raise OptionError(
            "no size is given: give eps (--eps 0.05), ratio (--ratio 0.4), a budget (--parameters, --bytes or "
            "--cache-bytes), a loss to hold (compress_to_loss, --max-loss), or storage alone (--storage int8)."
        )
    if len(given) > 1:
        raise OptionError(f"give one size, not {' and '.join(given)}.")
    if eps is not None:
        validate_eps(eps)
    if ratio is not None:
        validate_ratio(ratio)


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
    source: Checkpoint, groups: Sequence[Group], parts: Sequence[Sequence[SitePlan]], encoding: Encoding
) -> list[_Job]:
    jobs: list[_Job] = []
    replaced: set[str] = set()
    biases: dict[str, str] = {}
    for group, plans in zip(groups, parts, strict=True):
        if not any(plan.changed for plan in plans):
            continue
        present = [name for site in group.replaced(plans) for name in stored_names(source, site)]
        replaced.update(present)
        stored = source.index[present[0]].dtype
        specs = [one for name, shape in group.shapes(plans).items() for one in encoding.specs(name, shape, stored)]
        factored = [spec.name.removesuffix(".up.weight") for spec in specs if spec.name.endswith(".up.weight")]
        biases |= {f"{module}.bias": f"{module}.up.bias" for module in factored}
        jobs.append(_Job(tuple(specs), group=group, plans=tuple(plans)))
    for name, info in source.index.items():
        if name not in replaced and not source.is_scale(name):
            jobs.append(_Job(encoding.specs(biases.get(name, name), info.shape, info.dtype), copy=name))
    return sorted(jobs, key=lambda job: (-job.specs[0].dtype.itemsize, job.specs[0].name))


def _run(
    source: Checkpoint, jobs: Sequence[_Job], workers: int | None, progress: Progress
) -> Iterator[tuple[str, Tensor]]:
    def read() -> Iterator[tuple[_Job, Matrices]]:
        for job in jobs:
            yield job, read_matrices(source, job.group) if job.group else {job.copy: source.tensor(job.copy)}

    def work(item: tuple[_Job, Matrices]) -> list[Tensor]:
        job, stored = item
        if job.group is not None:
            return encoded(job.group.tensors(stored, job.plans), job.specs)
        kept = stored[job.copy]
        assert isinstance(kept, Tensor)
        return encoded({job.specs[0].name: kept}, job.specs)

    results = parallel_map(work, read(), workers)
    for done, (job, tensors) in enumerate(zip(jobs, results, strict=True), start=1):
        yield from ((spec.name, tensor) for spec, tensor in zip(job.specs, tensors, strict=True))
        progress(done, len(jobs), "factors")


def _write_config(prepared: Prepared, layouts: dict[str, Layout], folder: Path) -> None:
    source, kind = prepared.source, prepared.dtype
    config = low_rank_config(source.config, source.family, layouts, prepared.how.method, prepared.storage)
    named = [key for key in ("torch_dtype", "dtype") if key in config]
    if kind is None and prepared.storage == "int8" and not named:
        kind = source.dtype  # or loaders would take that of the first scales for the model's
    if kind is not None:
        keys = named or ["torch_dtype"]
        config.update(dict.fromkeys(keys, str(kind).removeprefix("torch.")))
    codec.write(folder / "config.json", config, indent=2)
    for name in _COMPANIONS:
        if (source.folder / name).is_file():
            shutil.copyfile(source.folder / name, folder / name)
