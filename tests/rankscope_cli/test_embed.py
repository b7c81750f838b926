"""``rankscope embed`` over models that read series, text and images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankscope.checkpoints import list_bundled, open_checkpoint


@pytest.fixture
def text_folder(tmp_path: Path, write_checkpoint: Callable[..., Path], tiny_config: Callable[..., Any]) -> Path:
    return write_checkpoint(tmp_path / "text", tiny_config("t5", vocab_size=300))


@pytest.fixture
def book(tmp_path: Path) -> Path:
    file = tmp_path / "book.txt"
    file.write_text("It was the best of times, it was the worst of times. " * 9)
    return file


def test_one_command_for_series_and_text(
    document: Callable[..., Any], bolt_folder: Path, text_folder: Path, book: Path, tmp_path: Path
) -> None:
    table = tmp_path / "ranks.csv"
    found = document(
        "embed", bolt_folder, text_folder, "--signal", "mixed", "--n", 4, "--length", 24, "--text", book, "--out", table
    )
    assert found["schema"] == "rankscope/embed@1"
    assert [(row["modality"], row["matrix"], row["source"]) for row in found["rows"]] == [
        ("series", "corpus", "mixed: 4 series of 24"),
        ("text", "corpus", "book.txt: 4 texts of 24 tokens (bytes)"),
        ("text", "vocabulary", ""),
    ]
    for row in found["rows"]:
        share = row["eps_ranks"]["0.1"] / min(row["tokens"], row["d_model"])
        assert row["relative_eps_ranks"]["0.1"] == share
    assert table.read_text().splitlines()[0].startswith("model,family,modality")


def test_every_bundled_model_in_one_command(cli: Callable[..., Any]) -> None:
    """Every family that has a proxy model; every line of the table fits 100 columns."""
    names = list_bundled()
    result = cli("embed", *names, "--signal", "mixed", "--n", 2, "--length", 96, "--n-images", 2)
    assert result.exit_code == 0, result.stderr
    assert all(len(line) <= 100 for line in result.stdout.splitlines() if not line.startswith("Other corpora"))
    assert all(name in result.stdout for name in names)
    assert {"time-moe", "wavetoken", "totem"} <= {open_checkpoint(name).family.name for name in names}


def test_series_that_show_no_token_are_too_short(refused: Callable[..., str]) -> None:
    line = refused("embed", "bundled-informer", "--length", "36", "--n", "4")
    assert line == "error: bundled-informer: no series shows it a whole token: give longer ones (--length).\n"


def test_who_reads_what_is_said(
    refused: Callable[..., str], bolt_folder: Path, text_folder: Path, book: Path, tmp_path: Path
) -> None:
    assert "none of these models reads text: " in refused("embed", bolt_folder, "--text", book)
    assert "none of these models reads images: " in refused("embed", bolt_folder, "--images", "cifar10")
    for folder in (bolt_folder, text_folder):
        assert "--n-images requires an image model" in refused("embed", folder, "--n-images", 5)
    for more in ((), ("--text", book)):
        assert "--signal requires a model of series." in refused("embed", text_folder, "--signal", "noise", *more)
    assert "--length requires --text FILE, or a model of series." in refused("embed", text_folder, "--length", 64)
    assert "did you mean 'mixed'" in refused("embed", bolt_folder, "--signal", "mixd")
    assert "cannot be read: No such file" in refused("embed", text_folder, "--text", tmp_path / "no.txt")
    assert "does not exist" in refused("embed", bolt_folder, "--signal", tmp_path / "no.csv")
