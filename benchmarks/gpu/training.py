"""Shared helpers of the GPU scripts: train a config, score it, and record utilisation."""

from __future__ import annotations

import datetime
import json
import math
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("src", "eval", "lab", "figures", "cli") if (ROOT / part).is_dir()]

from rankscope.io import codec  # noqa: E402
from rankscope.train import ModelShape, PretrainConfig, pretrain  # noqa: E402
from rankscope.train.data.mixture import Mixture  # noqa: E402

OUT = Path(os.environ.get("OUT", ROOT / "gpu-out"))
"""One JSON file per script goes here, and what is worth taking home."""
RUNS = Path(os.environ.get("RUNS", OUT))
"""Folder that a stopped script goes on from: checkpoints, logs, runs. Where OUT does not last, name one that does."""
REHEARSAL = "--rehearse" in sys.argv
"""Few steps of small networks, to see on a CPU that a script runs to its end."""

TINY = PretrainConfig(
    model=ModelShape(d_model=256, d_kv=64, d_ff=1024, num_heads=4, n_tokens=4096, patch_size=16, start="ordered"),
    context=512,
    horizon=64,
    mixture=Mixture(seasonal_share=0.25, curriculum=3000),
    bank_kernels=3000,
    batch_size=256,
    beta2=0.98,
    warmup_steps=500,
    schedule="warmup_stable_decay",
    compile=True,
)
"""The tiny shape; a script adds the family, the steps and the learning rate."""


def rehearsed(config: PretrainConfig) -> PretrainConfig:
    """Return the config, or a toy of it that takes seconds on a CPU."""
    if not REHEARSAL:
        return config
    shape = replace(config.model, d_model=32, d_ff=64, d_kv=8 if config.low_rank is None else 16)
    mixture = replace(config.mixture, curriculum=5)
    changes = {"max_steps": 12, "warmup_steps": 2, "decay_steps": 4, "save_steps": 6, "log_steps": 4, "batch_size": 8}
    return replace(config, model=shape, mixture=mixture, bank_kernels=20, compile=False, **changes)


def run(config: PretrainConfig, name: str) -> dict[str, Any]:
    """Train, go on with a stopped training, or read a finished one; then score it on the embedded suite.

    Returns:
        Parameters, steps per second, final loss, WQL and MASE relative to seasonal-naive.
    """
    from rankscope_cli.progress import progress_bar
    from rankscope_eval import Forecasting, evaluate

    config, target = rehearsed(config), RUNS / name
    if not target.exists():
        started = any(target.with_name(f"{name}.run").glob("checkpoint-*"))
        workers = max(0, min(12, (os.cpu_count() or 1) - 2))
        with progress_bar(name) as progress:
            pretrain(config, target, resume=started, force=not started, workers=workers, progress=progress)
    report = json.loads((target / "pretrain.json").read_text(encoding="utf-8"))["report"]
    how = Forecasting(device=device())
    scores = codec.plain(evaluate([str(target)], how=how, max_series=2 if REHEARSAL else None))["summary"]
    whole = next(row for row in scores if row["model"] == str(target) and row["benchmark"] == "all")
    return {
        "name": name,
        "parameters": report["parameters"],
        "steps": report["steps"],
        "steps_per_second": report["steps"] / report["seconds"],
        "loss": report["loss"],
        "relative_WQL": whole["relative_WQL"],
        "relative_MASE": whole["relative_MASE"],
    }


def device() -> str:
    """Device to run on: the GPU if there is one."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def record(item: str, rows: list[dict[str, Any]]) -> None:
    """Write the numbers with device, driver, torch, commit and command, and print them as a short table."""
    save(item, rows)
    keys = list(rows[0])
    lines = [keys, *([_cell(row[key]) for key in keys] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(keys))]
    for line in lines:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def pack(item: str, folder: Path) -> None:
    """Put the JSON files of a folder of runs into one archive in OUT."""
    OUT.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(OUT / f"{item}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.glob("*.json")):
            archive.write(file, file.name)


def save(item: str, rows: list[dict[str, Any]]) -> None:
    """Write the numbers with device, driver, torch, commit and command; those that are not finite as null."""
    OUT.mkdir(parents=True, exist_ok=True)
    plain = [{key: None if _is_odd(value) else value for key, value in row.items()} for row in rows]
    found = {"item": item, "date": datetime.date.today().isoformat(), **machine(), "rehearsal": REHEARSAL}
    text = json.dumps({**found, "rows": plain}, indent=2, allow_nan=False)
    (OUT / f"{item}.json").write_text(text + "\n", encoding="utf-8")


def _is_odd(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def machine() -> Mapping[str, Any]:
    """Device, versions and commit that the numbers were measured with."""
    import torch
    import transformers

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(query, capture_output=True, text=True).stdout.strip() if gpu != "none" else ""
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    return {"device": gpu, "driver": driver, **versions, "commit": head, "command": " ".join(sys.argv)}


def _cell(value: Any) -> str:
    return f"{value:,.3f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
