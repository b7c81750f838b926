"""``rankscope flow``: ε-ranks of every layer's input, beside those of its weights."""

from __future__ import annotations

from rankscope_cli.drawing import FLOW, check_figures, drawing, flow_figures
from rankscope_cli.flow_table import show_flow
from rankscope_cli.opening import open_model
from rankscope_cli.options import (
    Count,
    Debug,
    Device,
    Dtype,
    Eps,
    Figures,
    Force,
    Json,
    Length,
    Model,
    Revision,
    Seed,
    Signal,
    Table,
    Text,
    numbers,
    refuse_dtype,
    signal_or_file,
)
from rankscope_cli.output import Output
from rankscope_cli.progress import progress_bar


def run(
    model: Model = None,
    signal: Signal = "sine",
    n: Count = 64,
    length: Length = 512,
    text: Text = None,
    eps: Eps = None,
    figures: Figures = None,
    out: Table = None,
    force: Force = False,
    json: Json = False,
    device: Device = "auto",
    dtype: Dtype = None,
    revision: Revision = None,
    seed: Seed = 0,
    debug: Debug = False,
) -> None:
    """ε-ranks of every layer's input, beside those of its weights.

    A corpus runs through the model once; what enters a layer, one row per token, is a matrix whose singular values
    are computed in float64.

    Examples:
        rankscope flow
        rankscope flow amazon/chronos-bolt-small --signal noise --figures figures/
        rankscope flow small/ --signal sales.csv --length 128 --json
    """
    from rankscope.engine.device import resolve_device
    from rankscope.measure.flow import measure_flow

    refuse_dtype(dtype)
    kind, file = signal_or_file(signal)
    check_figures(figures, FLOW, force)
    with Output(json, out, force, signed=True) as output:
        tolerances = numbers("eps", eps, (0.1, 0.05, 0.01))
        with progress_bar("opening the model") as progress:
            report = measure_flow(
                open_model(model, revision),
                kind,
                n=n,
                length=length,
                eps=tolerances,
                seed=seed,
                file=file,
                text=text,
                device=resolve_device(device),
                progress=progress,
            )
        drawn = drawing(figures, lambda: flow_figures(report))
        output.deliver(report, lambda console: show_flow(report, console), also=drawn)
