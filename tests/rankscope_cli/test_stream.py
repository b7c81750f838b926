"""``rankscope forecast --out DIR``: killed from outside and resumed, and what its messages say."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

SERIES = 400


@pytest.fixture
def series(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    target = [one.tolist() for one in rng.normal(size=(SERIES, 20))]
    frame = pd.DataFrame({"item_id": [f"s{n}" for n in range(SERIES)], "start": "2020", "freq": "D", "target": target})
    frame.to_parquet(tmp_path / "series.parquet")
    return tmp_path / "series.parquet"


def content(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.iterdir() if path.name != ".lock"}


@pytest.mark.slow
def test_sigkill_and_resume_give_the_same_bytes(tmp_path: Path, series: Path, cli: Any, bolt_folder: Path) -> None:
    words = ["forecast", str(bolt_folder), "--input", str(series), "--horizon", "4", "--chunk", "4"]
    whole, out = tmp_path / "whole", tmp_path / "out"
    assert cli(*words, "--out", whole, "--json").exit_code == 0
    command = [sys.executable, "-m", "rankscope_cli", *words, "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while len(list(out.glob("part-*"))) < 3 and process.poll() is None:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    kept = len(list(out.glob("part-*")))
    assert kept < SERIES / 4
    result = cli(*words, "--out", out, "--resume", "--json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["schema"] == "rankscope/forecast-stream@1"
    assert (report["series"], report["parts"]) == (SERIES, 100)
    assert report["parts_kept"] in (kept, kept - 1)
    assert content(out) == content(whole)


def test_what_was_left_out_and_what_is_nan_is_said(tmp_path: Path, cli: Any) -> None:
    rows = [{"item_id": f"s{n}", "start": "2020", "freq": "D", "target": [1.0, 2.0]} for n in range(30)]
    rows[3]["target"] = [None, None]
    texts = [json.dumps(row) for row in rows]
    texts[7] = "{"
    (tmp_path / "x.jsonl").write_text("\n".join(texts))
    words = ("forecast", "naive", "--input", tmp_path / "x.jsonl", "--horizon", 2, "--out", tmp_path / "out")
    stopped = cli(*words, "--chunk", 5)
    assert stopped.exit_code == 2
    assert "x.jsonl: line 8 has no JSON" in stopped.stderr.splitlines()[-1]
    result = cli(*words, "--chunk", 5, "--on-error", "skip", "--resume")
    assert result.exit_code == 0
    assert "29 series in 6 parts (1 from before), 1 row skipped; " in result.stdout
    assert "series/s" in result.stdout
    assert "skipped: " in result.stderr
    assert "line 8 has no JSON" in result.stderr
    assert "warning: 1 series without values in the context: forecasts are NaN." in result.stderr
    assert f"wrote 5 parts in {tmp_path / 'out'}" in result.stderr


@pytest.mark.parametrize("flag", [("--resume",), ("--chunk", 4), ("--layout", "lists"), ("--on-error", "skip")])
def test_options_of_the_stream_need_a_folder(tmp_path: Path, series: Path, refused: Any, flag: tuple) -> None:
    for out in ((), ("--out", tmp_path / "x.csv")):
        text = refused("forecast", "naive", "--input", series, "--horizon", 2, *out, *flag)
        assert f"{flag[0]} requires --out DIR" in text


@pytest.mark.parametrize("out", ["file", "folder"])
def test_options_of_a_cluster_need_one(tmp_path: Path, series: Path, refused: Any, out: str) -> None:
    words = ("forecast", "naive", "--input", series, "--horizon", 2)
    where = ("--out", tmp_path / "out") if out == "folder" else ()
    assert "--jobs requires --engine ray" in refused(*words, *where, "--jobs", 2)
    assert "it needs engine ray" in refused(*words, *where, "--address", "auto")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--horizon", "2", "--context", "0"), "--context"),
        (("--horizon", "2", "--num-samples", "0"), "--num-samples"),
    ],
)
def test_bad_options(tmp_path: Path, series: Path, refused: Any, words: tuple[str, ...], part: str) -> None:
    assert part in refused("forecast", "naive", "--input", series, *words, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_one_file_may_be_arrow(tmp_path: Path, series: Path, cli: Any) -> None:
    assert cli("forecast", "naive", "--input", series, "--horizon", 2, "--out", tmp_path / "x.arrow").exit_code == 0
    assert len(pd.read_feather(tmp_path / "x.arrow")) == 2 * SERIES


def test_ids_that_spreadsheets_take_for_formulas_are_quoted_on_request(tmp_path: Path, cli: Any) -> None:
    ids = ["=1+1", "+x", "-x", "@x", "x=1"]
    rows = [{"item_id": one, "start": "2020", "freq": "D", "target": [1.0, 2.0]} for one in ids]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = ("forecast", "naive", "--input", tmp_path / "x.jsonl", "--horizon", 1)
    safe = ["'=1+1", "'+x", "'-x", "'@x", "x=1"]
    file, parts = tmp_path / "made.csv", tmp_path / "parts"
    for where in ((), ("--out", file), ("--out", parts, "--format", "csv")):
        assert cli(*words, *where, "--csv-safe").exit_code == 0
    made = cli(*words, "--csv-safe").stdout
    assert [line.partition(",")[0] for line in made.splitlines()[1:]] == safe
    assert pd.read_csv(file)["item_id"].tolist() == safe
    assert pd.read_csv(parts / "part-000000.csv")["item_id"].tolist() == safe
    assert [line.partition(",")[0] for line in cli(*words).stdout.splitlines()[1:]] == ids
    for where in (("--json",), ("--out", tmp_path / "x.parquet"), ("--out", tmp_path / "more")):
        refused = cli(*words, *where, "--csv-safe")
        assert (refused.exit_code, "csv-safe is about CSV" in refused.stderr) == (2, True)


def test_the_stream_is_whole_when_the_reader_of_its_lines_has_gone(
    tmp_path: Path, series: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of ``2>&1 | head -1``: every line on stderr fails."""
    from rankscope_cli.app import run

    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Gone())
    out = tmp_path / "out"
    words = ("forecast", "naive", "--input", series, "--horizon", 2, "--out", out, "--chunk", 200)
    assert run([str(word) for word in words]) == 0
    assert len(list(out.glob("part-*"))) == 2
