"""Inference of Chronos-T5 base on a GPU: stock against fast, full heads against r0 = 3, with Chronos-Bolt.

Random weights. 32 series of 512 values, 20 sample paths of 64 steps. The paper compares its low-rank network with the
full one in the stock code: this is the case ``r0 = 3, stock, float32``.

    python benchmarks/gpu/runtime.py                                         # a CUDA machine, some minutes
    python benchmarks/gpu/runtime.py --device cpu --size tiny --quick        # a rehearsal
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from training import OUT, ROOT, machine

sys.path.append(str(ROOT / "benchmarks"))
PARTS = [str(ROOT / part) for part in ("src", "eval") if (ROOT / part).is_dir()]

PAPER = {"r0": 3, "alpha": 0.27, "time": 0.346, "space": 0.186}
"""Table 3 of the paper (Chronos-T5 base, heads of width r(i) = ⌈r0 (1+i)^alpha⌉), relative to its full-rank network.

Its space is called memory and not defined further; peak memory, weights and key/value cache are all printed beside it.
"""


def write_cases(folder: Path, size: str) -> dict[str, str]:
    """Write the checkpoints; name of each case → the case as `run_bench` reads it, the baseline first."""
    from shapes import write_shape

    from rankscope.train.rank_schedule import RankDesign

    full = write_shape(folder / "t5", "chronos-t5", size)
    design = RankDesign(PAPER["r0"], PAPER["alpha"])
    narrow = write_shape(folder / "t5-r3", "chronos-t5", size, design=design)
    bolt = write_shape(folder / "bolt", "chronos-bolt", size)
    return {
        "T5, stock, float32": f"{full}:stock:float32",
        "T5, stock, bfloat16": f"{full}:stock:bfloat16",
        "T5, fast, bfloat16": f"{full}:fast:bfloat16",
        "T5 r0 = 3, stock, float32": f"{narrow}:stock:float32",
        "T5 r0 = 3, fast, bfloat16": f"{narrow}:fast:bfloat16",
        "Bolt, stock, float32": f"{bolt}:stock:float32",
        "Bolt, fast, bfloat16": f"{bolt}:fast:bfloat16",
    }


def compared(report: Any, cases: dict[str, str]) -> list[dict[str, Any]]:
    """A row per case: times and bytes, and what they are over the stock float32 network's."""
    rows = {row.label: row for row in report.rows}
    over = {one.label: one for one in report.ratios}
    if report.baseline not in rows:
        raise SystemExit(f"{next(iter(cases))}: {report.failures[0].reason}")
    base, found = rows[report.baseline], []
    for name, label in cases.items():
        if label not in rows:
            reason = next((one.reason for one in report.failures if one.label == label), "")
            found.append({"name": name, "error": reason.replace(label, name)})
            continue
        row, ratio = rows[label], over[label]
        found.append(
            {
                "name": name,
                "seconds": asdict(row.seconds),
                "turns": row.turns,
                "repeats": row.repeats,
                "tokens_per_second": row.tokens_per_second,
                "achieved": row.achieved,
                "peak_bytes": row.peak_bytes,
                "weight_bytes": row.weight_bytes,
                "cache_bytes": row.cache_bytes,
                "time": asdict(ratio.seconds),
                "peak": ratio.peak_bytes,
                "weights": row.weight_bytes / base.weight_bytes,
                "cache": row.cache_bytes / base.cache_bytes if row.cache_bytes and base.cache_bytes else None,
            }
        )
    return found


def show(rows: list[dict[str, Any]]) -> None:
    """Print a line per case; what the paper has stands beside the two cases with its ranks."""
    print(
        f"{'case':26}{'ms':>9}  {'time (min–max)':19}{'peak MB':>9}{'peak':>7}{'weights':>9}{'cache':>7}{'roof':>6}",
        end="",
    )
    print("  | paper: time  space")
    for row in rows:
        if "error" in row:
            print(f"{row['name']:26}  failed: {row['error']}")
            continue
        time = row["time"]
        span = f"{time['median']:.3f} ({time['min']:.3f}–{time['max']:.3f})"
        roof = "–" if row["achieved"] is None else f"{100 * row['achieved']:.0f}%"
        cells = f"{_cell(row['peak']):>7}{_cell(row['weights']):>9}{_cell(row['cache']):>7}{roof:>6}"
        paper = f"  |        {PAPER['time']:.3f}  {PAPER['space']:.3f}" if "r0" in row["name"] else ""
        milliseconds, peak = 1000 * row["seconds"]["median"], row["peak_bytes"] / 1e6
        print(f"{row['name']:26}{milliseconds:9.1f}  {span:19}{peak:9.0f}{cells}{paper}")


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def main() -> None:
    """Measure, print the table and write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", default="base", choices=("tiny", "mini", "small", "base"))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--quick", action="store_true", help="2 series, 4 sample paths of 8 steps, two rounds")
    parser.add_argument("--out", type=Path, default=OUT / "runtime.json", help="JSON file to write")
    options = parser.parse_args()

    from rankscope.io import codec
    from rankscope_eval.bench import Settings, run_bench

    os.environ["PYTHONPATH"] = os.pathsep.join([*PARTS, *filter(None, [os.environ.get("PYTHONPATH")])])
    sizes: dict[str, Any] = {"batches": (32,)}
    if options.quick:
        sizes = {"batches": (2,), "num_samples": 4, "horizon": 8, "context": 64}
    settings = Settings(**sizes, rounds=options.rounds or (2 if options.quick else 9), device=options.device)
    with tempfile.TemporaryDirectory() as temporary:
        cases = write_cases(Path(temporary), options.size)
        report = run_bench(list(cases.values()), settings, progress=lambda *_: None)
    rows = compared(report, cases)
    found = {
        "item": "runtime",
        **machine(),
        "on": report.machine,
        "rehearsal": options.quick,
        "size": options.size,
        "batch": settings.batches[0],
        "num_samples": settings.num_samples,
        "horizon": settings.horizon,
        "context": settings.context,
        "rates": codec.plain(report)["rates"],
        "rows": rows,
        "paper": PAPER,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    show(rows)


if __name__ == "__main__":
    main()
