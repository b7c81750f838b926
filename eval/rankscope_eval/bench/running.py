"""Run a benchmark."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from rankscope.engine import Progress, silent
from rankscope.engine.pool import available_cores
from rankscope.errors import OptionError
from rankscope_eval.bench.case import LOCAL, Case, Settings, checked, read_case, sized
from rankscope_eval.bench.children import CaseError, Child
from rankscope_eval.bench.counts import Phase
from rankscope_eval.bench.report import BenchRatio, BenchReport, BenchRow, Failure
from rankscope_eval.bench.roofline import Rates, best, floor_seconds
from rankscope_eval.bench.turns import Spread, Turn, alternate, ratios


def run_bench(
    models: Sequence[str | Case],
    settings: Settings | None = None,
    *,
    baseline: str | Case | None = None,
    progress: Progress = silent,
) -> BenchReport:
    """Benchmark time and memory of several models in interleaved rounds, one process per model.

    Each process loads its model, runs two warm-up forecasts, and then one forecast per round while the others wait; the
    order rotates from round to round. The machine's rates are measured in the same rounds.

    Args:
        models: ``MODEL[:RUNTIME[:DTYPE]]`` strings or cases; the sizes of cases are ignored.
        settings: sizes, rounds and device.
        baseline: denominator of ratios (default: first model).
        progress: progress callback.

    Raises:
        RankscopeError: invalid model, runtime or size.
        CaseError: all cases failed.
    """
    from rankscope.engine.device import resolve_device

    settings = settings or Settings()
    settings = replace(settings, device=resolve_device(settings.device))
    if not models:
        raise OptionError("no model given; give at least one.")
    cases = [checked(one if isinstance(one, Case) else read_case(one), settings.device) for one in models]
    base = cases[0]
    if baseline is not None:
        base = checked(baseline if isinstance(baseline, Case) else read_case(baseline), settings.device)
    cases = list(dict.fromkeys([base, *cases]))
    rows: list[BenchRow] = []
    failures: list[Failure] = []
    measured: dict[str, list[Rates]] = {}
    work: dict[tuple[str, int], list[Phase]] = {}
    sections = [[sized(one, settings, batch) for one in cases] for batch in settings.batches]
    for section in [list(chain(*sections))] if settings.together else sections:
        found, failed = _one_section(section, settings, measured, work, progress)
        rows += found
        failures += failed
    if not rows:
        raise CaseError(failures[0].reason)
    rates = {dtype: best(several) for dtype, several in measured.items()}
    rows = [_with_roofline(row, work.get((row.label, row.batch), []), rates) for row in rows]
    over = _ratios(rows, base.label)
    return BenchReport(
        machine(rows, settings),
        base.label,
        settings.rounds,
        settings.seed,
        tuple(rows),
        tuple(over),
        tuple(rates.values()),
        tuple(failures),
    )


def _one_section(
    cases: Sequence[Case],
    settings: Settings,
    measured: dict[str, list[Rates]],
    work: dict[tuple[str, int], list[Phase]],
    progress: Progress,
) -> tuple[list[BenchRow], list[Failure]]:
    """Time cases in the same rounds; store rates in `measured` and phases in `work`."""
    failures: list[Failure] = []
    loaded: dict[Case, dict[str, Any]] = {}
    total = len(cases) + settings.rounds * (len(cases) + 1)
    with ExitStack() as stack:
        children = {one: stack.enter_context(Child(one)) for one in cases}
        meter = stack.enter_context(Child(replace(cases[0], model="rates of the machine", runtime=LOCAL)))
        for number, (case, child) in enumerate(children.items()):
            progress(number, total, f"batch {case.batch}: loading {case.label}")
            try:
                loaded[case] = child.ask("load", settings.timeout)
            except CaseError as error:
                failures.append(Failure(case.label, case.batch, str(error)))
                continue
            work[case.label, case.batch] = [Phase(**one) for one in loaded[case].get("phases", ())]
        formats = [said["dtype"] for case, said in loaded.items() if case.runtime != LOCAL]
        peaks: dict[Case, int] = {}
        lost: dict[Case, str] = {}

        def turn(case: Case) -> float:
            if case in lost:
                return float("nan")
            try:
                said = children[case].ask("forecast", settings.timeout)
            except CaseError as error:
                lost[case] = str(error)
                return float("nan")
            peaks[case] = said["peak_bytes"]
            return float(said["seconds"])

        def meter_turn() -> float:
            for dtype in dict.fromkeys(formats):
                try:
                    said = meter.ask(f"rates {dtype} {settings.device}", settings.timeout)
                except CaseError:  # the times stand without a roofline
                    formats.clear()
                    break
                pairs = tuple((int(size), float(rate)) for size, rate in said["copies"])
                measured.setdefault(dtype, []).append(Rates(dtype, said["flops_per_second"], pairs))
            return 0.0

        works: dict[Case | None, Turn] = {case: partial(turn, case) for case in loaded}
        begun, sizes = len(cases), ", ".join(map(str, dict.fromkeys(one.batch for one in cases)))
        seconds = alternate(
            {**works, None: meter_turn},
            settings.rounds,
            lambda done: progress(begun + done, total, f"batch {sizes}: timing"),
        )
    failures += [Failure(case.label, case.batch, reason) for case, reason in lost.items()]
    kept = [case for case in loaded if case not in lost]
    return [_row(case, loaded[case], seconds[case], peaks[case]) for case in kept], failures


def _row(case: Case, said: dict[str, Any], seconds: tuple[float, ...], peak: int) -> BenchRow:
    """Build a row of time and memory; the roofline is added once all rates are measured."""
    spread = Spread.of(seconds)
    return BenchRow(
        label=case.label,
        model=case.model,
        runtime=case.runtime,
        device="cpu" if case.runtime == LOCAL else case.device,
        dtype=said["dtype"],
        batch=case.batch,
        num_samples=said["paths"],
        horizon=case.horizon,
        context=said["context"],
        threads=said["threads"],
        seconds=spread,
        turns=seconds,
        repeats=said["repeats"],
        tokens_per_second=case.batch * said["paths"] * case.horizon / spread.median,
        peak_bytes=peak,
        loaded_bytes=said["loaded_bytes"],
        weight_bytes=said["weight_bytes"],
        cache_bytes=said.get("cache_bytes"),
    )


def _with_roofline(row: BenchRow, work: Sequence[Phase], rates: dict[str, Rates]) -> BenchRow:
    """Add the roofline time to a row."""
    if not work or row.dtype not in rates:
        return row
    floor = floor_seconds(work, rates[row.dtype])
    return replace(
        row,
        flops=sum(one.flops for one in work),
        moved_bytes=sum(one.bytes for one in work),
        roofline_seconds=floor,
        achieved=floor / row.seconds.median,
    )


def _ratios(rows: Sequence[BenchRow], baseline: str) -> list[BenchRatio]:
    found = []
    for row in rows:
        base = next((one for one in rows if one.label == baseline and one.batch == row.batch), None)
        if base is not None:
            peak = row.peak_bytes / base.peak_bytes if base.peak_bytes else None
            found.append(BenchRatio(row.label, baseline, row.batch, ratios(row.turns, base.turns), peak))
    return found


def place(device: str) -> dict[str, Any]:
    """Return the processor, the cores that may be used, and the device."""
    import torch

    model = ""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu"
    return {"cpu": model, "cores": available_cores(), "device": name}


def machine(rows: Sequence[BenchRow], settings: Settings) -> dict[str, Any]:
    """Describe the machine: processor, cores, device, software versions and load."""
    from importlib.metadata import version

    import torch

    here = place(settings.device)
    return {
        "cpu": here["cpu"],
        "cores": here["cores"],
        "threads": rows[0].threads,
        "device": here["device"],
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }
