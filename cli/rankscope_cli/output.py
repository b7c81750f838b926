"""Output of a verb: JSON or tables on stdout, and files written atomically."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TextIO, runtime_checkable

from rankscope.errors import OutputError, printable, unknown_choice
from rankscope.io import codec
from rankscope.io.atomic import atomic_file, refuse_existing, refuse_unwritable, sweep
from rankscope_cli.exits import abandon, say

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from rich.console import Console

    from rankscope_eval.suites import Task

_FIGURE_SUFFIXES = (".png", ".svg")
TABLE_SUFFIXES = (".csv", ".parquet", ".json")
_COMMAND: ContextVar[str | None] = ContextVar("command", default=None)
_PIPE_WIDTH = 1000
"""Table width for files and pipes: wide enough to avoid wrapping."""


@contextlib.contextmanager
def recorded(args: Sequence[str] | None) -> Iterator[None]:
    """Record the command line in signed documents written inside this block."""
    token = _COMMAND.set(None if args is None else shlex.join(["rankscope", *args]))
    try:
        yield
    finally:
        _COMMAND.reset(token)


def _as_it_is(document: Mapping[str, Any]) -> Mapping[str, Any]:
    return document


def with_origin(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add ``command`` and ``version`` to a document if a command line is recorded."""
    from rankscope import __version__

    command = _COMMAND.get()
    return document if command is None else {**document, "command": command, "version": __version__}


@runtime_checkable
class Tabular(Protocol):
    """Result that converts to a table."""

    def to_frame(self) -> pd.DataFrame:
        """Convert to a data frame."""
        ...


class Output:
    """Output channel of a verb; while open, anything else printed is redirected to stderr.

    Args:
        as_json: print the report as JSON instead of tables.
        file: output file, or None.
        force: overwrite ``file`` if it exists.
        suffixes: allowed suffixes of ``file``.
        signed: add the command line and version to the document.

    Raises:
        OutputError: ``file`` exists without ``force``, or its suffix is unknown; raised before any work.
    """

    def __init__(
        self,
        as_json: bool,
        file: str | Path | None = None,
        force: bool = False,
        suffixes: Sequence[str] = TABLE_SUFFIXES,
        signed: bool = False,
    ) -> None:
        self.as_json = as_json
        self._sign = with_origin if signed else _as_it_is
        self.file = None if file is None else Path(file)
        self.force = force
        if self.file is not None:
            check_file(self.file, force, suffixes)
        self._stdout: TextIO = sys.stdout
        self._diversion: contextlib.redirect_stdout[TextIO] | None = None

    def __enter__(self) -> Output:
        self._stdout = sys.stdout
        self._diversion = contextlib.redirect_stdout(sys.stderr)
        self._diversion.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._diversion is not None:
            self._diversion.__exit__(kind, error, trace)

    def deliver(
        self,
        report: Any,
        show: Callable[[Console], None],
        whole: Tabular | None = None,
        also: Callable[[], Sequence[Path]] | None = None,
    ) -> None:
        """Write the files, then print JSON or tables, even if a file could not be written.

        Files are written first, since the reader of a pipe may close it early, which is not an error.

        Args:
            report: result record.
            show: callback that prints the tables on a console.
            whole: fuller report for the file, if it differs from stdout's.
            also: callback that writes further files, such as figures, and returns their paths.
        """
        files: list[Path] = []
        try:
            if self.file is not None:
                assert isinstance(report, Tabular), "only tabular results take --out FILE"
                write_report(report if whole is None else whole, self.file, self.force, self._sign)
                files.append(self.file)
            files += also() if also is not None else []
        finally:
            try:
                if self.as_json:
                    self._stdout.write(codec.text(self._sign(codec.plain(report))) + "\n")
                else:
                    show(self.console())
                self._stdout.flush()
            except BrokenPipeError:
                abandon(self._stdout)
            self.wrote(files)

    def console(self) -> Console:
        """Return a console on the real stdout, at the terminal's width or unwrapped if piped; it reads no markup."""
        from rich.console import Console, ConsoleOptions, RenderableType
        from rich.segment import Segment

        class Pipe(Console):
            def on_broken_pipe(self) -> None:
                raise BrokenPipeError

            def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
                """Names from files must not move the cursor or change the title of a terminal."""
                for text, style, control in super().render(renderable, options):
                    yield Segment(text if control else "\n".join(map(printable, text.split("\n"))), style, control)

        width = None if self._stdout.isatty() else _PIPE_WIDTH
        return Pipe(file=self._stdout, width=width, highlight=False, soft_wrap=False, markup=False, emoji=False)

    def wrote(self, files: Sequence[Path]) -> None:
        """Report written files on stderr; ignore a closed stderr."""
        with contextlib.suppress(OSError):
            for file in files:
                print(f"wrote {printable(str(file))}", file=sys.stderr)  # noqa: T201


def check_file(file: Path, force: bool, suffixes: Sequence[str] = TABLE_SUFFIXES) -> None:
    """Raise `OutputError` unless ``file`` is writable and has a known suffix; call before long work."""
    if not file.is_dir() and file.suffix.lower() not in suffixes:
        raise OutputError(unknown_choice("--out format", file.suffix or file.name, suffixes))
    refuse_existing(file, force, file=True)


def refuse_input(out: str | None, input: str | None) -> None:
    """Raise `OutputError` where the output would replace the input, or be read as a part of it."""
    if not out or not input:
        return
    if os.path.exists(out) and os.path.exists(input) and os.path.samefile(out, input):
        raise OutputError(f"--out {out} is the input: give another file.")
    if os.path.isdir(input) and Path(input).resolve() in Path(out).resolve().parents:
        raise OutputError(f"--out {out} is in the folder of the input, {input}: give a place outside.")


def refuse_data(out: str | None, folder: Path | None, tasks: Sequence[Task]) -> None:
    """Raise `OutputError` where the output would replace a suite's file in its folder, or be read as one."""
    if not out or folder is None:
        return
    file = Path(out).resolve()
    named = {(folder / name).resolve() for task in tasks for name in task.file}
    if file in named or (file.parent == folder.resolve() and file.stem in {task.name for task in tasks}):
        raise OutputError(f"--out {out} would be read as data of the suite: give another name, or another folder.")


def write_report(
    report: Tabular,
    file: Path,
    force: bool = False,
    sign: Callable[[Mapping[str, Any]], Mapping[str, Any]] = _as_it_is,
) -> None:
    """Write a report in the format of the suffix: the signed document for .json, else the table."""
    with atomic_file(file, force=force) as path:
        if file.suffix.lower() == ".json":
            path.write_text(codec.text(sign(codec.plain(report))) + "\n", encoding="utf-8")
        elif file.suffix.lower() == ".csv" and hasattr(report, "to_csv"):  # a report with its own published layout
            path.write_text(report.to_csv(), encoding="utf-8")
        else:
            write_frame(report.to_frame(), path, file.suffix.lower())


def write_tables(report: Tabular, folder: str | Path, stem: str) -> list[Path]:
    """Write a report to the run folder as JSON and CSV; return the paths."""
    files = [Path(folder) / f"{stem}{suffix}" for suffix in (".json", ".csv")]
    for file in files:
        write_report(report, file, force=True)
    return files


def write_frame(frame: pd.DataFrame, path: Path, suffix: str) -> None:
    """Write a table as CSV, Parquet or Arrow; encode list cells of a CSV as JSON."""
    if suffix == ".parquet":
        frame.to_parquet(path, index=False)
        return
    if suffix == ".arrow":
        frame.to_feather(path)
        return
    flat = frame.copy()
    for name in flat.columns:
        if flat[name].dtype == object:
            flat[name] = [_cell(value) for value in flat[name]]
    flat.to_csv(path, index=False)


def _cell(value: Any) -> Any:
    return codec.text(value) if isinstance(value, (list, tuple, dict)) or hasattr(value, "tolist") else value


def check_figures(folder: str | None, stems: Iterable[str], force: bool) -> None:
    """Raise `OutputError` unless figures ``stems`` can be written to ``folder``; call before long work."""
    if folder is None:
        return
    place = Path(folder)
    if place.exists() and not place.is_dir():
        raise OutputError(f"--figures {place} is a file; give a folder.")
    refuse_unwritable(place / "figure.png")
    for stem in stems:
        for suffix in _FIGURE_SUFFIXES:
            file = place / f"{stem}{suffix}"
            if file.exists() and not force:
                raise OutputError(f"--figures: {file} exists already; choose another folder or pass --force.")


def drawing(folder: str | None, draw: Callable[[], Mapping[str, Figure]]) -> Callable[[], list[Path]] | None:
    """Return a callback that draws and saves the figures, or None without a folder."""
    return None if folder is None else lambda: save_figures(folder, draw())


def save_figures(folder: str | Path, drawn: Mapping[str, Figure]) -> list[Path]:
    """Save every figure atomically as PNG and SVG in ``folder``; return the paths."""
    from rankscope.plots import save_figure

    if not drawn:
        say("warning: of these options there is nothing to draw: no figure was written.")
        return []
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    sweep(place)
    return [file for stem, figure in drawn.items() for file in save_figure(figure, place / stem)]
