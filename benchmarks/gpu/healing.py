"""Heal both bundled models after joint compression to 0.15, 0.075 and 0.05, a few minutes each, large batch, bf16.

Resumable: existing compressions, healed models and calibrations are reused.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from training import REHEARSAL, RUNS, device, record, save

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.compress import CompressOptions, compress
from rankscope.compress.calibration import calibrate, named_set
from rankscope.compress.calibration.passes import with_partners
from rankscope.compress.heal import HealConfig, heal
from rankscope.errors import RankscopeError
from rankscope.io import codec

MODELS = ("bundled-bolt", "bundled")
RATIOS = (0.15, 0.075, 0.05)
MINUTES = 3.0
"""Time of one healing: six, six compressions and the scores take half an hour."""
BATCH, LEARNING_RATE = 256, 1e-3
CALIBRATION = "mixture:1024"


def main() -> None:
    """Every model at every ratio; what is done is written after each."""
    from rankscope_cli.progress import progress_lines

    folder = RUNS / "healing"
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for name in MODELS:
        source = open_checkpoint(name)
        moments = folder / f"{name}-moments.safetensors"
        with progress_lines(name) as progress:
            calibrate(
                source,
                named_set(source, "mixture:8" if REHEARSAL else CALIBRATION),
                sites=with_partners(source, source.sites()),
                batch_size=8 if REHEARSAL else 64,
                device=device(),
                file=moments,
                progress=progress,
            )
        for ratio in RATIOS:
            try:
                rows.append(point(source, ratio, folder, moments))
            except RankscopeError as error:  # the others are worth their time
                rows.append({"model": name, "ratio": ratio, "error": str(error)})
            save("healing", rows)
    done = [row for row in rows if "error" not in row]
    if done:
        record("healing", done)
        save("healing", rows)
    for row in rows:
        if "error" in row:
            print(f"{row['model']} at {row['ratio']}: {row['error']}")


def point(source: Checkpoint, ratio: float, folder: Path, moments: Path) -> dict[str, Any]:
    """Compress, score, heal, score again."""
    from rankscope_cli.progress import progress_lines

    small = folder / f"{source.source}-{ratio:g}"
    healed = small.with_name(f"{small.name}-healed")
    with progress_lines(small.name) as progress:
        if not small.exists():
            rule = "energy" if REHEARSAL else None
            how: dict[str, Any] = {"method": "joint", "allocation": rule, "calibration": moments, "device": device()}
            compress(source, CompressOptions(attention_ratio=ratio, **how), out=small, progress=progress)
        if not healed.exists():
            begun = any(healed.with_name(f"{healed.name}.run").glob("checkpoint-*"))
            heal(
                small, source, healing(), out=healed, resume=begun, force=not begun, device=device(), progress=progress
            )
    report = json.loads((healed / "heal.json").read_text(encoding="utf-8"))
    before, after = scores(source.source, small, healed)
    return {
        "model": source.source,
        "ratio": ratio,
        "parameters": open_checkpoint(healed).parameters / source.parameters,
        "WQL": before["relative_WQL"],
        "healed_WQL": after["relative_WQL"],
        "MASE": before["relative_MASE"],
        "healed_MASE": after["relative_MASE"],
        "first_loss": report["first_loss"],
        "last_loss": report["last_loss"],
        "steps": report["steps"],
        "steps_per_second": report["steps"] / max(report["seconds"], 0.1),
    }


def healing() -> HealConfig:
    """Minutes of a large batch on a GPU, a few small steps in a rehearsal."""
    if REHEARSAL:
        return HealConfig(steps=2, batch_size=2, log_steps=1)
    precision = "bf16" if device() == "cuda" else "fp32"
    return HealConfig(minutes=MINUTES, batch_size=BATCH, learning_rate=LEARNING_RATE, precision=precision)


def scores(original: str, small: Path, healed: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Scores on the embedded suite over the original's, before and after; all of them beside the models."""
    from rankscope_cli.progress import progress_lines
    from rankscope_eval import Forecasting, evaluate

    how = Forecasting(2 if REHEARSAL else 20, 32 if REHEARSAL else 256, device=device())
    tasks = ["nile", "generated_ar1"] if REHEARSAL else None
    with progress_lines(f"{small.name}: scores") as progress:
        found = evaluate([str(small), str(healed)], how=how, tasks=tasks, baseline=original, progress=progress)
    text = json.dumps(codec.plain(found), indent=2) + "\n"
    small.with_name(f"{small.name}-scores.json").write_text(text, encoding="utf-8")
    summary = [row for row in codec.plain(found)["summary"] if row["benchmark"] == "all"]
    first, second = (next(row for row in summary if row["model"] == str(one)) for one in (small, healed))
    return first, second


if __name__ == "__main__":
    main()
