"""Faults at some writes of every verb, connections of none; and the search itself, on a command that does all wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUICK = "compress,calibrate,eval,forecast,forecast-parts,synth,pretrain,report"
"""One verb of every way of writing whose runs take seconds; `make test-faults` tries all verbs."""
COLUMNS = ("losses", "litter", "messages", "connections")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler"),
]


def searched(out: Path, *words: str) -> tuple[int, str, dict[str, dict[str, int]]]:
    """Exit code, output and counts of a search."""
    command = [sys.executable, "-m", "tests.faults", "--out", str(out), "--jobs", "1", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr, json.loads(out.read_text())["counts"] if out.exists() else {}


def test_a_command_that_does_all_wrong_is_found_out(tmp_path: Path) -> None:
    code, said, found = searched(tmp_path / "found.json", "--only", "broken")
    assert code == 1, said
    counts = found["broken"]
    assert (counts["points"], counts["runs"]) == (2, 4)
    assert min(counts["losses"], counts["litter"], counts["connections"]) > 0


def test_no_fault_of_a_sample_loses_anything(tmp_path: Path) -> None:
    code, said, found = searched(tmp_path / "found.json", "--only", QUICK, "--sample", "2")
    assert (code, sum(counts[name] for counts in found.values() for name in COLUMNS)) == (0, 0), said
    assert min(counts["points"] for counts in found.values()) >= 2
