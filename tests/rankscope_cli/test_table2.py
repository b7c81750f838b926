"""``rankscope table2``: its document, its table, its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rankscope.measure.tradeoff import (
    FAILED,
    OUT_OF_REACH,
    Judgement,
    Measures,
    Original,
    Table2Point,
    Table2Report,
    Verdict,
)

HEAD = "method verdict WQL 95 % MASE 95 % worst set"


@pytest.fixture
def quick(monthly_csv: Path, tmp_path: Path) -> tuple[object, ...]:
    """Options of a table that takes seconds."""
    suite = tmp_path / "one.yaml"
    suite.write_text("- {name: s, prediction_length: 4, offset: -4, file: [monthly.csv]}\n")
    return ("--suite", suite, "--overlap-series", 4, "-c", "mixture:4", "--seeds", "0,1", "--device", "cpu")


def test_one_document_and_on_with_it(
    cli: Any, document: Callable[..., dict[str, Any]], bolt_folder: Path, tmp_path: Path, quick: tuple[object, ...]
) -> None:
    out = tmp_path / "out"
    first = document("table2", bolt_folder, "-r", "0.6", "-m", "svd,joint", "--out", out, *quick)
    assert first["schema"] == "rankscope/table2@1"
    assert json.loads((out / "table2.json").read_text()) == first
    svd, joint = first["rows"]
    assert (svd["seeds"], joint["seeds"], joint["state"]) == ([], [0, 1], "done")
    assert set(joint["relative_WQL"]) == {"median", "min", "max"}
    assert [one["method"] for one in first["judgements"]] == ["svd", "joint"]
    assert first["judgements"][1]["WQL_verdict"]["margin"] == 0.02
    assert joint["quantile_distance"]["min"] > 0
    again = cli("table2", bolt_folder, "-r", "0.6,0.01", "-m", "svd", "--out", out, *quick, "--resume")
    assert again.exit_code == 0
    lines = again.stdout.splitlines()
    assert lines[1].split() == HEAD.split()
    assert sum(line.strip() == "ratio 0.6" for line in lines) == 1
    assert lines[-1].startswith("svd at 0.01: attention-ratio 0.01 is out of reach")
    wrote = again.stderr.replace("\n", "")
    assert all(f"table2.{ending}" in wrote for ending in ("csv", "json", "md", "png", "svg"))


def a_table() -> Table2Report:
    wide = Measures(0.0749, 12.346, 12.346, quantile_distance=0.123, time_ratio=1.23)
    points = [Table2Point(f"{seed}", 0.075, "joint+healed", "uniform-ratio", seed, measures=wide) for seed in range(2)]
    points[1] = Table2Point("1", 0.075, "joint+healed", "uniform-ratio", 1, measures=Measures(0.07, 23.456))
    lost = Table2Point("x", 0.05, "svd", "uniform-eps", None, FAILED, "forecasts are NaN.")
    far = Table2Point("y", 0.01, "svd", "default", None, OUT_OF_REACH, "ratio 0.01 is out of reach: " + "x" * 80)
    return Table2Report("bundled", "chronos-t5", {}, Original(1, 4, 0), (*points, lost, far))


def test_the_table_fits_a_terminal() -> None:
    import io

    from rich.console import Console

    from rankscope_cli.verbs.table2 import show_table2

    stream = io.StringIO()
    show_table2(a_table(), Console(file=stream, width=80, highlight=False))
    rows = stream.getvalue().splitlines()
    table = rows[: next(i for i, row in enumerate(rows) if row.startswith("svd at"))]
    assert max(map(len, table)) <= 80
    assert any("17.90 (12.35–23.46)" in row for row in table)


def test_verdicts_take_the_place_of_ranges_over_calibrations() -> None:
    import io

    from rich.console import Console

    from rankscope_cli.verbs.table2 import show_table2

    held, worse = Verdict("held", 0.02, (0.99, 1.01), "nn5", 1.04), Verdict("worse", 0.02, (1.1, 1.3), "ETTh", 1.456)
    judged = Judgement(0.075, "joint+healed", "uniform-ratio", None, 1.001, 1.2, (0.985, 1.012), None, held, worse)
    stream = io.StringIO()
    show_table2(replace(a_table(), judgements=(judged,)), Console(file=stream, width=80, highlight=False))
    assert "better, worse: the 95 % interval is beyond 1" in stream.getvalue()
    rows = [line.split() for line in stream.getvalue().splitlines()]
    assert rows[1] == HEAD.split()
    assert ["joint+healed", "worse", "1.001", "0.98–1.01", "1.200", "–", "1.46", "ETTh"] in rows
    assert ["svd", "failed"] in rows


def test_a_failed_point_is_named_and_the_exit_code_is_one(cli: Any, bolt_folder: Path, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("rankscope_eval.tradeoff.run_table2", lambda *args, **options: a_table())
    result = cli("table2", bolt_folder, "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == "failed: x: forecasts are NaN."


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (("-m", "join"), "did you mean 'joint'"),
        (("-m", "joint+stream"), "'joint+stream' cuts more than attention"),
        (("-m", ","), "methods is empty"),
        (("--allocations", "enrgy"), "did you mean 'energy'"),
        (("-r", "0.5,2"), "ratio must lie in (0, 1]"),
        (("-r", "half"), "--ratios 'half' is not a list of numbers"),
        (("--seeds", "0.5"), "--seeds '0.5' is not a list of integers"),
        (("--seeds", "-1"), "--seeds '-1' is not a list of integers"),
        (("--resume", "--force"), "mutually exclusive"),
        (("--text", "book.txt"), "is a time-series model"),
        (("--suite", "embeded"), "did you mean 'embedded'"),
        (("--data", "nowhere"), "data folder nowhere"),
        (("-c", "nowhere.csv"), "nowhere.csv"),
        (("--overlap-series", "0"), "--overlap-series"),
        (("--heal-steps", "9"), "--heal-steps requires a +healed method in --methods"),
        (("-m", "svd,joint", "--heal-steps", "9"), "--heal-steps requires a +healed method in --methods"),
    ],
)
def test_bad_input_is_one_line(
    refused: Any, bolt_folder: Path, tmp_path: Path, args: tuple[str, ...], part: str
) -> None:
    assert part in refused("table2", bolt_folder, "--out", tmp_path / "out", *args)
    assert not (tmp_path / "out").exists()


def test_a_text_model_needs_a_text(refused: Any, t5_folder: Path, tmp_path: Path) -> None:
    assert "--text FILE" in refused("table2", t5_folder, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()
