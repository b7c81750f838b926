"""Time of an evaluation over many short series: the forecasts, imports, and the rest.

python benchmarks/evaluation.py --rounds 5 --out benchmarks/results/evaluation.json
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from digests import SCORING
from provenance import conditions, origin, parser, save, spread

SERIES, HORIZON = 2558, 12
IMPORTS = (
    "import rankscope_cli.main, torch, chronos, pandas; from rankscope_eval.forecasters import quiet_imports as q; q()"
)


def write_series(file: Path) -> None:
    """Write monthly series of 36 to 79 values."""
    rng = np.random.default_rng(0)
    parts = []
    for number in range(SERIES):
        months = np.arange(int(rng.integers(36, 80)))
        season = 10 * np.sin(2 * np.pi * months / 12 + 6 * rng.random())
        values = 50 + season + 0.3 * rng.normal(0, 3, len(months)).cumsum() + rng.normal(0, 2, len(months))
        times = pd.date_range("2015-01-01", periods=len(months), freq="MS")
        parts.append(pd.DataFrame({"id": f"s{number}", "timestamp": times, "target": values.round(3)}))
    pd.concat(parts).to_csv(file, index=False)


def timed(words: list[str]) -> tuple[float, str]:
    """Wall time of a process, and its output."""
    begun = time.perf_counter()
    done = subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True, env={**os.environ})
    return time.perf_counter() - begun, done.stdout


def main() -> None:
    """Time, print and save."""
    options = parser(__doc__, rounds=5).parse_args()
    before, rounds = conditions(), []
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "short.csv"
        write_series(file)
        words = [
            "-m",
            "rankscope_cli",
            "eval",
            "bundled-bolt",
            "--input",
            str(file),
            "--horizon",
            str(HORIZON),
            "--json",
        ]
        for _ in range(options.rounds):
            imports, _ = timed(["-c", IMPORTS])
            whole, output = timed(words)
            forecasts = sum(row["seconds"] for row in json.loads(output)["rows"])
            rounds.append(
                {"whole": whole, "imports": imports, "forecasts": forecasts, "rest": whole - imports - forecasts}
            )
    seconds = {name: spread([one[name] for one in rounds]) for name in rounds[0]}
    result = {
        **origin("evaluation", *SCORING, "eval/rankscope_eval/slices.py", "eval/rankscope_eval/report.py"),
        "conditions": {"before": before, "after": conditions()},
        "series": SERIES,
        "horizon": HORIZON,
        "model": "bundled-bolt",
        "rounds": rounds,
        "seconds": seconds,
    }
    for name, one in seconds.items():
        print(f"{name:10} {one['median']:6.2f} s ({one['min']:.2f} to {one['max']:.2f})")
    save(result, options.out)


if __name__ == "__main__":
    main()
