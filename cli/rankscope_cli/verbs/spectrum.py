"""``rankscope spectrum``: singular values, ε-ranks and size ratios of weight matrices."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from rankscope_cli.drawing import SPECTRUM, check_figures, drawing, spectrum_figures
from rankscope_cli.opening import open_model
from rankscope_cli.options import (
    Debug,
    Device,
    Dtype,
    Eps,
    Figures,
    Force,
    Json,
    Model,
    Revision,
    Seed,
    Sites,
    Table,
    numbers,
    words,
)
from rankscope_cli.output import Output
from rankscope_cli.progress import progress_bar
from rankscope_cli.spectrum_table import show_spectrum


def run(
    model: Model = None,
    eps: Eps = None,
    sites: Sites = None,
    ranks_only: Annotated[
        bool, typer.Option("--ranks-only", help="Count ε-ranks without singular values: faster on large matrices.")
    ] = False,
    figures: Figures = None,
    out: Table = None,
    force: Force = False,
    json: Json = False,
    dtype: Dtype = None,
    device: Device = "auto",
    revision: Revision = None,
    seed: Seed = 0,
    debug: Debug = False,
) -> None:
    """Singular values, ε-ranks and size ratios of every weight matrix.

    The ε-rank counts the singular values above ε·σ₁. Per head: median (lowest–highest). Size: what a factorisation
    of that rank stores, as a share of the matrix. A .json file holds every singular value. Nothing here is random.

    Examples:
        rankscope spectrum
        rankscope spectrum amazon/chronos-t5-base --eps 0.1,0.01 --out base.parquet
        rankscope spectrum small/ --sites q,k,encoder --ranks-only --json
    """
    from rankscope.engine.device import resolve_dtype
    from rankscope.measure.spectrum import DEFAULT_EPS, measure_spectrum

    check_figures(figures, SPECTRUM, force)
    with Output(json, out, force, signed=True) as output:
        with progress_bar("opening the model") as progress:
            report = measure_spectrum(
                open_model(model, revision),
                numbers("eps", eps, DEFAULT_EPS),
                words(sites),
                ranks_only=ranks_only,
                dtype=resolve_dtype(dtype),
                device=device,
                progress=progress,
            )
        whole = partial(report.to_json, sigma=True)
        drawn = drawing(figures, lambda: spectrum_figures(report))
        output.deliver(report, lambda console: show_spectrum(report, console), whole=whole, also=drawn)
