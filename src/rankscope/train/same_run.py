"""Whether a config goes on with a run, or would make another one of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rankscope.errors import DataError, OutputError
from rankscope.io import codec
from rankscope.train.config import PretrainConfig

RECORD = "config.json"
MAY_CHANGE = ("log_steps", "save_steps", "keep_steps", "validation", "spectra")
"""What a resumed run may do differently: none of it changes a bit of a weight. Everything else does; activations that
are computed again and compiled networks round differently.
"""
END = ("max_steps", "decay_steps")
"""What may change while the learning rate has not begun to depend on it."""
REMEDIES = ("learning_rate", "max_grad_norm")
"""What may be lowered at the last snapshot of a run that diverged: it is another run from there on, and says so."""


@dataclass(frozen=True)
class Change:
    """A field that a run which had diverged went on with another value of.

    Attributes:
        step: optimiser steps taken before it.
        field: its name.
        before: value until then.
        after: value from then on.
    """

    step: int
    field: str
    before: float
    after: float


@dataclass(frozen=True)
class RunRecord:
    """What a run is a function of.

    Attributes:
        config: the run, as it goes on.
        precision: number format of the forward pass, ``fp32`` or ``bf16``; ``auto`` depends on the device.
        processes: processes that train together.
        changes: what was lowered on the way, in order.
    """

    config: PretrainConfig
    precision: str
    processes: int
    changes: tuple[Change, ...] = ()

    def write(self, run: Path) -> None:
        """Keep the record beside the snapshots."""
        codec.write(run / RECORD, self, indent=2)


def read_record(run: Path) -> RunRecord | None:
    """Read what the run in a folder was started as; None where nothing says so.

    Raises:
        OutputError: the record is damaged, or of another version.
    """
    if not (run / RECORD).exists():
        return None
    try:
        return codec.read(RunRecord, run / RECORD)
    except DataError as error:
        raise OutputError(
            f"{error} It does not say what run this was: start anew with --force or another --out."
        ) from error


def go_on(run: Path, earlier: RunRecord, now: RunRecord, step: int, *, diverged: bool) -> RunRecord:
    """Refuse to go on with a run as another one.

    Args:
        run: its folder, for the message.
        earlier: what it was started as.
        now: what it would go on as.
        step: optimiser steps it has taken up to the snapshot that it goes on from.
        diverged: whether it stopped because its loss or weights were not finite.

    Returns:
        ``now`` with all that was lowered on the way.

    Raises:
        OutputError: a field differs that the weights depend on.
    """
    # a snapshot from before a change may be the newest whole one: the change then happens there
    changes = [replace(change, step=min(step, change.step)) for change in earlier.changes]
    for name, was, wanted in differences(earlier.config, now.config):
        if name in END and _still_open(earlier.config, now.config, step):
            continue
        if name in REMEDIES and diverged and step and 0 < wanted < was:
            changes.append(Change(step, name, was, wanted))
            continue
        raise OutputError(
            f"the run in {run} has {name} {was!r}, not {wanted!r}: resume it as it was, or start anew with --force "
            "or another --out."
        )
    if now.config.max_steps < step:
        raise OutputError(f"the run in {run} is at step {step} already: max_steps {now.config.max_steps} is below it.")
    if earlier.processes != now.processes:
        raise OutputError(
            f"the run in {run} was started in {earlier.processes} process(es), not {now.processes}: resume it so."
        )
    if earlier.precision != now.precision:
        raise OutputError(
            f"the run in {run} computes in {earlier.precision}, this device in {now.precision}: resume it on the same "
            "kind of device."
        )
    return replace(now, changes=tuple(changes))


def differences(earlier: PretrainConfig, now: PretrainConfig) -> list[tuple[str, Any, Any]]:
    """Fields that two configs differ in, those that `MAY_CHANGE` left out: (dotted name, earlier value, new value)."""
    was, is_ = codec.plain(earlier), codec.plain(now)
    return [found for name in was if name not in MAY_CHANGE for found in _differences(name, was[name], is_[name])]


def _differences(name: str, was: Any, wanted: Any) -> list[tuple[str, Any, Any]]:
    if isinstance(was, dict) and isinstance(wanted, dict):
        return [found for key in was for found in _differences(f"{name}.{key}", was[key], wanted.get(key))]
    return [] if was == wanted else [(name, was, wanted)]


def _still_open(earlier: PretrainConfig, now: PretrainConfig, step: int) -> bool:
    """Whether the learning rate of the first ``step`` steps is the same under both ends."""
    if now.schedule == "constant":
        return True
    begins = min(config.max_steps - config.decay_steps for config in (earlier, now))
    return now.schedule == "warmup_stable_decay" and step <= begins
