"""Table 9's claim: which channel a model misses most."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope_lab.data.channels import DRIVERS
from rankscope_lab.encoders.published import published_value
from rankscope_lab.encoders.tables.record import Check, Runs, runs_of, synthetic


def mask_orders(runs: Runs, seeds: int, epochs: int, encoders: Sequence[str] | None) -> tuple[Check, ...]:
    """Whether channels, from the largest drop in accuracy to the smallest, come in the printed order.

    Channels that are printed with the same accuracy may come either way. Runs that diverged are left out.
    """
    checks = []
    for encoder in ("sum", "ci", "cat", "concat", "linear", "linear-ortho", "mlp", "linear-ppe"):
        found = runs_of(synthetic(), encoder, runs, seeds, epochs).values()
        masked = [run.diagnostics["mask"]["masked"] for run in found if "mask" in run.diagnostics and not run.diverged]
        if not masked or (encoders is not None and encoder not in encoders):
            continue
        printed = _printed(encoder)
        alike = [_same_order(one, printed) for one in masked]
        means = [sum(values) / len(masked) for values in zip(*masked, strict=True)]
        claim = "drops by channel in the order " + " ".join(map(str, _order(printed)))
        checks.append(Check(encoder, claim, _same_order(means, printed), sum(alike), len(alike)))
    return tuple(checks)


def _printed(encoder: str) -> list[float]:
    values = [published_value("9", "C=4", encoder, f"ch{channel}") for channel in range(DRIVERS)]
    return [value.mean for value in values if value is not None]


def _order(accuracies: Sequence[float]) -> list[int]:
    """Channels by accuracy without them, lowest first: the largest drop comes first."""
    return sorted(range(len(accuracies)), key=lambda channel: accuracies[channel])


def _same_order(ours: Sequence[float], printed: Sequence[float]) -> bool:
    """Whether the printed accuracies never fall along our order."""
    along = [printed[channel] for channel in _order(ours)]
    return along == sorted(along)
