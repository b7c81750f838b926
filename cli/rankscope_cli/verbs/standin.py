"""``rankscope standin``: train a small proxy model of a family."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from rankscope_cli import options as opt
from rankscope_cli.output import Output
from rankscope_cli.progress import progress_lines

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope.train.proxies import ProxyReport


WeightDtype = Literal["float32", "float16", "bfloat16"]


def run(
    family: Annotated[str, opt.argument("FAMILY", "Family with a dot under standin in `rankscope families`.")],
    *,
    out: Annotated[str, opt.out_folder("Output folder.")],
    steps: Annotated[int | None, opt.count("--steps", "Optimiser steps.")] = None,
    batch_size: Annotated[int | None, opt.count("--batch-size", "Examples per step.")] = None,
    learning_rate: Annotated[float | None, opt.value("--learning-rate", "X", "Peak learning rate.")] = None,
    width: Annotated[int | None, opt.count("--width", "d_model, a multiple of 16.")] = None,
    layers: Annotated[int | None, opt.count("--layers", "Layers of each stack.")] = None,
    text: Annotated[
        str | None, opt.value("--text", "FILE", "Training corpus for text models: UTF-8 text, optionally gzipped.")
    ] = None,
    vocabulary: Annotated[int, opt.count("--vocabulary", "Vocabulary size of a text model.")] = 4096,
    force: opt.Force = False,
    json: opt.Json = False,
    dtype: Annotated[WeightDtype, opt.choice("--dtype", WeightDtype, "Dtype of the stored weights.")] = "float32",
    seed: opt.Seed = 0,
    debug: opt.Debug = False,
) -> None:
    """Train a small proxy model of a family other than Chronos on CPU.

    A stand-in for families whose published model is unavailable, since ranks of random weights are not informative.
    Trains on synthetic series or images, or on a text. The folder holds weights, loss.csv and a model card.

    Examples:
        rankscope standin timesfm --out timesfm/
        rankscope standin t5 --text book.txt.gz --width 64 --steps 3000 --out t5-64/
        rankscope standin vit --steps 500 --seed 1 --out vit/ --json
    """
    from rankscope.train.proxies import ProxyOptions, train_proxy

    with Output(json) as output:
        options = ProxyOptions(steps, batch_size, learning_rate, width, layers, text, vocabulary, seed)
        with progress_lines("preparing") as progress:
            report = train_proxy(family, out, options, dtype=dtype, force=force, progress=progress)
        output.deliver(report, lambda console: _show(report, console))


def _show(report: ProxyReport, console: Console) -> None:
    console.print(
        f"{report.out}: {report.family}, {report.parameters:,} parameters, {report.steps:,} steps in "
        f"{report.seconds:.0f} s; loss {report.loss_start:.3f} → {report.loss_end:.3f}, held out "
        f"{report.held_out_before:.3f} → {report.held_out_after:.3f}"
    )
