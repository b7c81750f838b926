"""``rankscope lab tokenizers``: its document, its files, its one-line errors."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROWS = 1000


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    """Write hourly values of two variables."""
    rng = np.random.default_rng(0)
    hours = np.datetime64("2020-01-01") + np.arange(ROWS).astype("timedelta64[h]")
    values = np.sin(2 * np.pi * np.arange(ROWS) / 24)[:, None] + 0.1 * rng.standard_normal((ROWS, 2))
    file = tmp_path / "waves.csv"
    file.write_text(
        "date,a,b\n" + "".join(f"{h},{a!r},{b!r}\n" for h, (a, b) in zip(hours, values.tolist(), strict=True))
    )
    return file


def test_the_document_and_the_files(document: Any, cli: Any, csv: Path, tmp_path: Path) -> None:
    args = ("lab", "tokenizers", "linear-regression,vq", "--data", csv, "--codes", "8", "--updates", "ema", "--quick")
    result = document(*args, "--out", tmp_path / "out")
    assert result["schema"] == "rankscope/lab-tokenizers@1"
    assert result["quick"] is True
    assert result["data"] == "waves, 1000 rows, 2 variables"
    regression, tokens = result["rows"]
    assert regression["reference"] > 0
    assert regression["perplexity"] is None
    assert tokens["setting"] == "8-ema"
    assert set(tokens["eps_ranks"]) == {"0.1", "0.05", "0.01"}
    assert tokens["width"] == 64
    assert json.loads((tmp_path / "out" / "tokenizers.json").read_text()) == result
    assert (tmp_path / "out" / "tokenizers.csv").read_text().count("\n") == 3
    checkpoint = tmp_path / "out" / "vq" / "vq-8-ema-e2-s0"
    spectrum = document("spectrum", checkpoint, "--sites", "embedding")
    assert spectrum["sites"][0]["eps_ranks"] == {key: int(rank) for key, rank in tokens["eps_ranks"].items()}
    embedded = document("embed", checkpoint, "--n", "4", "--length", "64")
    assert {row["matrix"] for row in embedded["rows"]} == {"corpus", "vocabulary"}

    # everything lies in the folder: the same numbers, as a table of 80 columns
    shown = cli(*args, "--out", tmp_path / "out")
    assert shown.exit_code == 0, shown.stderr
    assert "least squares" in shown.stdout
    assert "8-ema" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert "its results are not meaningful" in shown.stderr


def test_wide_numbers_fit_a_terminal() -> None:
    from io import StringIO

    from rich.console import Console

    from rankscope_cli.verbs.lab_tokenizers import show_tokenizers
    from rankscope_lab.tokenizers.study import Row, TokenizerReport

    ranks = {"0.1": 63.7, "0.05": 63.7, "0.01": 63.7}
    numbers = {"error": 0.3542, "error_std": 0.1587, "reference": 0.1, "used": 1017.0, "perplexity": 1016.6}
    coded = {"codes": 1024, "eps_ranks": ranks, "effective_rank": 63.2, "width": 64, "seconds": 9.0}
    plain = {"codes": 0, "eps_ranks": {}, "effective_rank": math.nan, "width": 64, "seconds": 999.0}
    rows = (
        Row("vq", "1024-revived", 30, 20, 2, **numbers, **coded),  # type: ignore[arg-type]
        Row("forecast", "one-shot-512-720", 6, 20, 0, **numbers, **plain),  # type: ignore[arg-type]
    )
    console = Console(width=80, record=True, file=StringIO())
    show_tokenizers(TokenizerReport("ETTh1, 17420 rows, 7 variables", False, rows, ()), console)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    for shown in ("0.3542 ± 0.1587", "1017", "63.7", "20 −2", "seasonal naive"):
        assert shown in text


def test_bad_input(refused: Any, csv: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def line(*args: object, data: Path = csv) -> str:
        return str(refused("lab", "tokenizers", *args, "--data", data, "--out", out))

    assert "does not exist" in line(data=tmp_path / "none.csv")
    assert "has no column 'c'; its variables are a, b" in line("--columns", "a,c")
    assert "did you mean 'forecast'" in line("forcast")
    for bad in ("6x", "²", "-4"):
        assert f"--codes '{bad}' is not a list of integers" in line(f"--codes={bad}")
    assert "leave out --seeds" in line("--quick", "--seeds", "2")
    assert "choose a horizon of at most" in line("forecast", "--horizon", "900")
    gap = tmp_path / "gap.csv"
    lines = csv.read_text().splitlines(keepends=True)
    gap.write_text("".join(lines[:500] + lines[501:]))
    assert "has no value at 2020-01-21 19:00:00" in line(data=gap)
    etth = tmp_path / "ETTh2.csv"
    etth.write_text(csv.read_text())
    assert "has no column 'HUFL', 'HULL'" in line(data=etth)
    assert not out.exists()
