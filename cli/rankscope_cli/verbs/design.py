"""``rankscope design``: low-rank architecture and the config that trains it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rankscope import choices
from rankscope.errors import OptionError
from rankscope_cli import options as opt
from rankscope_cli.exits import say
from rankscope_cli.output import Output
from rankscope_cli.tables import add_columns, plain_table, print_table, where
from rankscope_eval.numbers import MISSING, ratio

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope.checkpoints import Description
    from rankscope.train.config import EmbeddingStart
    from rankscope.train.rank_layouts import DesignReport
    from rankscope.train.rank_schedule import RankDesign

Start = Literal["random", "inherit"]
_TRAINING = "Training"


def run(
    model: opt.Model = None,
    *,
    r0: Annotated[float, opt.value("--r0", "R", "Rank of the first layer before rounding.")] = 3,
    alpha: Annotated[float, opt.value("--alpha", "A", "Growth exponent of the rank with depth.", min=0)] = 0.27,
    schedule: Annotated[
        choices.Rounding,
        opt.choice("--schedule", choices.Rounding, "Rounding: up, or to a power of two (as in the released code)."),
    ] = "ceil",
    cross_depth: Annotated[
        choices.CrossDepth,
        opt.choice(
            "--cross-depth",
            choices.CrossDepth,
            "Layer index of cross-attention: from 0, or after the encoder's last layer (as in the released code).",
        ),
    ] = "restart",
    layout: Annotated[
        choices.RankLayout,
        opt.choice(
            "--layout", choices.RankLayout, "Heads of width r(i), which also shrinks the KV cache, or low-rank factors."
        ),
    ] = "head-width",
    sketch: Annotated[
        choices.Sketch | None,
        opt.choice(
            "--sketch",
            choices.Sketch,
            "With --layout factored: rank r(i) per head (default) or for all heads together.",
        ),
    ] = None,
    mlp: Annotated[
        bool, opt.switch("--mlp", "Also factor the feed-forward matrices, at the self-attention rank.")
    ] = False,
    embedding: Annotated[
        Start, opt.choice("--embedding", Start, "Initialise the embedding randomly or from MODEL.", _TRAINING)
    ] = "random",
    freeze_embedding: Annotated[
        bool, opt.switch("--freeze-embedding", "Freeze the inherited embedding.", _TRAINING)
    ] = False,
    out: Annotated[str, opt.out_folder("Output folder.")],
    force: opt.Force = False,
    json: opt.Json = False,
    seed: Annotated[int | None, opt.value("--seed", "N", "Seed of the training run.", opt.RUNTIME, min=0)] = None,
    dtype: opt.TrainingDtype = None,
    device: opt.Device = "auto",
    revision: opt.Revision = None,
    debug: opt.Debug = False,
) -> None:
    """Derive a low-rank architecture and its training config.

    Layer i has rank r(i) = ⌈r0 (1+i)^alpha⌉, i from 0. Only MODEL's config.json is read. DIR receives pretrain.yaml
    (for `rankscope pretrain`), config.json (of the new network) and design.json (the printed report). The training
    config copies steps and data from MODEL's pretrain.json if there is one, for a comparison at equal cost, and
    otherwise uses Chronos' published recipe (200,000 steps); edit it freely. --dtype sets the training precision.

    A matrix stays dense if its factors would not have fewer parameters. Size ratio: parameters of all attention
    matrices, after / before.

    Examples:
        rankscope design --r0 3 --alpha 0.27 --out low/
        rankscope design amazon/chronos-t5-base --r0 7 --alpha 0.4 --schedule pow2 --cross-depth continue --out low/
        rankscope design --layout factored --mlp --embedding inherit --freeze-embedding --out low/
        rankscope pretrain low/ --out mine/
    """
    if sketch is not None and layout != "factored":
        raise OptionError(f"--sketch {sketch} requires --layout factored, not {layout}.")
    if freeze_embedding and embedding != "inherit":
        raise OptionError("--freeze-embedding requires --embedding inherit: a random embedding must be trained.")
    opt.refuse_cuda(device, "designs are computed")
    precision = opt.training_precision(dtype)
    from rankscope.checkpoints import describe
    from rankscope.train.rank_schedule import RankDesign
    from rankscope.train.recipe import write_design

    design = RankDesign(
        r0=r0,
        alpha=alpha,
        schedule=schedule,
        cross_depth=cross_depth,
        layout=layout,
        sketch=sketch or "per-head",
        mlp=mlp,
    )
    with Output(json) as output:
        source = describe(model, revision=revision)
        start = _embedding(source, embedding, freeze_embedding, revision)
        report = write_design(source, design, out, embedding=start, seed=seed, precision=precision, force=force)
        for setting in report.not_kept:
            say(f"not carried over to the pretraining config: {setting}.")
        output.deliver(report, lambda console: _show(report, console))


def _embedding(source: Description, embedding: str, frozen: bool, revision: str | None) -> EmbeddingStart:
    from rankscope.checkpoints import list_bundled, open_checkpoint
    from rankscope.train.config import EmbeddingStart

    if embedding != "inherit":
        return EmbeddingStart()
    if revision is not None:
        raise OptionError("--embedding inherit does not support --revision; download the revision and pass its folder.")
    open_checkpoint(source.source)  # fail now rather than at training time if the weights are missing
    local = Path(source.source).is_dir() and source.source not in list_bundled()
    # absolute, since training may be started from any folder
    return EmbeddingStart("inherit", str(source.folder.resolve()) if local else source.source, frozen=frozen)


def _show(report: DesignReport, console: Console) -> None:
    table = plain_table(title=f"{report.model} by design: {_in_words(report.design)}")
    add_columns(table, ["layer", "part", "r(i)", "before", "after", "size", "cache"], left=2)
    for row in report.layers:
        rank = MISSING if row.rank is None else str(row.rank)
        table.add_row(
            where(row.stack, row.layer),
            row.part,
            rank + (f" ({row.dense} dense)" if row.dense and row.rank is not None else ""),
            f"{row.parameters_before:,}",
            f"{row.parameters_after:,}",
            ratio(row.size_ratio),
            ratio(row.cache_ratio),
        )
    table.add_section()
    for name, counts, cache in (
        ("attention", report.attention, report.cache_ratio),
        ("all parameters", report.parameters, None),
    ):
        before, after = counts["before"], counts["after"]
        table.add_row("", name, "", f"{before:,}", f"{after:,}", ratio(after / before), ratio(cache))
    print_table(table, console)
    console.print()
    console.print(f"size ratio {report.size_ratio:.3f}. To train it:")
    run = shlex.quote(str(Path(report.out) / "pretrain.yaml"))
    console.print(f"  rankscope pretrain {run} --out trained/")


def _in_words(design: RankDesign) -> str:
    words = [f"r0 {design.r0:g}", f"alpha {design.alpha:g}", design.schedule, design.layout]
    if design.layout == "factored":
        words.append(design.sketch)
    return ", ".join(words)
