"""``rankscope compress``: a smaller checkpoint, and the command that verifies it."""

from __future__ import annotations

import shlex
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rankscope import choices
from rankscope.engine import Progress
from rankscope.errors import OptionError
from rankscope_cli import options as opt
from rankscope_cli.exits import say
from rankscope_cli.output import Output
from rankscope_cli.progress import progress_bar, progress_lines
from rankscope_cli.tables import add_columns, plain_table, print_table, ratio_text, size

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from rankscope.checkpoints import Checkpoint
    from rankscope.compress import CompressOptions, CompressReport, LossSearch, SiteReport


SUITE = "embedded"
_SIZE, _BY_LOSS = "Size", "Size by loss"


def run(
    model: opt.Model = None,
    *,
    eps: Annotated[
        float | None, opt.value("--eps", "E", "Keep the singular values above ε·σ₁; ε in [0, 1).", _SIZE, "-e")
    ] = None,
    ratio: Annotated[
        float | None,
        opt.value("--ratio", "R", "Find the ε that shrinks the matrices to this share, in (0, 1].", _SIZE, "-r"),
    ] = None,
    out: Annotated[str, opt.out_folder("Folder of the new checkpoint.")],
    parameters: Annotated[
        float | None, opt.value("--parameters", "N", "Instead: at most N parameters in all.", _SIZE)
    ] = None,
    size_bytes: Annotated[
        float | None, opt.value("--bytes", "N", "Instead: at most N bytes of weights.", _SIZE)
    ] = None,
    cache_bytes: Annotated[
        float | None,
        opt.value("--cache-bytes", "N", "Instead: at most N bytes of cache for a series and a path.", _SIZE),
    ] = None,
    max_loss: Annotated[
        float | None,
        opt.value(
            "--max-loss",
            "L",
            "Instead: the smallest model whose WQL on --suite is at most 1+L times the original's.",
            _BY_LOSS,
            "-l",
        ),
    ] = None,
    suite: Annotated[
        str | None,
        opt.value("--suite", "NAME|FILE", "Suite that --max-loss measures on; embedded by default.", _BY_LOSS),
    ] = None,
    data: Annotated[str | None, opt.value("--data", "DIR", "Folder of the suite's local data files.", _BY_LOSS)] = None,
    max_series: Annotated[
        int | None, opt.count("--max-series", "Only the first series of each data set of the suite.", _BY_LOSS)
    ] = None,
    method: Annotated[
        choices.Method,
        opt.choice(
            "--method", choices.Method, "How factors are found; all but svd and random look at series.", short="-m"
        ),
    ] = "svd",
    allocation: Annotated[
        choices.Allocation | None,
        opt.choice(
            "--allocation",
            choices.Allocation,
            "Which matrix gets which rank; by default uniform-eps for svd, sensitivity for joint, else energy.",
        ),
    ] = None,
    calibration: Annotated[
        str | None,
        opt.value(
            "--calibration",
            "SET|FILE",
            "Series to look at: mixture:N, kernelsynth:N, a file, several with commas; text:FILE of a text model; or "
            "moments that calibrate saved.",
            short="-c",
        ),
    ] = None,
    decoder: Annotated[
        choices.Decoder | None,
        opt.choice(
            "--decoder",
            choices.Decoder,
            "What the decoder reads meanwhile: the true future (default), or its own paths.",
        ),
    ] = None,
    probe: Annotated[
        str | None,
        opt.value(
            "--probe",
            "SET",
            "Series that sensitivity looks at answers on: mixture:32, or 128 for a model of patches; more of the "
            "text of a text model.",
        ),
    ] = None,
    multiple: Annotated[int, opt.count("--multiple", "Round ranks down to multiples of N; GPUs like 8.")] = 1,
    storage: Annotated[
        choices.Storage | None,
        opt.choice(
            "--storage",
            choices.Storage,
            "int8: weights of all linear layers as whole numbers with a scale per row; alone, nothing is cut. As the "
            "source by default.",
        ),
    ] = None,
    sites: opt.Sites = None,
    force: opt.Force = False,
    json: opt.Json = False,
    dtype: opt.Dtype = None,
    device: opt.Device = "auto",
    revision: opt.Revision = None,
    seed: opt.Seed = 0,
    debug: opt.Debug = False,
) -> None:
    """Write a smaller checkpoint: low rank, narrower heads, int8.

    A matrix is stored as two thin ones where that takes fewer numbers; --method joint narrows whole heads instead,
    which shrinks the key/value cache too and holds forecasts at the smallest sizes. The folder loads in
    chronos-forecasting after `import rankscope`. --dtype is the format the weights are stored in; each keeps its own
    without it. --storage int8 goes with every method and size: linear layers become whole numbers, and --dtype is then
    the format of the rest. --max-loss tries one size after the other and keeps the smallest that was measured to hold;
    it can be trusted as far as its suite resembles what the model will forecast.

    Examples:
        rankscope compress --eps 0.05 --out small/
        rankscope compress amazon/chronos-t5-base --ratio 0.15 --method joint --calibration moments.safetensors -o out/
        rankscope compress bundled-bolt --ratio 0.25 --method joint --storage int8 --out small/
        rankscope compress --max-loss 0.02 --method joint --suite backtest.yaml --data benchmark/ --out small/
    """
    from rankscope.checkpoints import open_checkpoint
    from rankscope.compress import Budget, CompressOptions, compress, compress_to_loss
    from rankscope.compress.options import needs_calibration
    from rankscope.compress.to_loss import validate_loss
    from rankscope.engine.device import resolve_device
    from rankscope.io.atomic import refuse_existing

    if not needs_calibration(method) and allocation != "sensitivity" and max_loss is None:
        opt.refuse_cuda(device, "matrices are decomposed by LAPACK")
    refuse_existing(out, force)
    limits = {"parameters": parameters, "bytes": size_bytes, "cache-bytes": cache_bytes}
    budgets = [Budget(kind, limit) for kind, limit in limits.items() if limit is not None]
    if len(budgets) > 1:
        raise OptionError(f"give one budget, not --{budgets[0].kind} and --{budgets[1].kind}.")
    options = CompressOptions(
        eps=eps,
        ratio=ratio,
        budget=budgets[0] if budgets else None,
        sites=opt.words(sites) or ("attention",),
        method=method,
        allocation=allocation,
        calibration=calibration,
        decoder=decoder,
        probe=probe,
        multiple=multiple,
        seed=seed,
        device=resolve_device(device),
        dtype=dtype,
        storage=storage,
    )
    settings = {"suite": suite, "data": data, "max_series": max_series}
    with Output(json) as output:
        if max_loss is None:
            _refuse_settings(settings)
            with progress_bar("opening the model") as progress:
                checkpoint = open_checkpoint(model, revision=revision)
                report = compress(checkpoint, options, out=out, force=force, progress=progress)
        else:
            if options.sizes:
                raise OptionError("--max-loss looks for the size itself: leave out --eps, --ratio and every budget.")
            loss = validate_loss(max_loss)
            checkpoint = open_checkpoint(model, revision=revision)
            with progress_lines("measuring the original") as progress:
                score = _score(checkpoint, options, settings, progress)
                report = compress_to_loss(
                    checkpoint,
                    options,
                    out=out,
                    max_loss=loss,
                    score=score,
                    measure=f"relative WQL on {suite or SUITE}",
                    force=force,
                    progress=_outspoken(progress),
                )
        output.deliver(report, lambda console: show_compress(report, console))
    for note in report.notes:
        say(f"warning: {note}")


def _refuse_settings(settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        if value is not None:
            raise OptionError(f"--{name.replace('_', '-')} says where --max-loss is measured: give --max-loss, too.")


def _score(
    checkpoint: Checkpoint, options: CompressOptions, settings: dict[str, Any], progress: Progress
) -> Callable[[Path], float]:
    """Measure the original, and return what measures a folder against it."""
    from rankscope_eval import Forecasting, Scorer, read_suite

    run = Forecasting(seed=options.seed, device=options.device)
    suite = read_suite(settings["suite"] or SUITE, settings["data"], max_series=settings["max_series"])
    scorer = Scorer(suite, run, checkpoint)
    scorer.score_baseline(progress)
    return lambda folder: scorer(folder)["relative_WQL"]


def _outspoken(progress: Progress) -> Progress:
    """Say how every size measured, where there is no bar that shows it."""
    from rankscope.compress.to_loss import FAILS, HOLDS

    def report(done: int, total: int, what: str) -> None:
        if what.endswith((HOLDS, FAILS)) and not sys.stderr.isatty():
            say(what)
        else:
            progress(done, total, what)

    return report


def show_compress(report: CompressReport, console: Console) -> None:
    """Print the tables of a report on a console."""
    how = report.method if report.eps is None else f"{report.method} at ε={report.eps:g}"
    table = plain_table(title=f"{report.model} → {report.out}, {how}")
    add_columns(table, ["", "before", "after", "after/before"])
    for name, counts in (
        ("selected matrices", report.selected_parameters),
        ("all parameters", report.parameters),
    ):
        before, after = counts["before"], counts["after"]
        table.add_row(name, f"{before:,}", f"{after:,}", ratio_text(after / before, 3))
    before, after = report.bytes["before"], report.bytes["after"]
    disk = "weights on disk" + (", int8" if report.storage == "int8" else "")
    table.add_row(disk, size(before), size(after), ratio_text(after / before, 3))
    print_table(table, console)
    console.print()
    print_table(_by_role(report), console)
    console.print()
    if report.search is not None:
        print_table(_steps(report.search), console)
        console.print()
    from rankscope.families import FAMILIES

    if not FAMILIES[report.family].forecastable:
        console.print(f"size ratio {report.ratio:.3f}. What every size costs in log-perplexity:", markup=False)
        console.print(f"  rankscope table2 {shlex.quote(report.model)} --text FILE --out table/", markup=False)
        return
    console.print(f"size ratio {report.ratio:.3f}. Verify that the forecasts held:", markup=False)
    console.print(f"  rankscope eval {shlex.quote(report.out)} --baseline {shlex.quote(report.model)}", markup=False)


def _by_role(report: CompressReport) -> Table:
    table = plain_table()
    add_columns(table, ["matrix", "count", "cut", "rank", "worst error", "size"])
    for role in dict.fromkeys(site.role for site in report.sites):
        same = [site for site in report.sites if site.role == role]
        cut = [site for site in same if site.parameters_after < site.parameters_before]
        share = sum(site.parameters_after for site in same) / sum(site.parameters_before for site in same)
        worst = max(site.relative_error for site in same)
        table.add_row(role, str(len(same)), str(len(cut)), _ranks(same), f"{worst:.4f}", ratio_text(share))
    return table


def _steps(search: LossSearch) -> Table:
    table = plain_table()
    add_columns(table, ["size ratio", search.measure, f"at most {1 + search.max_loss:g}"])
    for step in search.steps:
        table.add_row(ratio_text(step.ratio, 3), f"{step.score:.4f}", "yes" if step.holds else "no")
    return table


def _ranks(sites: list[SiteReport]) -> str:
    ranks = [width for site in sites for width in site.widths or (site.rank,)]
    low, high = min(ranks), max(ranks)
    return f"{statistics.median(ranks):g}" + ("" if low == high else f" ({low}–{high})")
