"""Time and peak memory of `rankscope spectrum` on a t5-base-shaped Chronos-T5, beside two ways to do without it.

Writes a random checkpoint in the published format (12 + 12 layers of width 768: 144 attention matrices, 201 M
parameters, about 800 MB in float32) into a temporary folder. Then alternates, each in a process of its own:

- ``svdvals``: bare `torch.linalg.svdvals` of the same matrices, one after the other, with torch's threads;
- ``svdvals-parallel``: the same by `spectrum`'s own loop, a matrix per core and one LAPACK thread in each;
- ``spectrum``: `rankscope.measure.spectrum.measure_spectrum`, all singular values and per-head ranks;
- ``weightwatcher``: `WeightWatcher.analyze()` with its default options (no vectors, no randomisation, no plots) on
  a module of exactly these 144 linear layers, so that it neither reads nor fits anything else;
- ``weightwatcher-no-fits``: the same without its power-law fits, which `spectrum` has no counterpart of.

Seconds are those of the work itself, reading the file included for rankscope and excluded for the others, which
favours them; ``process_seconds`` adds start and imports. Peak memory is above each case's own imports; WeightWatcher's
includes the loaded module that it works on. Every case runs once per round, in turns, and
ratios are taken within a round. The floor is what the arithmetic and the bytes would cost
at the rates measured in the same run: a float64 matrix product on all cores, and a plain read of the file.

    python benchmarks/spectrum.py                      # everything, about five minutes on two cores
    python benchmarks/spectrum.py --layers 1 --rounds 1   # a rehearsal
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from provenance import child, conditions, fastest, origin, parser, peak_mb, reset_peak_mb, save, spread
from shapes import SIZES, write_shape

USED = (
    *(f"src/rankscope/{part}" for part in ("measure", "checkpoints", "families", "numerics")),
    "benchmarks/shapes.py",
)
D_MODEL = SIZES["base"]["d_model"]
EPS = 0.05
PARALLEL, WITHOUT_FITS = "svdvals-parallel", "weightwatcher-no-fits"


def run_spectrum(folder: Path, case: str) -> dict[str, Any]:
    """Time the library's own function, from opening the folder to the finished report."""
    import torch

    from rankscope.checkpoints import open_checkpoint
    from rankscope.measure.spectrum import measure_spectrum

    torch.linalg.svdvals(torch.randn(D_MODEL, D_MODEL))  # start the thread pool outside the clock, as for svdvals
    imported = reset_peak_mb()
    start = time.perf_counter()
    report = measure_spectrum(open_checkpoint(folder))
    return {
        "seconds": time.perf_counter() - start,
        "imports_mb": imported,
        "matrices": len(report.sites),
        "sum_of_ranks_at_0.05": sum(row.eps_ranks[f"{EPS}"] for row in report.sites),
        "torch": torch.__version__,
    }


def run_svdvals(folder: Path, case: str) -> dict[str, Any]:
    """Time bare `torch.linalg.svdvals`, one matrix after the other (reading is not timed) or one per core (it is)."""
    import torch

    from rankscope.checkpoints import open_checkpoint
    from rankscope.numerics.parallel import parallel_map

    checkpoint = open_checkpoint(folder)
    names = [site.name for site in checkpoint.sites()]
    torch.linalg.svdvals(torch.randn(D_MODEL, D_MODEL))  # start the thread pool outside the clock
    imported, seconds = reset_peak_mb(), 0.0
    spectra: list[torch.Tensor] = []
    if case == PARALLEL:
        start = time.perf_counter()
        spectra += parallel_map(lambda name: torch.linalg.svdvals(checkpoint.tensor(name)), names)
        seconds = time.perf_counter() - start
    else:
        for name in names:
            w = checkpoint.tensor(name)
            start = time.perf_counter()
            spectra.append(torch.linalg.svdvals(w))
            seconds += time.perf_counter() - start
    return {
        "seconds": seconds,
        "imports_mb": imported,
        "matrices": len(names),
        "sum_of_ranks_at_0.05": sum(int((sigma > EPS * sigma[0]).sum()) for sigma in spectra),
        "threads": torch.get_num_threads(),
    }


def run_weightwatcher(folder: Path, case: str) -> dict[str, Any]:
    """Time `WeightWatcher.analyze()` on a module that holds the attention matrices and nothing else."""
    no_fit = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0, 0.0, "", "")
    import logging
    import warnings

    import torch
    import weightwatcher

    from rankscope.checkpoints import open_checkpoint

    warnings.filterwarnings("ignore")
    checkpoint = open_checkpoint(folder)
    imported = reset_peak_mb()
    layers = torch.nn.ModuleList()
    for site in checkpoint.sites():
        d_out, d_in = checkpoint.shape(site)
        linear = torch.nn.Linear(d_in, d_out, bias=False)
        linear.weight = torch.nn.Parameter(checkpoint.tensor(site.name), requires_grad=False)
        layers.append(linear)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        watcher = weightwatcher.WeightWatcher(model=layers, log_level=logging.ERROR)
        if case == WITHOUT_FITS:
            watcher.fit_powerlaw = lambda *_, **__: no_fit
        start = time.perf_counter()
        details = watcher.analyze()
        seconds = time.perf_counter() - start
    found = {"seconds": seconds, "imports_mb": imported, "matrices": len(details), "version": weightwatcher.__version__}
    return found | {"alpha": [round(float(value), 3) for value in details.alpha[:2]]}


def run_floor(folder: Path, case: str) -> dict[str, Any]:
    """Rates of this machine: a float64 matrix product on all cores, a matrix-vector product, a plain read."""
    import torch

    a = torch.randn(D_MODEL, D_MODEL, dtype=torch.float64)
    product = fastest(lambda: a @ a)
    wide = torch.randn(4096, 4096, dtype=torch.float64)
    vector = torch.randn(4096, dtype=torch.float64)
    streamed = fastest(lambda: wide @ vector)
    file = folder / "model.safetensors"
    start = time.perf_counter()
    with file.open("rb", buffering=0) as stream:
        while stream.read(1 << 22):
            pass
    read = time.perf_counter() - start
    return {
        "seconds": 0.0,
        "float64_gflops": 2 * D_MODEL**3 / product / 1e9,
        "memory_gb_per_s": wide.nbytes / streamed / 1e9,
        "read_gb_per_s": file.stat().st_size / read / 1e9,
    }


RUNS: dict[str, Callable[[Path, str], dict[str, Any]]] = {
    "svdvals": run_svdvals,
    PARALLEL: run_svdvals,
    "spectrum": run_spectrum,
    "weightwatcher": run_weightwatcher,
    WITHOUT_FITS: run_weightwatcher,
    "floor": run_floor,
}


def case_summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Summarise the seconds of one case, its largest peak above the imports, and what it reported last."""
    return {
        **rows[-1],
        "seconds": spread([row["seconds"] for row in rows]),
        "turns": [row["seconds"] for row in rows],
        "process_seconds": statistics.median(row["process_seconds"] for row in rows),
        "peak_mb": max(row["peak_mb"] - row.get("imports_mb", 0.0) for row in rows),
        "runs": len(rows),
    }


def floor_seconds(rates: dict[str, Any], matrices: int) -> dict[str, Any]:
    """Least time of the arithmetic at the measured rates.

    Gram matrix: half of 2n³, by symmetry. Reduction to tridiagonal form: 4n³/3, half of it matrix-vector products
    that stream the trailing matrix, 8·n³/3 bytes, from a cache or from memory.
    """
    n3 = D_MODEL**3 * matrices / 1e9
    flops = rates["float64_gflops"]
    read = 4 * D_MODEL**2 * matrices / 1e9 / rates["read_gb_per_s"]
    return {"gram": n3 / flops, "tridiagonal": 4 / 3 * n3 / flops, "read": read}


def main() -> None:
    """Write the checkpoint, alternate the cases, and print and save the comparison."""
    words = parser(__doc__, layers=12, rounds=3)
    words.add_argument("--case", choices=list(RUNS), help=argparse.SUPPRESS)
    words.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = words.parse_args()
    if options.case:
        result = RUNS[options.case](options.folder, options.case)
        print(json.dumps({**result, "peak_mb": peak_mb()}))
        return
    rows: dict[str, list[dict[str, Any]]] = {case: [] for case in RUNS}
    before = conditions()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "t5-base-random"
        write_shape(folder, "chronos-t5", "base", layers=options.layers)
        for turn in range(options.rounds):
            cases = list(RUNS)
            for case in cases[turn % len(cases) :] + cases[: turn % len(cases)]:
                start = time.perf_counter()
                last = child(__file__, case, "--folder", folder)
                rows[case].append({**last, "process_seconds": time.perf_counter() - start})
                peak = last["peak_mb"] - last.get("imports_mb", 0.0)
                print(f"{case:22} {last['seconds']:8.2f} s  {peak:7.0f} MB", flush=True)
    result = summary({case: case_summary(found) for case, found in rows.items()}, options)
    result["conditions"] = {"before": before, "after": conditions()}
    print(json.dumps(result["ratios"], indent=2))
    save(result, options.out)


def summary(cases: dict[str, dict[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    """Ratios between the cases, with where and when they were measured."""
    rates = cases.pop("floor")
    floor = floor_seconds(rates, cases["spectrum"]["matrices"])
    reference = cases["spectrum"]["turns"]
    over = {
        f"{case}_over_spectrum": spread([mine / ours for mine, ours in zip(row["turns"], reference, strict=True)])
        for case, row in cases.items()
        if case != "spectrum"
    }
    ratios = {**over, "spectrum_over_floor": cases["spectrum"]["seconds"]["median"] / sum(floor.values())}
    return {
        **origin("spectrum", *USED),
        "layers": options.layers,
        "cases": cases,
        "rates": {key: value for key, value in rates.items() if "per_s" in key or "gflops" in key},
        "floor_seconds": floor,
        "ratios": ratios,
    }


if __name__ == "__main__":
    main()
