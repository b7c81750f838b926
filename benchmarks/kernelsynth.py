"""Speed of KernelSynth series of 1024 observations, beside the ways to draw them one by one.

Every case composes its kernels at random from the published bank (up to 5, sums and products) and draws paths:

- ``svd``: the naive sampler. One kernel per series, its 1024 × 1024 matrix filled in NumPy, and
  `numpy.random.RandomState.multivariate_normal`, which takes its SVD: what scikit-learn's
  `GaussianProcessRegressor.sample_y` does in the script that the Chronos paper released, less scikit-learn's own cost;
- ``eigh``: the same with `Generator.multivariate_normal(method="eigh")`, which that script names as the fast way;
- ``cholesky``: the same with one Cholesky factor per series and 1e-6 of the variance added to the diagonal;
- ``cholesky-16``: one such factor for 16 series, which then share their kernel;
- ``exact``: `rankscope.train.data.kernels.kernelsynth`, a kernel of its own for every series;
- ``exact-16``: the same with 16 draws of every kernel;
- ``shards``: `write_shards` from the start of its worker processes to the finished folder, one worker per core.

The first four use as many threads as the BLAS takes, ``exact`` too where it has a use for them (on a busy machine
OMP_NUM_THREADS=1 keeps them from waiting for each other). The two exact cases are warmed up by 500 series, as they are
in any real use; kernels and draws are others in every round.

    python benchmarks/kernelsynth.py                # everything, about three minutes on two cores
    python benchmarks/kernelsynth.py --quick        # a rehearsal
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from provenance import child, conditions, origin, peak_mb, save, spread

LENGTH = 1024
SERIES = {"svd": 8, "eigh": 24, "cholesky": 96, "cholesky-16": 960, "exact": 6000, "exact-16": 32000, "shards": 24000}
JITTER = 1e-6


def run_matrix(case: str, seed: int, series: int) -> float:
    """Fill one matrix per kernel and factorise it, by the method and with the draws that the case names."""
    import numpy as np
    import scipy.linalg

    from rankscope.train.data.base_kernels import covariance, random_composition

    method, _, draws = case.partition("-")
    rng, zero = np.random.default_rng([seed, 1]), np.zeros(LENGTH)
    old = np.random.RandomState(seed)
    count = int(draws or 1)
    np.linalg.svd(np.eye(LENGTH))  # the thread pool starts outside the clock
    start = time.perf_counter()
    for _ in range(0, series, count):
        kernel = covariance(random_composition(rng), LENGTH)
        if method == "svd":
            old.multivariate_normal(zero, kernel, check_valid="ignore")
        elif method == "eigh":
            rng.multivariate_normal(zero, kernel, check_valid="ignore", method="eigh")
        else:
            kernel[np.diag_indices(LENGTH)] += JITTER * kernel.diagonal().max()
            factor = scipy.linalg.cholesky(kernel, lower=True, overwrite_a=True, check_finite=False)
            factor @ rng.standard_normal((LENGTH, count))
    return time.perf_counter() - start


def run_exact(case: str, seed: int, series: int) -> float:
    """Draw with the library."""
    import numpy as np

    from rankscope.train.data.kernels import kernelsynth

    draws = int(case.partition("-")[2] or 1)
    kernelsynth(np.random.default_rng([seed, 0]), 500 * draws, LENGTH, draws)
    start = time.perf_counter()
    for begin in range(0, series, 256 * draws):
        kernelsynth(np.random.default_rng([seed, 1, begin]), min(256 * draws, series - begin), LENGTH, draws)
    return time.perf_counter() - start


def run_shards(case: str, seed: int, series: int) -> float:
    """Write a folder of shards, start of the workers included."""
    from rankscope.train import Synthesis, write_shards

    with tempfile.TemporaryDirectory() as temporary:
        start = time.perf_counter()
        write_shards(Synthesis("kernelsynth", series, LENGTH, seed=seed, shard_size=4096), Path(temporary) / "shards")
        return time.perf_counter() - start


RUNS: dict[str, Callable[[str, int, int], float]] = {
    "svd": run_matrix,
    "eigh": run_matrix,
    "cholesky": run_matrix,
    "cholesky-16": run_matrix,
    "exact": run_exact,
    "exact-16": run_exact,
    "shards": run_shards,
}


def versions() -> dict[str, str]:
    """What the cases are made of."""
    import numpy as np
    import scipy

    return {"python": sys.version.split()[0], "numpy": np.__version__, "scipy": scipy.__version__}


def summary(rows: dict[str, list[dict[str, Any]]], options: argparse.Namespace, before: dict[str, Any]) -> dict:
    """Seconds per series of every case, and how many times faster than the naive sampler each is, round by round."""
    per_series = {case: [row["seconds"] / row["series"] for row in found] for case, found in rows.items()}
    cases = {
        case: {
            "series": found[0]["series"],
            "ms_per_series": spread([1e3 * seconds for seconds in per_series[case]]),
            "series_per_second": spread([1 / seconds for seconds in per_series[case]]),
            "mb_per_second": LENGTH * 4 / 1e6 / statistics.median(per_series[case]),
            "peak_mb": max(row["peak_mb"] for row in found),
            "runs": len(found),
        }
        for case, found in rows.items()
    }
    ratios = {
        f"{slow}_over_{fast}": spread([a / b for a, b in zip(per_series[slow], per_series[fast], strict=True)])
        for slow in ("svd", "eigh", "cholesky")
        for fast in ("exact", "exact-16", "shards")
    }
    return {
        **origin("kernelsynth", "src/rankscope/train/data"),
        "versions": versions(),
        "length": LENGTH,
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        "quick": options.quick,
        "cases": cases,
        "ratios": ratios,
        "conditions": {"before": before, "after": conditions()},
    }


def main() -> None:
    """Alternate the cases, and print and save the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="runs of every case")
    parser.add_argument("--quick", action="store_true", help="an eighth of the series, two rounds")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--case", choices=list(RUNS), help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--series", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        seconds = RUNS[options.case](options.case, options.seed, options.series)
        print(json.dumps({"seconds": seconds, "series": options.series, "peak_mb": peak_mb()}))
        return
    rows: dict[str, list[dict[str, Any]]] = {case: [] for case in RUNS}
    before = conditions()
    for round_ in range(2 if options.quick else options.rounds):
        for case in RUNS:
            series = SERIES[case] // 8 if options.quick else SERIES[case]
            last = child(__file__, case, "--seed", round_, "--series", series)
            rows[case].append(last)
            print(f"{case:12} {1e3 * last['seconds'] / last['series']:9.3f} ms a series", flush=True)
    result = summary(rows, options, before)
    print(json.dumps(result["ratios"], indent=2))
    save(result, options.out)


if __name__ == "__main__":
    main()
