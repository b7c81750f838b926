"""What ``rankscope calibrate`` prints: what was seen of every stack, and how to use it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from rankscope_cli.tables import add_columns, figures, plain_table, print_table, where

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope.compress.calibration import CalibrationReport


_STACKS = {"memory": "decoder", "input_patch_embedding": "encoder"}
"""Stack of the matrices that read a stream, where it is not the stream's."""


def show_calibration(report: CalibrationReport, console: Console) -> None:
    """Print one line per stack, and the command that uses the file."""
    title = f"{report.model} on {report.corpus}: {report.series:,} series, decoder {report.decoder}"
    table = plain_table(title=title)
    add_columns(table, ["stack", "matrices", "positions", "per series", "width", "least eff. rank", "where"])
    for stack in dict.fromkeys(stream.stack for stream in report.streams):
        same = [stream for stream in report.streams if stream.stack == stack]
        least = min(same, key=lambda stream: stream.effective_rank)
        tokens = min(stream.tokens for stream in same)
        table.add_row(
            stack,
            str(sum(len(stream.matrices) for stream in same)),
            f"{tokens:,}",
            figures(tokens / report.series),
            str(max(stream.width for stream in same)),
            figures(least.effective_rank),
            f"{where(_STACKS.get(least.stack, least.stack), least.layer)} {least.role}",
        )
    print_table(table, console)
    console.print()
    console.print("Use it:", markup=False)
    console.print(
        f"  rankscope compress {shlex.quote(report.model)} --method joint --ratio 0.15 --calibration "
        f"{shlex.quote(report.out)} --out small/",
        markup=False,
    )
