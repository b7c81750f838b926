"""Stdout, stderr and files."""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from rankscope import __version__
from rankscope.errors import OutputError
from rankscope_cli.options import numbers, words
from rankscope_cli.output import Output, write_frame
from rankscope_cli.tables import plain_table, print_table, width


def test_only_the_result_reaches_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    with Output(as_json=True) as output:
        print("chatter of a library")  # noqa: T201
        output.deliver({"x": 1}, lambda console: None)
        print("more of it")  # noqa: T201
    seen = capsys.readouterr()
    assert seen.out == '{"x": 1}\n'
    assert seen.err == "chatter of a library\nmore of it\n"


@dataclass
class Small:
    """A report that is a table, too."""

    x: int = 1

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame({"x": [1]})


def test_what_was_measured_is_printed_also_where_its_file_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OutputError, match="No space left"), Output(True, tmp_path / "a.csv") as output:
        output.deliver(Small(), lambda console: None)
    assert json.loads(capsys.readouterr().out) == {"x": 1}


def test_figures_are_there_when_the_reader_of_the_table_has_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def closed(console: Any) -> None:
        raise BrokenPipeError

    def draw() -> list[Path]:
        (tmp_path / "figure.png").touch()
        return [tmp_path / "figure.png"]

    with Output(False, tmp_path / "a.csv") as output:
        output.deliver(Small(), closed, also=draw)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "figure.png"]
    assert capsys.readouterr().err.count("wrote ") == 2


@pytest.mark.usefixtures("capsys")
def test_a_failed_write_is_told_when_the_reader_of_the_table_has_gone(tmp_path: Path) -> None:
    def closed(console: Any) -> None:
        raise BrokenPipeError

    def draw() -> list[Path]:
        raise OutputError("cannot write")

    with pytest.raises(OutputError, match="cannot write"), Output(False) as output:
        output.deliver(Small(), closed, also=draw)


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that even root cannot write to")
def test_places_that_cannot_be_written_are_refused_before_any_work(refused: Any) -> None:
    for place in (("--out", "/proc/x/a.csv"), ("--figures", "/proc/x")):
        assert "cannot write beside /proc/x" in refused("spectrum", "no/such-model", *place)


def test_what_was_written_is_no_error_when_the_reader_of_stderr_has_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Gone())
    with Output(True, tmp_path / "a.csv") as output:
        output.deliver(Small(), lambda console: None)
    assert json.loads(capsys.readouterr().out) == {"x": 1}
    assert (tmp_path / "a.csv").is_file()


def test_stdout_is_given_back_after_an_error() -> None:
    before = sys.stdout
    with pytest.raises(RuntimeError), Output(as_json=True):
        raise RuntimeError
    assert sys.stdout is before


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_tables_keep_lists_and_gaps(tmp_path: Path, suffix: str) -> None:
    frame = pd.DataFrame({"layer": pd.array([0, None], dtype="Int64"), "ranks": [[1, 2], [3]]})
    file = tmp_path / f"t{suffix}"
    write_frame(frame, file, suffix)
    if suffix == ".csv":
        assert file.read_text() == 'layer,ranks\n0,"[1, 2]"\n,[3]\n'
    else:
        back = pd.read_parquet(file)
        assert [list(cell) for cell in back["ranks"]] == [[1, 2], [3]]


@pytest.mark.parametrize(("suffix", "read"), [(".csv", pd.read_csv), (".parquet", pd.read_parquet)])
def test_spectrum_as_a_table(cli: Any, chronos_t5_folder: Path, tmp_path: Path, suffix: str, read: Any) -> None:
    assert cli("spectrum", chronos_t5_folder, "--eps", "0.1", "--out", tmp_path / f"s{suffix}").exit_code == 0
    frame = read(tmp_path / f"s{suffix}")
    assert len(frame) == 2 * 4 + 3 * 8
    assert {"stack", "layer", "role", "eps_rank@0.1", "size_ratio@0.1"} <= set(frame.columns)


def test_eval_csv_has_the_published_columns(cli: Any, tmp_path: Path) -> None:
    assert cli("eval", "naive", "--tasks", "nile", "--out", tmp_path / "scores.csv").exit_code == 0
    header, *rows = (tmp_path / "scores.csv").read_text().splitlines()
    assert header.startswith("dataset,model,MASE,WQL,SQL,WAPE,MSIS,coverage,benchmark,")
    assert [row.split(",")[:2] for row in rows] == [["nile", "naive"], ["nile", "seasonal-naive"]]


def test_piped_tables_are_whole(cli: Any, chronos_t5_folder: Path) -> None:
    text = cli("spectrum", chronos_t5_folder).stdout
    assert "\x1b" not in text
    assert "…" not in text
    assert text.count("cross.q") == 3 + 1
    assert "size ratio" in text


@pytest.mark.parametrize("verb", ["spectrum", "flow", "embed"])
def test_tables_fit_80_columns(cli: Any, chronos_t5_folder: Path, monkeypatch: Any, verb: str) -> None:
    from rich.console import Console

    monkeypatch.setattr(Output, "console", lambda self: Console(file=self._stdout, width=80, no_color=True))
    few = () if verb == "spectrum" else ("--n", "2", "--length", "16")
    text = cli(verb, chronos_t5_folder, *few).stdout
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert "…" not in text


def test_names_from_files_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    table = plain_table(title="a\x1b]0;title\x07")
    table.add_column("name\x1b[2J")
    table.add_row("series\x1b[31m")

    def show(console: Console) -> None:
        print_table(table, console)
        console.print("b\x1b[2K")

    with Output(as_json=False) as output:
        output.deliver({}, show)
        output.wrote([Path("c\x1b[1A.csv")])
    printed = capsys.readouterr()
    assert not {"\x1b", "\x07"} & {*printed.out, *printed.err}
    assert all(name in printed.out for name in ("title", "name", "series"))


def test_names_with_brackets_and_colons_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["[/bold]", "[red]name", "an:x:", "[dim]", "a:x:b"]

    def show(console: Console) -> None:
        table = plain_table(title=names[0], caption=names[3])
        table.add_column(names[1])
        table.add_row(names[2])
        assert width(table, console) == len(names[1])
        print_table(table, console)
        console.print(names[4])

    with Output(as_json=False) as output:
        output.deliver({}, show)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if "─" not in line] == names


def test_a_narrow_console_loses_no_digit() -> None:
    from rich.console import Console

    from rankscope_cli.tables import add_columns

    table = plain_table()
    add_columns(table, ["name", "number"])
    table.add_row("a", "1234567890")
    screen = io.StringIO()
    print_table(table, Console(file=screen, width=8))
    assert "1234567890" in screen.getvalue()


@pytest.mark.slow
def test_figures_appear_together(cli: Any, chronos_t5_folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "figures"
    assert cli("flow", chronos_t5_folder, "--n", 2, "--length", 16, "--figures", place).exit_code == 0
    names = sorted(path.name for path in place.iterdir())
    assert names == ["flow_decoder.png", "flow_decoder.svg", "flow_encoder.png", "flow_encoder.svg"]
    again = cli("flow", chronos_t5_folder, "--n", 2, "--length", 16, "--figures", place)
    assert again.exit_code == 2
    assert "--force" in again.stderr


def test_list_options() -> None:
    assert words(["q, k", "v,"]) == ("q", "k", "v")
    assert numbers("eps", None, (0.5,)) == (0.5,)
    assert numbers("eps", ["0.1", "1e-2,0.1"], ()) == (0.1, 0.01)


def test_a_result_names_the_command_that_made_it(cli: Any, chronos_t5_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "two words.json"
    result = cli("spectrum", chronos_t5_folder, "--out", file, "--json")
    assert result.exit_code == 0
    words = ["rankscope", "spectrum", str(chronos_t5_folder), "--out", str(file), "--json"]
    for document in (json.loads(result.stdout), json.loads(file.read_text())):
        assert shlex.split(document["command"]) == words
        assert document["version"] == __version__


def test_the_input_is_not_overwritten(refused: Any, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("date,y\n2024-01-01,1\n2024-01-02,2\n")
    held = file.read_text()
    for verb in ("forecast", "eval"):
        assert f"--out {file} is the input" in refused(
            verb, "naive", "--input", file, "--horizon", 1, "--out", file, "--force"
        )
    assert file.read_text() == held


def test_no_output_goes_into_the_folder_of_the_input_or_over_the_working_folder(refused: Any, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "x.csv").write_text("date,y\n2024-01-01,1\n2024-01-02,2\n")
    for out in (f"{data}/parts/", f"{data}/y.csv"):
        assert "is in the folder of the input" in refused("forecast", "naive", "-i", data, "--horizon", 1, "--out", out)
    assert [file.name for file in data.iterdir()] == ["x.csv"]
    assert "--out . is the working folder" in refused("eval", "naive", "--tasks", "nile", "--out", ".")


def test_a_report_of_a_file_says_what_to_name(refused: Any, tmp_path: Path) -> None:
    (tmp_path / "e.json").write_text("{}")
    assert "e.json is a file: name the folder that holds your results" in refused("report", tmp_path / "e.json")


def test_a_revision_without_weights_is_refused(refused: Any) -> None:
    assert "--revision has no effect: naive has no weights" in refused(
        "eval", "naive", "--baseline", "bundled-bolt", "--revision", "main"
    )


def test_it_is_said_once_that_a_local_model_cannot_be_fitted(cli: Any, tmp_path: Path) -> None:
    rows = [{"item_id": str(at), "target": one, "freq": "D"} for at, one in enumerate(([2] * 9, [*range(9)], [3] * 9))]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for more in ((), ("--out", tmp_path / "parts", "--chunk", 1)):
        found = cli("forecast", "auto-theta", "--input", tmp_path / "x.jsonl", "--horizon", 2, *more)
        assert found.exit_code == 0
        said = (
            "warning: auto-theta cannot be fitted to some of the series: their forecasts are those of seasonal-naive.\n"
        )
        assert found.stderr.count(said) == 1
