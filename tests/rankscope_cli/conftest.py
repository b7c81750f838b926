"""The command line in process, and what its errors have to look like."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


@pytest.fixture(scope="session")
def cli() -> Cli:
    """``cli("spectrum", folder, "--json")``: the result of running the command line in this process."""
    from typer.testing import CliRunner

    from rankscope_cli.app import app

    def run(*args: object) -> Any:
        return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="rankscope")

    return run


@pytest.fixture(scope="session")
def document(cli: Cli) -> Callable[..., dict[str, Any]]:
    """``document("spectrum", folder)``: the one JSON document that a verb prints with ``--json``."""

    def run(*args: object) -> dict[str, Any]:
        result = cli(*args, "--json")
        assert result.exit_code == 0, result.stderr
        assert result.stdout.count("\n") == 1
        return json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))

    return run


@pytest.fixture(scope="session")
def refused(cli: Cli) -> Callable[..., str]:
    """``refused("spectrum", "nowhere")``: the one line with which a verb refuses bad input, exit code 2."""

    def run(*args: object) -> str:
        result = cli(*args)
        assert result.exit_code == 2, result.output
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1, result.stderr
        assert "Traceback" not in result.stderr
        return result.stderr

    return run


@pytest.fixture
def monthly_csv(tmp_path: Path) -> Path:
    """Two short monthly series in the wide layout."""
    rows = [f"{2020 + month // 12}-{month % 12 + 1:02d}-01,{month % 5 + 1},{10 - month % 3}" for month in range(24)]
    file = tmp_path / "monthly.csv"
    file.write_text("date,a,b\n" + "\n".join(rows) + "\n")
    return file


@pytest.fixture
def forecaster_folder(tmp_path: Path, write_checkpoint: Callable[..., Path], tiny_config: Callable[..., Any]) -> Path:
    """Write a random Chronos-T5 that can generate: transformers' cache wants a decoder as deep as the encoder."""
    return write_checkpoint(tmp_path / "forecaster", tiny_config("chronos-t5", num_decoder_layers=2))
