"""``rankscope embed``: spectra, angles and projections of embedding matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from rankscope import choices
from rankscope_cli import options as opt
from rankscope_cli.output import Output, check_figures, drawing
from rankscope_cli.own_series import reading, refuse
from rankscope_cli.progress import progress_bar
from rankscope_cli.tables import add_columns, plain_table, print_table
from rankscope_eval.numbers import MISSING, significant

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console

    from rankscope.measure.embedding import EmbeddingReport

FIGURES = ("embedding_spectra", "embedding_angles", "embedding_projection", "vocabulary_projection")
"""File stems of the figures."""
IMAGES = 1000
"""Images that image models read by default."""


def run(
    models: opt.Models = None,
    signal: opt.Signal = None,
    n: opt.Count = 64,
    length: opt.Length = None,
    freq: opt.Freq = None,
    id_column: opt.IdColumn = None,
    time_column: opt.TimeColumn = None,
    target_column: opt.TargetColumn = None,
    text: opt.Text = None,
    images: Annotated[
        choices.ImageSet,
        opt.choice("--images", choices.ImageSet, "Corpus for image models: generated, or from the hub."),
    ] = "generated",
    n_images: Annotated[int | None, opt.count("--n-images", f"Number of input images (default: {IMAGES}).")] = None,
    eps: opt.Eps = None,
    figures: opt.Figures = None,
    out: opt.Out = None,
    force: opt.Force = False,
    json: opt.Json = False,
    device: opt.Device = "auto",
    revision: opt.Revision = None,
    seed: opt.Seed = 0,
    debug: opt.Debug = False,
) -> None:
    """Compute spectra and angles of token embeddings.

    The rows of an embedding matrix are the embedded tokens of a corpus: --signal for time-series models, --text for
    text models, --images for image models. For models with a vocabulary, the vocabulary embedding is measured as well;
    without --text, it is the only one for text models.

    Examples:
        rankscope embed
        rankscope embed bundled bundled-bolt --figures figures/
        rankscope embed bundled bundled-time-moe bundled-totem bundled-t5-text --signal mixed --text book.txt.gz
        rankscope embed amazon/chronos-bolt-small --signal noise --json
    """
    from rankscope.engine.device import resolve_device
    from rankscope.measure.embedding import measure_embedding

    kind, file = opt.signal_or_file(signal)
    read = reading(file is not None, "--signal FILE", freq, id_column, time_column, target_column)
    check_figures(figures, FIGURES, force)
    with Output(json, out, force, signed=True) as output:
        tolerances = opt.numbers("eps", eps, (0.1, 0.05, 0.01))
        with progress_bar("opening the model") as progress:
            checkpoints = [opt.open_model(model, revision) for model in models or ["bundled"]]
            read_by = {one.family.modality for one in checkpoints}
            if "image" not in read_by:
                refuse({"n_images": n_images}, "an image model")
            if read_by == {"image"}:
                refuse({"signal": signal, "length": length}, "a model of series or text, and these read images")
            elif "series" not in read_by and file is None:
                refuse({"signal": signal}, "a model of series")
                refuse({"length": length if text is None else None}, "--text FILE, or a model of series")
            report = measure_embedding(
                checkpoints,
                kind,
                n=n,
                length=length or opt.LENGTH,
                eps=tolerances,
                seed=seed,
                file=file,
                **read,
                text=text,
                images=images,
                image_count=IMAGES if n_images is None else n_images,
                device=resolve_device(device),
                progress=progress,
            )
        drawn = drawing(figures, lambda: _figures(report))
        output.deliver(report, lambda console: show_embedding(report, console), also=drawn)


def _figures(report: EmbeddingReport) -> dict[str, Figure]:
    """Draw the spectra, and angles and projections where measured."""
    from rankscope import plots

    drawn = {"embedding_spectra": plots.embedding_spectra(report)}
    matrices = {row.matrix for row in report.rows}
    if "corpus" in matrices:
        drawn["embedding_angles"] = plots.embedding_angles(report)
        drawn["embedding_projection"] = plots.embedding_projection(report)
    if "vocabulary" in matrices:
        drawn["vocabulary_projection"] = plots.embedding_projection(report, matrix="vocabulary")
    return drawn


def show_embedding(report: EmbeddingReport, console: Console) -> None:
    """Print one row per embedding matrix."""
    levels = [repr(eps) for eps in report.eps]
    table = plain_table()
    names = ["model", "matrix", "patch", "shape", *(f"ε={level}" for level in levels), "of max.", "eff."]
    add_columns(table, names, left=2, folds=True)
    for row in report.rows:
        ranks = [str(row.eps_ranks[level]) for level in levels]
        share = f"{row.relative_ranks[levels[0]]:.0%}" if levels else MISSING
        table.add_row(
            row.model,
            "vocab." if row.matrix == "vocabulary" else row.modality,
            str(row.patch_size),
            f"{row.tokens}×{row.d_model}",
            *ranks,
            share,
            significant(row.effective_rank),
        )
    print_table(table, console)
    console.print()
    if levels:
        console.print(f"of max.: ε-rank at ε={levels[0]} / smaller dimension. patch: values per token.")
    others = dict.fromkeys(row.source for row in report.rows if row.source and row.modality != "series")
    if others:
        console.print(f"Other corpora: {'; '.join(others)}.")
