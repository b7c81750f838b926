"""Time and peak memory of `rankscope compress --method joint` on a t5-base-shaped Chronos-T5, by phase.

Writes a random checkpoint in the published format (12 + 12 layers of width 768), compresses it
to a size ratio of 0.15 in a process of its own, with moments of 256 generated series, and tells each phase:
generating series, calibration, singular values, sensitivity, and factors with writing. Beside it stands the floor: the
products of the forward passes of calibration, counted at full length, over the rate that a matrix product of that shape
reaches in the same run, in float32 and in bfloat16.

    python benchmarks/compress.py --out benchmarks/results/compress.json
    python benchmarks/compress.py --quick     # four layers, width 256, 32 series: a rehearsal
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from provenance import child, conditions, fastest, origin, parser, peak_mb, save
from shapes import SIZES, write_shape

USED = tuple(f"src/rankscope/{part}" for part in ("compress", "numerics", "lowrank", "train/data"))
CONTEXT, HORIZON = 513, 64
PHASES = {"calibrating": "calibration", "singular values": "singular values", "factors": "factors and writing"}


VOCABULARY = 4096


def forward_flops(shape: dict[str, int], layers: int) -> float:
    """Return the FLOPs of one series' teacher-forced pass at full length, without embedding lookups."""
    d, f = shape["d_model"], shape["d_ff"]
    encoder = layers * (CONTEXT * (8 * d * d + 4 * d * f) + 4 * CONTEXT**2 * d)
    own = HORIZON * (8 * d * d + 4 * d * f) + 4 * HORIZON**2 * d
    cross = HORIZON * 4 * d * d + CONTEXT * 4 * d * d + 4 * HORIZON * CONTEXT * d
    return encoder + layers * (own + cross) + 2 * HORIZON * d * VOCABULARY


def run_compress(folder: Path, series: int, probe: int) -> dict[str, Any]:
    """Compress and record the start of every phase."""
    import torch

    from rankscope.compress import CompressOptions, compress
    from rankscope.compress.calibration import calibration_set

    imported = peak_mb()
    begin = time.perf_counter()
    moments = calibration_set(f"mixture:{series}", context=CONTEXT - 1, horizon=HORIZON)
    questions = calibration_set(f"mixture:{probe}", context=CONTEXT - 1, horizon=HORIZON, seed=10_007)
    seconds = {"generating series": time.perf_counter() - begin}
    last = time.perf_counter()

    def note(done: int, total: int, what: str) -> None:
        nonlocal last
        now = time.perf_counter()
        phase = PHASES.get(what, what)
        # what lies between the last news of one phase and the first of the next belongs to the next
        seconds[phase] = seconds.get(phase, 0.0) + now - last
        last = now

    with tempfile.TemporaryDirectory(dir=folder.parent) as out:
        report = compress(
            folder,
            CompressOptions(attention_ratio=0.15, method="joint", calibration=moments, probe=questions),
            out=Path(out) / "small",
            progress=note,
        )
    return {
        "seconds": time.perf_counter() - begin,
        "phases": seconds,
        "ratio": report.selected_ratio,
        "peak_mb_after_imports": imported,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def run_floor(shape: dict[str, int]) -> dict[str, Any]:
    """Measure matmul rates at the shape of the encoder's MLP, in GFLOP/s."""
    import torch

    rates = {}
    for kind in (torch.float32, torch.bfloat16):
        a = torch.randn(16 * CONTEXT, shape["d_model"]).to(kind)
        b = torch.randn(shape["d_model"], shape["d_ff"]).to(kind)
        taken = fastest(lambda a=a, b=b: a @ b, 5)  # type: ignore[misc]
        rates[str(kind).removeprefix("torch.")] = 2 * a.shape[0] * a.shape[1] * b.shape[1] / taken / 1e9
    return rates


def main() -> None:
    """Write the checkpoint, measure in a child process, print and save."""
    asked = parser(__doc__, "a smaller shape", series=256, probe=32, layers=12)
    asked.add_argument("--case", choices=("compress", "floor"), help=argparse.SUPPRESS)
    asked.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = asked.parse_args()
    size = "tiny" if options.quick else "base"
    shape = SIZES[size]
    if options.quick:
        options.layers, options.series, options.probe = 4, 32, 8
    if options.case:
        found = (
            run_floor(shape) if options.case == "floor" else run_compress(options.folder, options.series, options.probe)
        )
        print(json.dumps({**found, "peak_mb": peak_mb()}))
        return
    words = ["--series", options.series, "--probe", options.probe, "--layers", options.layers]
    words += ["--quick"] if options.quick else []
    before = conditions()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "t5-base-random"
        write_shape(folder, "chronos-t5", size, layers=options.layers)
        rates = child(__file__, "floor", *words)
        found = child(__file__, "compress", "--folder", folder, *words)
    flops = forward_flops(shape, options.layers) * options.series
    floors = {kind: flops / rate / 1e9 for kind, rate in rates.items() if kind != "peak_mb"}
    for phase, seconds in found["phases"].items():
        print(f"{phase:22}{seconds:8.1f} s")
    print(f"{'all':22}{found['seconds']:8.1f} s, peak {found['peak_mb']:.0f} MB")
    for kind, seconds in floors.items():
        print(f"floor {kind:16}{seconds:8.1f} s at {rates[kind]:.0f} GFLOP/s: {flops / 1e12:.1f} TFLOP of calibration")
    result = {
        **origin("compress", "benchmarks/shapes.py", *USED),
        "shape": {"d_model": shape["d_model"], "layers": options.layers},
        "series": options.series,
        "probe": options.probe,
        **found,
        "forward_tflop": flops / 1e12,
        "rates_gflops": {kind: rate for kind, rate in rates.items() if kind != "peak_mb"},
        "floor_seconds": floors,
        "conditions": {"before": before, "after": conditions()},
    }
    save(result, options.out)


if __name__ == "__main__":
    main()
