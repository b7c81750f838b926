"""``rankscope report``: build a self-contained HTML report."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rankscope.errors import DataError
from rankscope_cli import options as opt
from rankscope_cli.exits import say
from rankscope_cli.output import Output, check_file
from rankscope_eval.numbers import plural

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope_eval.page.build import Page

NAME = "report.html"


def run(
    folder: Annotated[str, opt.argument("DIR", "Folder of results, searched recursively.")],
    *,
    title: Annotated[str | None, opt.value("--title", "TEXT", "Title of the page.")] = None,
    date: Annotated[
        datetime | None,
        opt.value("--date", "YYYY-MM-DD", "Date to show on the page (default: none).", formats=["%Y-%m-%d"]),
    ] = None,
    out: Annotated[
        str | None, opt.value("--out", "FILE", "Output file (default: DIR/report.html).", opt.OUTPUT, "-o")
    ] = None,
    force: opt.Force = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Build a self-contained HTML report from results.

    DIR may contain any mix of JSON results (spectrum, flow, embed, calibrate, compress, heal, design, eval, bench,
    table2, sweep, theory), CSV files from eval, and checkpoints. The page embeds its charts, styles and scripts, so it
    works offline and prints; the same results give the same bytes. Unusable files are listed at the end.

    Examples:
        rankscope spectrum bundled-bolt --sites all --out results/spectrum.json
        rankscope compress bundled-bolt --ratio 0.3 --out results/narrow
        rankscope eval results/narrow --baseline bundled-bolt --out results/eval.json
        rankscope report results/ --out report.html
        rankscope report results/ --title 'Bolt, narrowed' --json
    """
    from rankscope_eval.page.build import build_page

    if Path(folder).is_file():
        raise DataError(f"{folder} is a file: name the folder that holds your results.")
    target = Path(folder) / NAME if out is None else Path(out)
    check_file(target, force, (".html", ".htm"))
    with Output(json) as output:
        page = build_page(folder, title=title, date=None if date is None else date.date().isoformat())
        page.write(target, force=force)
        output.deliver(page, lambda console: show_page(page, console))
        output.wrote([target])
    for one in page.unused:
        if one.damaged:
            say(f"warning: {one.path} is not used: {one.reason}")


def show_page(page: Page, console: Console) -> None:
    """Print the summary and the number of files used."""
    for line in page.summary:
        console.print(line)
    used, left = len(page.used) + len(page.checkpoints), len(page.unused)
    console.print(f"{plural(used, 'result')} on the page, {plural(left, 'file')} not used.")
