"""``rankscope compress``: write a compressed checkpoint."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from rankscope import choices
from rankscope.errors import OptionError
from rankscope_cli import options as opt
from rankscope_cli.compress_tables import show_compress, warn_elsewhere
from rankscope_cli.exits import say
from rankscope_cli.loss_bound import bounded_score, outspoken
from rankscope_cli.output import Output
from rankscope_cli.own_series import own_suite, reading, refuse
from rankscope_cli.progress import progress_bar, progress_lines

if TYPE_CHECKING:
    from rankscope_eval.bench import Clock


SUITE = "embedded"
_SIZE, _BY_LOSS, _BY_TIME, _METHOD = "Size", "Size by loss", "Size by time", "Method"
_BATCH = 32
"""Series that are forecast at once where a time is asked for."""


def run(
    model: opt.Model = None,
    *,
    ratio: Annotated[
        float | None,
        opt.value("--ratio", "R", "Share of all parameters to keep, in (0, 1].", _SIZE, "-r"),
    ] = None,
    out: Annotated[str, opt.out_folder("Output folder.")],
    parameters: Annotated[
        str | None, opt.value("--parameters", "N", "Size budget: at most N parameters in total (e.g. 5M).", _SIZE)
    ] = None,
    size_bytes: Annotated[
        str | None, opt.value("--bytes", "N", "Size budget: at most N bytes of weights (e.g. 5MB).", _SIZE)
    ] = None,
    cache_bytes: Annotated[
        str | None,
        opt.value("--cache-bytes", "N", "Size budget: at most N bytes of KV cache per sample path.", _SIZE),
    ] = None,
    layers: Annotated[
        int | None,
        opt.value("--layers", "N", "Size budget: N layers (of the stack that --sites names); method depth.", _SIZE),
    ] = None,
    eps: Annotated[
        float | None, opt.value("--eps", "E", "Keep singular values above ε·σ₁; ε in [0, 1).", _SIZE, "-e")
    ] = None,
    attention_ratio: Annotated[
        float | None,
        opt.value(
            "--attention-ratio",
            "R",
            "Share of the selected matrices' parameters to keep (attention by default), as the rank paper counts.",
            _SIZE,
        ),
    ] = None,
    max_loss: Annotated[
        float | None,
        opt.value(
            "--max-loss",
            "L",
            "Smallest model with a relative WQL, and its 95 % bound, of at most 1+L on --suite or --input.",
            _BY_LOSS,
            "-l",
        ),
    ] = None,
    latency: Annotated[
        str | None,
        opt.value(
            "--latency",
            "R|MS",
            "Target time: a fraction of the original's (0.5) or milliseconds (40ms).",
            _BY_TIME,
        ),
    ] = None,
    batch: Annotated[
        int | None, opt.count("--batch", "Series that are forecast at once for --latency (default: 32).", _BY_TIME)
    ] = None,
    method: Annotated[
        choices.Method | None,
        opt.choice(
            "--method",
            choices.Method,
            "Compression method; all but svd and random need calibration data (default: joint+stream for a size of the "
            "whole model, a loss or a time; svd with --eps or --attention-ratio; else joint).",
            _METHOD,
            "-m",
        ),
    ] = None,
    allocation: Annotated[
        choices.Allocation | None,
        opt.choice(
            "--allocation",
            choices.Allocation,
            "Rank allocation across matrices (default: uniform-eps for svd, sensitivity for joint, else energy).",
            _METHOD,
        ),
    ] = None,
    calibration: Annotated[
        str | None,
        opt.value(
            "--calibration",
            "SET|FILE",
            "Calibration data: mixture:N, kernelsynth:N, a file, or several, comma-separated, @C at the end for "
            "histories of C values (default: mixture:256, or mixture:1024 for patch models and more for large "
            "Chronos-Bolt, of at most 512 values); "
            "text:FILE for text models; or moments saved by calibrate.",
            _METHOD,
            "-c",
        ),
    ] = None,
    decoder: Annotated[
        choices.Decoder | None,
        opt.choice(
            "--decoder",
            choices.Decoder,
            "Decoder inputs during calibration: the true future (teacher forcing, default) or sampled paths.",
            _METHOD,
        ),
    ] = None,
    probe: Annotated[
        str | None,
        opt.value(
            "--probe",
            "SET",
            "Data for the sensitivity allocation (default: mixture:32, or mixture:128 for patch models; text models: "
            "held-out text).",
            _METHOD,
        ),
    ] = None,
    refine: Annotated[
        bool | None,
        opt.switch(
            "--refine/--no-refine",
            "Refit each sublayer's output matrix, in order, to the original's residual stream (default: with joint, "
            "stream, joint+stream and depth).",
            _METHOD,
        ),
    ] = None,
    multiple: Annotated[
        int, opt.count("--multiple", "Round ranks down to multiples of N; costs accuracy.", _METHOD)
    ] = 1,
    suite: Annotated[
        str | None,
        opt.value("--suite", "NAME|FILE", "Suite for --max-loss (default: embedded).", _BY_LOSS),
    ] = None,
    data: Annotated[
        str | None, opt.value("--data", "DIR", "Folder with the suite's local data files.", _BY_LOSS)
    ] = None,
    max_series: Annotated[
        int | None, opt.count("--max-series", "Use only the first N series of each data set.", _BY_LOSS)
    ] = None,
    input: Annotated[
        str | None,
        opt.value(
            "--input", "FILE", "Score --max-loss on these series instead of a suite; needs --horizon.", _BY_LOSS, "-i"
        ),
    ] = None,
    horizon: opt.InputHorizon = None,
    windows: opt.Windows = None,
    freq: opt.Freq = None,
    season_length: opt.SeasonLength = None,
    id_column: opt.IdColumn = None,
    time_column: opt.TimeColumn = None,
    target_column: opt.TargetColumn = None,
    storage: Annotated[
        choices.Storage | None,
        opt.choice(
            "--storage",
            choices.Storage,
            "int8: store linear weights as int8 with one scale per row; usable without a size (default: as the "
            "source).",
        ),
    ] = None,
    sites: opt.LinearSites = None,
    recipe: Annotated[
        str | None,
        opt.value(
            "--recipe", "FILE", "Take all options from recipe.yaml of a compressed folder, to make that model again."
        ),
    ] = None,
    force: opt.Force = False,
    json: opt.Json = False,
    dtype: Annotated[choices.Dtype | None, opt.dtype("Dtype of the stored weights (default: unchanged).")] = None,
    device: opt.Device = "auto",
    revision: opt.Revision = None,
    seed: opt.Seed = 0,
    debug: opt.Debug = False,
) -> None:
    """Compress a checkpoint to a size, a loss or a time.

    --ratio, --parameters and --bytes count the whole model: attention heads, feed-forward blocks and the residual
    stream become narrower, each by what it is worth to the forecasts (--method joint+stream). --eps alone is the rank
    paper's truncated SVD of the attention matrices. The output folder loads in chronos-forecasting after
    `import rankscope`.

    --method joint narrows heads and feed-forward blocks alone (the default with --sites and --cache-bytes), --method
    stream the residual stream alone. The other methods replace each selected matrix by two low-rank factors if that
    takes fewer parameters.

    --method depth removes whole layers, each time the one whose absence changes the forecasts least for its size.
    --layers N says how many stay, with --sites decoder of the decoder alone. Compress the result with joint or stream.

    With joint, stream and depth, what each sublayer writes is refitted afterwards, so that errors of earlier layers do
    not add up; --refine does so with every other method, --no-refine with none.

    --dtype sets the dtype of the stored weights (default: unchanged). --storage int8 combines with every method and
    size; --dtype then applies to the remaining weights. --max-loss searches over sizes and keeps the smallest model
    whose loss is, with 95 % confidence, within the limit; the result is only as representative as the series.
    --latency times models of the shapes in question until one fits; it holds for this machine and --batch.

    The output folder has all options in recipe.yaml; compress MODEL --recipe FILE makes the same model again.

    Examples:
        rankscope compress bundled-bolt --ratio 0.3 --out small/
        rankscope compress amazon/chronos-t5-base --ratio 0.3 --calibration moments.safetensors --storage int8 -o out/
        rankscope compress --max-loss 0.02 --input sales.csv --horizon 12 --windows 3 --out small/
        rankscope compress bundled-bolt --layers 1 --sites decoder --out shallow/
    """
    from rankscope.checkpoints import open_checkpoint
    from rankscope.compress import Budget, CompressOptions, compress, compress_to_loss, compress_to_time, read_recipe
    from rankscope.compress.calibration.sources import names_file
    from rankscope.compress.options import needs_calibration
    from rankscope.compress.to_loss import validate_loss
    from rankscope.engine.device import resolve_device
    from rankscope.io.atomic import refuse_existing
    from rankscope_eval import read_suite
    from rankscope_eval.bench import Clock

    refuse_existing(out, force)
    limits = {
        "parameters": opt.quantity("--parameters", parameters, of_bytes=False),
        "bytes": opt.quantity("--bytes", size_bytes, of_bytes=True),
        "cache-bytes": opt.quantity("--cache-bytes", cache_bytes, of_bytes=True),
        "layers": layers,
    }
    budgets = [Budget(kind, limit) for kind, limit in limits.items() if limit is not None]
    if len(budgets) > 1:
        raise OptionError(f"--{budgets[0].kind} and --{budgets[1].kind} are mutually exclusive; give one budget.")
    file = input is not None or names_file(calibration) or names_file(probe)
    read = reading(file, "--input FILE or --calibration FILE", freq, id_column, time_column, target_column)
    given = CompressOptions(
        eps=eps,
        ratio=ratio,
        attention_ratio=attention_ratio,
        budget=budgets[0] if budgets else None,
        sites=opt.words(sites) or None,
        method=method,
        allocation=allocation,
        calibration=calibration,
        decoder=decoder,
        probe=probe,
        **read,
        refine=refine,
        multiple=multiple,
        seed=seed,
        dtype=dtype,
        storage=storage,
    )
    if latency is not None and (max_loss is not None or given.sizes):
        raise OptionError("--latency searches for the size; leave out --eps, the ratios, all budgets and --max-loss.")
    if batch is not None and latency is None:
        raise OptionError("--batch requires --latency.")
    targets = {"--latency": latency, "--max-loss": max_loss}
    searched = next((flag for flag, target in targets.items() if target is not None), None)
    if searched and method in ("stream", "depth"):
        raise OptionError(f"{searched} does not search with method {method}: take joint+stream, the default, or joint.")
    looks = needs_calibration(given.completed().method) or allocation == "sensitivity" or refine
    recasts = not given.sizes and max_loss is None and latency is None
    for name, value in {"calibration": calibration, "probe": probe, "decoder": decoder}.items():
        if value is not None and (not looks or (recasts and (storage or dtype))):
            how = "--storage or --dtype alone" if recasts else f"method {given.completed().method}"
            raise OptionError(f"--{name} has no effect with {how}: leave it out, or take a method that reads series.")
    if recasts and (storage or dtype):
        ranks = {"multiple": None if multiple == 1 else multiple, "allocation": allocation, "refine": refine or None}
        refuse({"sites": sites, **ranks}, "a size, such as --ratio 0.3: --storage or --dtype alone cuts nothing")
    if recipe is not None and (latency is not None or max_loss is not None or given != CompressOptions()):
        raise OptionError("--recipe holds all options: leave out all others but --out, --force, --device and --json.")
    if not needs_calibration(given.completed().method) and allocation != "sensitivity" and max_loss is None:
        opt.refuse_cuda(device, "matrices are decomposed with LAPACK")
    given = replace(given, device=resolve_device(device))
    kept = None if recipe is None else read_recipe(recipe)
    own: dict[str, Any] = {"input": input, "horizon": horizon, "windows": windows, "season_length": season_length}
    if max_loss is None:
        refuse({"suite": suite, "data": data, "max_series": max_series, **own}, "--max-loss")
    scored = own_suite(**own, read=read, replaced={"suite": suite, "data": data}) or suite or SUITE
    with Output(json) as output:
        if latency is not None:
            _duration(latency)
            checkpoint = open_checkpoint(model, revision=revision)
            with progress_lines("timing the original") as progress:
                clock = Clock(checkpoint, batch or _BATCH, given.device, progress)
                report = compress_to_time(
                    checkpoint,
                    given,
                    out=out,
                    most=_share(latency, clock),
                    timer=clock,
                    measure=f"time of {batch or _BATCH} series",
                    conditions=clock.conditions,
                    force=force,
                    progress=progress,
                )
        elif max_loss is None:
            with progress_bar("opening the model") as progress:
                checkpoint = open_checkpoint(model, revision=revision)
                options = given if kept is None else kept.options(checkpoint, given.device)
                warn_elsewhere(kept, given.device)
                report = compress(checkpoint, options, out=out, force=force, progress=progress)
        else:
            if given.sizes:
                raise OptionError("--max-loss searches for the size; leave out --eps, the ratios and all budgets.")
            loss = validate_loss(max_loss)
            checkpoint = open_checkpoint(model, revision=revision)
            with progress_lines("measuring the original") as progress:
                score = bounded_score(checkpoint, given, read_suite(scored, data, max_series=max_series), progress)
                report = compress_to_loss(
                    checkpoint,
                    given,
                    out=out,
                    max_loss=loss,
                    score=score,
                    measure=f"relative WQL on {input or scored}",
                    force=force,
                    progress=outspoken(progress),
                )
        output.deliver(report, lambda console: show_compress(report, console))
    for note in report.notes:
        say(f"warning: {note}")
    if report.parameters["after"] == report.parameters["before"] and report.bytes["after"] >= report.bytes["before"]:
        say("warning: nothing was cut: the folder holds as many parameters as the model.")


def _duration(text: str) -> tuple[float, bool]:
    """A share, or milliseconds and True."""
    found = re.fullmatch(r"([0-9]*\.?[0-9]+(?:e-?[0-9]+)?)\s*(ms|x|×)?", text.strip(), re.IGNORECASE)
    if found is None or not float(found[1]):
        raise OptionError(
            f"--latency {text!r} is not a time: give a share of the original's (0.5) or milliseconds (40ms)."
        )
    number, unit = float(found[1]), (found[2] or "").lower()
    if not unit and number > 1:
        raise OptionError(f"--latency {text}: a fraction of the original's time is at most 1; did you mean {text}ms?")
    return number, unit == "ms"


def _share(latency: str, clock: Clock) -> float:
    """Share of the original's time that is asked for.

    Raises:
        OptionError: it is none, or the original is as fast.
    """
    number, absolute = _duration(latency)
    if not absolute:
        return number
    now = clock.milliseconds()
    if number >= now:
        raise OptionError(f"--latency {latency}: the original takes {now:.3g} ms; there is nothing to cut.")
    return number / now
