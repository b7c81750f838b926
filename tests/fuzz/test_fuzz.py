"""Everything that once came out wrong comes out right, and the runner finds what it is there to find."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.fuzz.__main__ import main
from tests.fuzz.child import outcome
from tests.fuzz.kinds import ITSELF, KINDS

CORPUS = Path(__file__).parent / "corpus"
ENTRIES = sorted(str(place.relative_to(CORPUS)) for place in CORPUS.glob("*/*"))
PACKAGES = {"fev": ("fev",), "fev-data": ("fev",), "gift": ("datasets",), "kept": ("fev", "datasets")}
"""Packages without which a kind cannot be read."""

VERBS = {"results", "stream", "fev", "fev-data", "gift", "kept", "own"}
"""Kinds that whole verbs read."""


def need_packages(kind: str) -> None:
    for package in PACKAGES.get(kind, ()):
        pytest.importorskip(package)


@pytest.mark.parametrize("entry", ENTRIES)
def test_what_failed_before_does_not(entry: str, tmp_path: Path) -> None:
    need_packages(entry.partition("/")[0])
    shutil.copytree(CORPUS / entry, tmp_path / "input")
    assert outcome(KINDS[entry.partition("/")[0]], tmp_path / "input") == ""


def fuzz(out: Path, *words: str) -> dict[str, dict[str, int]]:
    """Run the runner in this process; inputs are read in processes of their own all the same."""
    command = ["tests.fuzz", "--keep", str(out.parent / "kept"), "--out", str(out), *words]
    with patch.object(sys, "argv", command):
        main()
    found: dict[str, dict[str, dict[str, int]]] = json.loads(out.read_text())["counts"]
    return {name: {**one["wrong"], "tried": one["tried"]} for name, one in found.items()}


@pytest.mark.slow
def test_the_runner_finds_crashes_hangs_memory_and_other_exceptions(tmp_path: Path) -> None:
    common = ("--only", ITSELF, "--patience", "12", "--seconds", "400", "--seed", "21")
    found = fuzz(tmp_path / "whole.json", *common, "--most", "6")[ITSELF]
    assert found.pop("tried") == 6
    words = ("KeyError", "SIGABRT", "hang", "memory")
    assert all(any(word in key for key in found) for word in words)
    assert len(found) == len(words)
    fuzz(tmp_path / "parts.json", *common, "--most", "3")
    again = fuzz(tmp_path / "parts.json", *common, "--most", "6")[ITSELF]
    assert again == {**found, "tried": 6}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in KINDS if name != ITSELF])
def test_some_inputs_of_every_kind(name: str, tmp_path: Path) -> None:
    need_packages(name)
    most = 5 if name in VERBS else 50
    found = fuzz(tmp_path / "counts.json", "--only", name, "--most", str(most), "--seed", "11")
    assert found == {name: {"tried": most}}
