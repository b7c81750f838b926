"""Where a healing begins: anew, at a snapshot of a stopped one, or at its end."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from rankscope.compress.heal.config import HealConfig
from rankscope.compress.heal.record import HealRecord, differences, go_on, read_record
from rankscope.compress.heal.report import HealReport, read_report
from rankscope.errors import OutputError
from rankscope.io.atomic import refuse_existing
from rankscope.io.codec import build
from rankscope.train import curves, run_folder
from rankscope.train.run_folder import Snapshot


@dataclass(frozen=True)
class Start:
    """Where a healing begins, and as what: at a snapshot or, without one, at the student; or it is finished already.

    Attributes:
        record: what it is a function of.
        snapshot: where it goes on.
        finished: the report, where there is nothing left to do.
    """

    record: HealRecord
    snapshot: Snapshot | None = None
    finished: HealReport | None = None

    @property
    def step(self) -> int:
        """Steps that have been taken."""
        return self.snapshot.step if self.snapshot else 0


def look(record: HealRecord, target: Path, resume: bool, force: bool) -> Start:
    """Decide where the healing into ``target`` begins, and refuse what may not be.

    Raises:
        OutputError: ``target`` or an unfinished healing of it exists, there is nothing to resume, or what is to be
            resumed is another healing.
    """
    run = run_folder.run_folder(target)
    earlier = read_record(run) if resume or not force else None
    if resume and (report := _finished(record, earlier, target)) is not None:
        if run.is_dir():  # the process was killed between saving and cleaning up
            shutil.rmtree(run)
        return Start(record, finished=report)
    refuse_existing(target, force)
    newest = run_folder.newest(run)
    if not resume:
        if newest is not None and not force:
            raise OutputError(
                f"snapshots of an unfinished healing lie in {run}: go on with --resume, or start anew with --force."
            )
        return Start(record)
    if earlier is None:
        raise OutputError(f"nothing to resume: no healing in {run}. Start without --resume.")
    step = newest.step if newest else 0
    return Start(go_on(run, earlier, record, step, diverged=run_folder.diverged(run)), newest)


def _finished(record: HealRecord, begun: HealRecord | None, target: Path) -> HealReport | None:
    """Return the report of the same healing where ``target`` holds its result.

    A student that was replaced by it is another one by now: ``begun`` says which it had been.
    """
    report = read_report(target)
    if report is None:
        return None
    done = HealRecord(build(HealConfig, report.options), report.fingerprints, report.precision)
    before = record if begun is None else replace(record, fingerprints=begun.fingerprints)
    same = [one for one in (record, before) if not differences(done, one)]
    return replace(report, out=str(target)) if same else None


def begin(start: Start, target: Path, resume: bool, held: contextlib.ExitStack) -> None:
    """Claim the folder of the healing until ``held`` closes, and leave in it what there was where it begins.

    Raises:
        OutputError: another process holds it.
    """
    run = run_folder.run_folder(target)
    held.enter_context(run_folder.claimed(run))
    for stale in target.parent.glob(f".{target.name}.*.partial"):  # of a process killed while it saved
        shutil.rmtree(stale, ignore_errors=True)
    if not resume:
        run_folder.clear(run)
        held.enter_context(run_folder.removed_if_empty(run))
    run_folder.tidy(run)
    curves.forget_after(run / curves.LOSSES, start.step)
    start.record.write(run)
    (run / run_folder.DIVERGED).unlink(missing_ok=True)
