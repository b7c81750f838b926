"""What a healing is a function of, and whether another call goes on with it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rankscope.compress.heal.config import HealConfig
from rankscope.compress.heal.report import FILE
from rankscope.errors import DataError, OutputError
from rankscope.io import codec

RECORD = FILE
"""In the folder of an unfinished healing: its record. In a healed folder: the report, which holds the record too."""
MAY_CHANGE = ("log_steps", "save_seconds")
REMEDIES = ("learning_rate", "max_grad_norm")
"""What may be lowered where a healing diverged."""


@dataclass(frozen=True)
class HealRecord:
    """What a healing is a function of.

    Attributes:
        options: its config.
        fingerprints: of the weights of ``student`` and ``teacher``.
        precision: ``fp32`` or ``bf16``: what ``auto`` meant.
        changes: what was lowered on the way: step, field, before, after.
    """

    options: HealConfig
    fingerprints: dict[str, str]
    precision: str
    changes: tuple[dict[str, Any], ...] = ()

    def write(self, run: Path) -> None:
        """Keep the record beside the snapshots."""
        codec.write(run / RECORD, self, indent=2)


def read_record(run: Path) -> HealRecord | None:
    """Read what the healing in a folder was started as; None where nothing says so.

    Raises:
        OutputError: the record is damaged, or of another version.
    """
    if not (run / RECORD).exists():
        return None
    try:
        return codec.read(HealRecord, run / RECORD)
    except DataError as error:
        raise OutputError(
            f"{error} It does not say what healing this was: start anew with --force or another --out."
        ) from error


def go_on(run: Path, earlier: HealRecord, now: HealRecord, step: int, *, diverged: bool) -> HealRecord:
    """Refuse to go on with a healing as another one.

    Args:
        run: its folder, for the message.
        earlier: what it was started as.
        now: what it would go on as.
        step: steps up to the snapshot that it goes on from.
        diverged: whether it stopped because its loss or weights were not finite.

    Returns:
        ``now`` with all that was lowered on the way.

    Raises:
        OutputError: something differs that the weights depend on.
    """
    changes = [{**change, "step": min(step, change["step"])} for change in earlier.changes]
    for name, was, wanted in differences(earlier, now):
        if name in REMEDIES and diverged and wanted < was:
            changes.append({"step": step, "field": name, "before": was, "after": wanted})
            continue
        raise OutputError(
            f"the healing in {run} has {name} {was!r}, not {wanted!r}: resume it as it was, or start anew with "
            "--force or another --out."
        )
    return HealRecord(now.options, now.fingerprints, now.precision, tuple(changes))


def differences(earlier: HealRecord, now: HealRecord) -> list[tuple[str, Any, Any]]:
    """Whatever two healings differ in and the weights depend on: (name, earlier value, new value)."""
    was, is_ = ({**asdict(one.options), **one.fingerprints, "precision": one.precision} for one in (earlier, now))
    return [(name, was[name], is_[name]) for name in was if name not in MAY_CHANGE and was[name] != is_[name]]
