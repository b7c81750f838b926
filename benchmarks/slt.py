"""SLT against the PatchTST-like baseline: interleaved timing of training and inference at ETTh's size.

In every round each model takes a few training steps (batches of 32 windows, 7 variables) and forecasts test windows in
eval mode; ratios are within a round. Seconds per epoch are extrapolated from those steps: an epoch of ETTh under the
released protocol has 308. Values are random: time does not depend on them.

    python benchmarks/slt.py --out benchmarks/results/slt.json       # a quiet machine, a quarter of an hour
    python benchmarks/slt.py --quick                                 # two rounds of two steps, one setting
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from provenance import conditions, origin, parser, save, spread

USED = ("lab/rankscope_lab", "benchmarks/slt.py")
ROWS, VARIABLES, EPOCH = 17_420, 7, 308
BATCHES = 4
"""Of 32 windows, in each of the five passes of a round."""
MODELS = ("slt", "patchtst", "nbeats", "dlinear")
PUBLISHED = {"inference": 1.36, "device": "one 16 GB T4"}


def made_data(folder: Path) -> Any:
    """Generate random windows, as many as ETTh1 has."""
    import numpy as np
    import pandas as pd

    from rankscope_lab.data.table import ETT, read_table
    from rankscope_lab.data.windows import FIFTHS, forecast_data

    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(ROWS, VARIABLES)), columns=list(ETT))
    frame.insert(0, "date", pd.date_range("2016-07-01", periods=ROWS, freq="h"))
    file = folder / "made.csv"
    frame.to_csv(file, index=False)
    return forecast_data(read_table(file), FIFTHS, 512, 96)


class Case:
    """Model to time."""

    def __init__(self, name: str, data: Any, precision: str, device: str, compiled: bool) -> None:
        import torch

        from rankscope_lab.slt.run_spec import RunSpec
        from rankscope_lab.slt.training import Training

        self.name = name
        self.run = Training(RunSpec("made", name, precision=precision), data, device=device, compiled=compiled)
        self.order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(0)).to(device)
        self.seconds: list[float] = []
        self.rates: list[float] = []

    def measure(self, steps: int) -> None:
        """Run a round: one warm-up and several timed training steps, and five inference passes."""
        from rankscope_lab.slt.training import settled, windows_per_second

        batches = self.order.split(32)
        self.run.model.train()
        self.run.step(batches[-2])
        settled(self.run.device)
        begun = time.perf_counter()
        for at in batches[:steps]:
            self.run.step(at)
        settled(self.run.device)
        self.seconds.append((time.perf_counter() - begun) / steps)
        test = self.run.data.test
        self.rates.append(windows_per_second(self.run.model, test, self.run.spec.precision, BATCHES)[0])

    def row(self, baseline: Case) -> dict[str, Any]:
        """Return the result relative to another case of the same rounds; above 1 is faster."""
        return {
            "model": self.name,
            "parameters": self.run.result.parameters,
            "machine": self.run.result.machine,
            "seconds_per_step": spread(self.seconds),
            "seconds_per_epoch_extrapolated": spread([EPOCH * one for one in self.seconds]),
            "windows_per_second": spread(self.rates),
            "training_ratio": spread([b / a for a, b in zip(self.seconds, baseline.seconds, strict=True)]),
            "inference_ratio": spread([a / b for a, b in zip(self.rates, baseline.rates, strict=True)]),
        }


def measured(data: Any, precision: str, device: str, compiled: bool, rounds: int, steps: int) -> list[dict[str, Any]]:
    """Rows of all models of one setting, measured in turns."""
    cases = [Case(name, data, precision, device, compiled) for name in MODELS]
    for number in range(rounds):
        for case in cases if number % 2 == 0 else cases[::-1]:
            case.measure(steps)
    baseline = cases[MODELS.index("patchtst")]
    setting = {"precision": precision, "compiled": compiled, "rounds": rounds, "steps": steps}
    return [{**setting, **case.row(baseline)} for case in cases]


def show(rows: list[dict[str, Any]]) -> None:
    """Print a line per model and setting."""
    for row in rows:
        training, inference = row["training_ratio"], row["inference_ratio"]
        print(
            f"{row['precision']:7} {'compiled' if row['compiled'] else 'torch':8} {row['model']:8} "
            f"{row['seconds_per_epoch_extrapolated']['median']:8.1f} s/epoch  ×{training['median']:6.2f} "
            f"({training['min']:.2f}–{training['max']:.2f})  {row['windows_per_second']['median']:9.0f} windows/s  "
            f"×{inference['median']:6.2f} ({inference['min']:.2f}–{inference['max']:.2f})",
            flush=True,
        )


def main() -> None:
    """Measure, print and save."""
    quick = "two rounds of two steps, float32 without compiled functions"
    words = parser(__doc__, quick, threads=1, rounds=9, steps=5)
    words.add_argument("--precisions", default="float32,bfloat16")
    words.add_argument("--device", default="cpu")
    options = words.parse_args()

    import torch

    torch.set_num_threads(options.threads)
    rounds, steps = (2, 2) if options.quick else (options.rounds, options.steps)
    before, rows = conditions(), []
    with tempfile.TemporaryDirectory() as folder:
        data = made_data(Path(folder))
        for precision in ["float32"] if options.quick else options.precisions.split(","):
            for compiled in (False, True) if options.device == "cpu" and not options.quick else (False,):
                rows += measured(data, precision, options.device, compiled, rounds, steps)
                show(rows[-len(MODELS) :])
    found = {
        **origin("slt", *USED),
        "conditions": {"before": before, "after": conditions()},
        "threads": options.threads,
        "published": PUBLISHED,
        "rows": rows,
    }
    save(found, options.out)


if __name__ == "__main__":
    main()
