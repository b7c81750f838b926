"""The verb ``bench``: its document, its table, its figures, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rankscope_cli.verbs.bench import show_bench
from rankscope_eval.bench.report import BenchRatio, BenchReport, BenchRow, Failure
from rankscope_eval.bench.turns import Spread

NUMBER = (int, float)
SPREAD = {"median", "min", "max"}
FEW = ("--horizon", "2", "--context", "16", "--rounds", "2", "--num-samples", "2", "--threads", "1")


@pytest.mark.slow
def test_the_document(cli: Any, bolt_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "bench.csv"
    models = (f"{bolt_folder}:fast:bfloat16", "seasonal-naive")
    words = ("--baseline", f"{bolt_folder}:stock", "--batch", "2", *FEW)
    result = cli("bench", *models, *words, "--json", "--out", out)
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert document["schema"] == "rankscope/bench@1"
    assert document["machine"]["threads"] == 1
    for row in document["rows"]:
        for key in ("model", "runtime", "device", "dtype"):
            assert isinstance(row[key], str)
        for key in ("batch", "num_samples", "horizon", "context", "peak_bytes", "weight_bytes"):
            assert isinstance(row[key], int)
        assert row["seconds"].keys() == SPREAD
        assert row["model"] == "seasonal-naive" or isinstance(row["roofline_seconds"], float)
        assert row["model"] == "seasonal-naive" or row["cache_bytes"] == 0
    assert [row["runtime"] for row in document["rows"]] == ["stock", "fast", "local"]
    assert [one["seconds"].keys() for one in document["ratios"]] == [SPREAD] * 3
    assert out.read_text().splitlines()[0].startswith("label,model,runtime,device,dtype,batch")


def test_when_nothing_could_be_run_one_line_says_why(cli: Any, bolt_folder: Path) -> None:
    result = cli("bench", f"{bolt_folder}:stock", "--batch", "1", *FEW, "--timeout", "1")
    assert result.exit_code == 2
    (line,) = [one for one in result.stderr.splitlines() if one.startswith("error: ")]
    assert "no response to load within 1 s" in line
    assert "internal error" not in result.stderr


def row(label: str, seconds: float, **more: Any) -> BenchRow:
    model, runtime, dtype = label.split(":")
    settings = {"device": "cpu", "batch": 8, "num_samples": 20, "horizon": 64, "context": 512, "threads": 2}
    spread = Spread(seconds, 0.97 * seconds, 1.03 * seconds)
    sizes = {
        "tokens_per_second": 8 * 20 * 64 / seconds,
        "peak_bytes": 345_000_000,
        "loaded_bytes": 1,
        "weight_bytes": 1,
    }
    return BenchRow(
        label, model, runtime, dtype=dtype, **settings, seconds=spread, turns=(seconds,), repeats=1, **sizes, **more
    )  # type: ignore[arg-type]


@pytest.fixture
def report() -> BenchReport:
    rows = (
        row("bundled:stock:float32", 12.345),
        row("some/rather-long-name-of-a-folder/small:compile:bfloat16", 0.98765, achieved=0.4321, roofline_seconds=0.4),
        row("naive:local:float64", 0.0012),
    )
    ratios = tuple(BenchRatio(one.label, rows[0].label, 8, Spread(0.08, 0.07, 0.09), 1.25) for one in rows)
    failures = (Failure("bundled:fast", 8, "bundled:fast: no response to load within 900 s."),)
    return BenchReport({"device": "cpu"}, rows[0].label, 9, 0, rows, ratios, (), failures)


def test_the_table_fits_a_terminal(report: BenchReport, capsys: pytest.CaptureFixture[str]) -> None:
    show_bench(report, Console(width=80, highlight=False))
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines) <= 80
    text = "\n".join(lines)
    for part in (
        "12.3s (12.0–12.7)",
        "988 (958–1,017)",
        "1.20 (1.16–1.24)",
        "0.08",
        "345",
        "1.25",
        "43%",
        "fp32",
        "bf16",
        "compile",
    ):
        assert part in text
    assert "no response to load" in text


def test_failures_exit_with_one(cli: Any, report: BenchReport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankscope_eval.bench.run_bench", lambda *_, **__: report)
    assert cli("bench", "bundled").exit_code == 1


def test_figures_show_scores_against_time(
    cli: Any, report: BenchReport, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("rankscope_eval.bench.run_bench", lambda *_, **__: report)
    lines = ["dataset,model,MASE,WQL", "a,bundled,2,0.4", "b,bundled,8,0.1", "a,naive,3,0.4", "b,naive,3,0.1"]
    (tmp_path / "scores.csv").write_text("\n".join([*lines, "a,seasonal-naive,1,0.2", "b,seasonal-naive,1,0.2"]))
    figures = tmp_path / "figures"
    result = cli("bench", "bundled", "--batch", "8", "--scores", tmp_path / "scores.csv", "--figures", figures)
    assert sorted(path.name for path in figures.iterdir()) == ["pareto_batch_8.png", "pareto_batch_8.svg"]
    svg = (figures / "pareto_batch_8.svg").read_text()
    assert all(part in svg for part in (">bundled<", ">naive<", "WQL / seasonal-naive", "time of a forecast"))
    assert "small" not in svg  # it was not scored
    assert "wrote" in result.stderr


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            "a,small,2,0.4\na,naive,3,0.4\n",
            "no model is both timed and scored: timed are bundled, scored small, naive",
        ),
        ("a,bundled,nan,nan\na,seasonal-naive,nan,nan\n", "the models that are timed have no finite scores"),
    ],
)
def test_scores_that_nothing_can_be_drawn_of_are_refused_before_anything_is_timed(
    rows: str, message: str, refused: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("rankscope_eval.bench.run_bench", None)
    (tmp_path / "scores.csv").write_text(f"dataset,model,MASE,WQL\n{rows}")
    assert message in refused(
        "bench", "bundled", "--scores", tmp_path / "scores.csv", "--figures", tmp_path / "figures"
    )


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_scores_are_read_in_every_form_that_eval_writes(form: str, cli: Cli, tmp_path: Path) -> None:
    from rankscope_eval.bench.report import read_scores

    file = tmp_path / f"scores.{form}"
    cli("eval", "naive", "--baseline", "seasonal-naive", "--tasks", "nile,co2", "--out", file)
    baseline, scores = read_scores(file)
    assert baseline == "seasonal-naive"
    assert scores["seasonal-naive"] == (1.0, 1.0)
    assert scores["naive"][0] > 0


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_scores_are_over_the_baseline_of_the_evaluation(form: str, cli: Cli, tmp_path: Path) -> None:
    from rankscope_eval.bench.report import read_scores

    file = tmp_path / f"scores.{form}"
    cli("eval", "seasonal-naive", "--baseline", "naive", "--tasks", "nile,co2", "--out", file)
    baseline, scores = read_scores(file)
    assert (baseline, scores["naive"]) == ("naive", (1.0, 1.0))
    cli("eval", "naive", "seasonal-naive", "--baseline", "naive", "--tasks", "nile", "--out", file, "--force")
    assert read_scores(file)[0] == "naive"  # wherever it stands among the models


def test_points_are_geometric_means_and_seconds_of_one_series(report: BenchReport, tmp_path: Path) -> None:
    from rankscope_eval.bench.report import read_scores, scored_points

    lines = ["dataset,model,MASE,WQL", "a,bundled,2,0.4", "b,bundled,8,0.1"]
    (tmp_path / "s.csv").write_text("\n".join([*lines, "a,seasonal-naive,1,0.2", "b,seasonal-naive,1,0.2"]))
    (point,) = scored_points(report, read_scores(tmp_path / "s.csv")[1], 8)
    assert (pytest.approx(4.0), pytest.approx(1.0)) == (point.MASE, point.WQL)
    assert (point.name, point.seconds, point.reference) == ("bundled", 12.345 / 8, False)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("bundled", "--batch", "0"), "--batch '0' is not a list of integers"),
        (("bundled", "--batch", "1,x"), "--batch '1,x' is not a list of integers"),
        (("bundled", "--batch", ""), "--batch is empty: give a value"),
        (("bundled:fats",), "did you mean 'fast'"),
        (("nowhere/",), "nowhere"),
        (("bundled", "--scores", "x.csv"), "must be given together"),
        (("bundled", "--scores", "x.csv", "--figures", "f"), "no such file"),
        (("bundled", "--rounds", "0"), "--rounds"),
        (("bundled", "--out", "x.txt"), "--out format"),
    ],
)
def test_bad_input_is_one_line(
    refused: Callable[..., str], words: tuple[str, ...], part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert part in refused("bench", *words)


def test_models_that_cannot_forecast_are_refused(refused: Callable[..., str], t5_folder: Path) -> None:
    assert "cannot forecast with" in refused("bench", t5_folder)


def test_a_model_that_a_child_refuses_is_bad_input(refused: Callable[..., str], bolt_folder: Path) -> None:
    (bolt_folder / "model.safetensors").write_bytes(b"damaged" * 100)
    assert "model.safetensors" in refused("bench", bolt_folder, *FEW)


BAD_SCORES = {
    "empty.csv": (b"", "is not a table of scores"),
    "bytes.csv": (b"\xff\xfe\x00,\x01\n", "is not a table of scores"),
    "text.csv": (b"dataset,model,MASE,WQL\na,b,x,1\n", "column MASE must hold numbers"),
    "header.csv": (b"dataset,model,MASE,WQL\n", "no row"),
    "cut.parquet": (b"PAR1", "is not a table of scores"),
    "cut.json": (b'{"rows": [', "is not a table of scores"),
    "deep.json": (b"[" * 3000, "is not a table of scores"),
    "list.json": (b"[1]", "is not a table of scores"),
    "rows.json": (b'{"rows": 5}', "is not a table of scores"),
    "none.json": (b"{}", "is not a table of scores"),
    "text.json": (b'{"rows": [{"dataset": "a", "model": "b", "MASE": [1], "WQL": 1}]}', "must hold numbers"),
    "column.json": (b'{"rows": [{"dataset": "a", "model": "b", "MASE": 1}]}', "has no column WQL"),
    "base.json": (
        b'{"baseline": ["c"], "rows": [{"dataset": "a", "model": "b", "MASE": 1, "WQL": 1}]}',
        "has no scores of its baseline",
    ),
}


@pytest.mark.parametrize("name", BAD_SCORES)
def test_damaged_scores_are_refused_before_anything_is_timed(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setattr("rankscope_eval.bench.run_bench", lambda *_, **__: pytest.fail("timed"))
    content, part = BAD_SCORES[name]
    (tmp_path / name).write_bytes(content)
    line = refused("bench", "bundled", "--scores", tmp_path / name, "--figures", tmp_path / "figures")
    assert part in line
    assert name in line


def test_scores_with_a_column_twice(refused: Callable[..., str], tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    columns = [pyarrow.array(one) for one in (["a"], ["b"], [1.0], [1.0], [2.0])]
    file = tmp_path / "twice.parquet"
    pyarrow.parquet.write_table(
        pyarrow.Table.from_arrays(columns, names=["dataset", "model", "MASE", "WQL", "WQL"]), file
    )
    line = refused("bench", "bundled", "--scores", file, "--figures", tmp_path / "figures")
    assert str(file) in line
