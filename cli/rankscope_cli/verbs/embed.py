"""``rankscope embed``: spectra, angles and projections of embedding matrices."""

from __future__ import annotations

from typing import Annotated

import typer

from rankscope_cli.drawing import EMBEDDING, check_figures, drawing, embedding_figures
from rankscope_cli.flow_table import show_embedding
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
    Models,
    Revision,
    Seed,
    Signal,
    Table,
    numbers,
    refuse_dtype,
    signal_or_file,
)
from rankscope_cli.output import Output
from rankscope_cli.progress import progress_bar


def run(
    models: Models = None,
    signal: Signal = "sine",
    n: Count = 64,
    length: Length = 512,
    text: Annotated[
        str | None,
        typer.Option("--text", metavar="FILE", help="What text models read: UTF-8 text, also gzipped."),
    ] = None,
    images: Annotated[
        str,
        typer.Option("--images", metavar="NAME", help="What image models read: generated, or cifar10 (hub)."),
    ] = "generated",
    n_images: Annotated[int, typer.Option("--n-images", min=1, metavar="N", help="Images in the corpus.")] = 1000,
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
    """Spectra, angles and projections of embedding matrices over a corpus.

    The rows of an embedding matrix are the embedded tokens of what a model reads: series embed --signal, texts --text,
    images --images. Models with a vocabulary are measured on that too; without --text, text models on that alone.

    Examples:
        rankscope embed
        rankscope embed bundled bundled-bolt --figures figures/
        rankscope embed bundled bundled-time-moe bundled-totem minilm --signal mixed --text book.txt.gz
        rankscope embed amazon/chronos-bolt-small --signal noise --json
    """
    from rankscope.engine.device import resolve_device
    from rankscope.measure.embedding import measure_embedding

    refuse_dtype(dtype)
    kind, file = signal_or_file(signal)
    check_figures(figures, EMBEDDING, force)
    with Output(json, out, force, signed=True) as output:
        tolerances = numbers("eps", eps, (0.1, 0.05, 0.01))
        with progress_bar("opening the model") as progress:
            report = measure_embedding(
                [open_model(model, revision) for model in models or ["bundled"]],
                kind,
                n=n,
                length=length,
                eps=tolerances,
                seed=seed,
                file=file,
                text=text,
                images=images,
                image_count=n_images,
                device=resolve_device(device),
                progress=progress,
            )
        drawn = drawing(figures, lambda: embedding_figures(report))
        output.deliver(report, lambda console: show_embedding(report, console), also=drawn)
