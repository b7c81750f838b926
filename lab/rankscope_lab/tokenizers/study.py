"""Tokenizer study: all runs of a plan in a folder, and their summary table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rankscope.engine import Progress, silent
from rankscope.engine.device import resolve_device
from rankscope.errors import OutputError
from rankscope.io.run_store import RunStore
from rankscope.measure.spectrum import DEFAULT_EPS, eps_key
from rankscope_lab.data.table import VariableTable
from rankscope_lab.statistics import spread
from rankscope_lab.tokenizers.run_spec import COPY, Plan, RunRecord, Task
from rankscope_lab.tokenizers.runs import Data, run_task

if TYPE_CHECKING:
    import pandas as pd

EPS_KEYS = tuple(eps_key(eps) for eps in DEFAULT_EPS)


@dataclass(frozen=True)
class Row:
    """Means over the seeds of one setting, diverged runs left out.

    Attributes:
        component: of the study.
        setting: of the component.
        epochs: of every run.
        runs: in the means.
        diverged: others.
        error: mean test error; NaN where every run diverged.
        error_std: its sample standard deviation; None of fewer than two runs.
        reference: mean error of what it is compared with.
        used: mean number of codes in use; NaN without codes, as all that follow.
        codes: of the codebook; 0 without.
        perplexity: of their use.
        eps_ranks: mean ε-ranks of the codebook.
        effective_rank: of the codebook.
        width: of tokens; 0 without.
        seconds: mean wall time of a run.
    """

    component: str
    setting: str
    epochs: int
    runs: int
    diverged: int
    error: float
    error_std: float | None
    reference: float
    used: float
    codes: int
    perplexity: float
    eps_ranks: dict[str, float]
    effective_rank: float
    width: int
    seconds: float


@dataclass(frozen=True)
class TokenizerReport:
    """Means over seeds, and the runs that they are of.

    Attributes:
        data: the table in words.
        quick: too short to mean anything.
        rows: one per setting.
        runs: all of them.
    """

    data: str
    quick: bool
    rows: tuple[Row, ...]
    runs: tuple[RunRecord, ...]

    SCHEMA: ClassVar = "rankscope/lab-tokenizers@1"
    KEYS: ClassVar = ("data", "quick", "diverged", "rows")

    @property
    def diverged(self) -> tuple[str, ...]:
        """Diverged runs, excluded from means."""
        return tuple(run.task.id for run in self.runs if run.diverged)

    def to_frame(self) -> pd.DataFrame:
        """One row per setting; ε-ranks as columns ``eps_rank@ε``."""
        import pandas as pd

        flat = []
        for row in self.rows:
            data = asdict(row)
            ranks = data.pop("eps_ranks")
            flat.append(data | {f"eps_rank@{key}": ranks.get(key) for key in EPS_KEYS})
        return pd.DataFrame(flat)


def run_study(
    table: VariableTable,
    plan: Plan,
    out: str | Path,
    *,
    device: str = "cpu",
    force: bool = False,
    progress: Progress | None = None,
) -> TokenizerReport:
    """Execute missing runs, one file each in ``out/runs``, and summarise.

    Args:
        table: what components learn from.
        plan: what to run.
        out: folder, new or begun.
        device: ``cpu``, ``cuda`` or ``auto``.
        force: run everything anew.
        progress: called with the work done.

    Raises:
        DataError: the table is too short, or a run's file is damaged.
        OutputError: the folder holds runs on another table, or cannot be written.
        RankscopeError: another process runs the study in this folder.
    """
    folder, report = Path(out), progress or silent
    data = Data(table, plan, resolve_device(device))
    data.check()
    tasks = plan.tasks()
    total, done = sum(task.cost for task in tasks), 0
    store = RunStore(folder, "the study", items="runs")
    with store.open():
        kept = {task: None if force else _kept(store, task, data) for task in tasks}
        runs = []
        for task in tasks:
            record = kept[task]
            if record is None:
                record = run_task(task, data, folder, _within(task, done, total, report))
                store.put(task.id, record)
            runs.append(record)
            done += task.cost
            report(done, total, task.id)
    return TokenizerReport(data.name, plan.quick, summarise(runs), tuple(runs))


def _within(task: Task, before: int, total: int, report: Progress) -> Progress:
    """A task's own progress as part of the whole."""
    return lambda done, all_of_it, what: report(before + task.cost * done // max(all_of_it, 1), total, task.id)


def _kept(store: RunStore, task: Task, data: Data) -> RunRecord | None:
    record = store.get(task.id, RunRecord)
    if record is None or task.component == COPY:
        return record
    if record.data != data.name or (record.digest and record.digest != data.digest):
        other = data.name if record.data != data.name else "these columns and values"
        raise OutputError(
            f"{store.path(task.id)} was run on {record.data}, not on {other}: choose another --out, or run it again "
            "with --force."
        )
    return record


def summarise(runs: Sequence[RunRecord]) -> tuple[Row, ...]:
    """Means over seeds, settings in the order of their first run."""
    groups: dict[tuple[str, str, int], list[RunRecord]] = {}
    for run in runs:
        groups.setdefault((run.task.component, run.task.setting, run.task.epochs), []).append(run)
    return tuple(_row(key, group) for key, group in groups.items())


def _row(key: tuple[str, str, int], group: Sequence[RunRecord]) -> Row:
    kept = [run for run in group if not run.diverged]
    with_codes = [run for run in kept if run.codes]
    errors = spread([run.error for run in kept])
    return Row(
        *key,
        runs=len(kept),
        diverged=len(group) - len(kept),
        error=errors.mean,
        error_std=errors.std,
        reference=spread([run.reference for run in kept]).mean,
        used=spread([run.used for run in with_codes]).mean,
        codes=group[0].codes,
        perplexity=spread([run.perplexity for run in with_codes]).mean,
        eps_ranks={eps: spread([run.eps_ranks[eps] for run in with_codes]).mean for eps in EPS_KEYS if with_codes},
        effective_rank=spread([run.effective_rank for run in with_codes]).mean,
        width=group[0].width,
        seconds=spread([run.seconds for run in group]).mean,
    )
