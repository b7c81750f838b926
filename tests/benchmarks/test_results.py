"""Committed results of benchmarks open, say where they come from, and name scripts that are there."""

from __future__ import annotations

import ast
import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from rankscope_lab.encoders.run_spec import RunResult as EncoderResult
from rankscope_lab.slt.run_spec import RunResult as SltResult

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
RUNS = {"encoders": EncoderResult, "slt": SltResult}
BY_VERBS = {"by-design-sweep"}
"""Documents of `rankscope`, which have a schema in the place of an origin."""
SUMMARIES = sorted(
    file for file in RESULTS.rglob("*.json") if file.parent.name not in RUNS and file.stem not in BY_VERBS
)


def refused(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


@pytest.mark.parametrize("file", SUMMARIES, ids=lambda file: file.stem)
def test_a_result_says_where_it_comes_from(file: Path) -> None:
    found = json.loads(file.read_text(encoding="utf-8"), parse_constant=refused)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found["date"])
    assert re.fullmatch(r"[0-9a-f]{7,40}(\+changes)?", found["commit"])
    assert found["machine"]
    commands = found["commands"] if "commands" in found else [found["command"]]
    for word in " ".join(map(str, commands)).split():
        assert not word.startswith("benchmarks/") or not word.endswith(".py") or (ROOT / word).is_file(), word


def test_no_result_names_a_folder_of_the_machine_that_it_was_measured_on() -> None:
    tables = (ROOT / "figures/rankscope_paper/figures/data").glob("*.json")
    for file in (*RESULTS.rglob("*.json"), *tables):
        found = re.findall(r'[" =](/(?:home|root|work|Users|mnt|opt)/[^" ]*)', file.read_text(encoding="utf-8"))
        assert not found, (file, found[:3])


@pytest.mark.parametrize("file", sorted((ROOT / "benchmarks" / "gpu").glob("*.py")), ids=lambda file: file.stem)
def test_what_a_script_for_gpus_imports_of_rankscope_is_there(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rankscope"):
            module = importlib.import_module(str(node.module))
            for name in (one.name for one in node.names):
                assert hasattr(module, name) or importlib.import_module(f"{node.module}.{name}"), name
