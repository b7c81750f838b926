"""The verb ``heal``: its document, its refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

QUICK = ("--steps", "2", "--batch-size", "2", "--device", "cpu")


@pytest.fixture
def small(cli: Any, bolt_folder: Path) -> Path:
    """Write a compressed Chronos-Bolt."""
    folder = bolt_folder.parent / "small"
    assert cli("compress", bolt_folder, "--attention-ratio", "0.4", "--out", folder).exit_code == 0
    return folder


def test_the_document_is_the_file(document: Any, small: Path, bolt_folder: Path) -> None:
    result = document("heal", small, "--teacher", bolt_folder, *QUICK, "--learning-rate", "1e-4", "--seed", "3")
    healed = small.with_name("small-healed")
    assert json.loads((healed / "heal.json").read_text()) == result
    assert result["schema"] == "rankscope/heal@1"
    assert (result["model"], result["teacher"], result["out"]) == (str(small), str(bolt_folder), str(healed.resolve()))
    assert (result["family"], result["loss"], result["steps"]) == ("chronos-bolt", "quantile-l1", 2)
    options = result["options"]
    assert (options["learning_rate"], options["seed"], options["steps"], options["minutes"]) == (1e-4, 3, 2, None)
    for name in ("seconds", "first_loss", "last_loss"):
        assert isinstance(result[name], float)
    assert result["trained_parameters"] == result["parameters"]
    assert set(result["fingerprints"]) == {"student", "teacher"}
    assert (result["changes"], result["earlier"]) == ([], [])


def test_it_says_how_to_verify(cli: Any, small: Path, bolt_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "well"
    result = cli("heal", small, "--teacher", bolt_folder, *QUICK, "--train", "compressed", "--out", out)
    assert result.exit_code == 0, result.stderr
    assert f"rankscope eval {out} --baseline {bolt_folder}" in result.stdout


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--minutes", "1", "--steps", "2"), "minutes or steps"),
        (("--minutes", "soon"), "--minutes"),
        (("--minutes", "0"), "minutes is 0"),
        (("--steps", "0"), "--steps"),
        (("--learning-rate", "-1"), "learning_rate is -1"),
        (("--truth", "2"), "--truth"),
        (("--device", "tpu"), "'tpu'"),
        (("--input", "absent.csv"), "absent.csv"),
        (("--out", "."), "working folder"),
    ],
)
def test_bad_options_are_one_line_and_write_nothing(
    refused: Any, small: Path, bolt_folder: Path, options: tuple[str, ...], part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small.parent)
    before = sorted(small.parent.rglob("*"))
    assert part in refused("heal", small, "--teacher", bolt_folder, *options)
    assert sorted(small.parent.rglob("*")) == before


def test_bad_models_are_one_line_and_write_nothing(
    refused: Any, small: Path, bolt_folder: Path, chronos_t5_folder: Path, t5_folder: Path
) -> None:
    before = sorted(small.parent.rglob("*"))
    assert "Chronos-T5" in refused("heal", small, "--teacher", chronos_t5_folder)
    assert "absent" in refused("heal", small, "--teacher", small.parent / "absent")
    assert "absent" in refused("heal", small.parent / "absent", "--teacher", bolt_folder)
    assert "can be healed" in refused("heal", t5_folder, "--teacher", bolt_folder)
    assert "its own teacher" in refused("heal", small, "--teacher", f"{small}/")
    assert "its own teacher" in refused("heal", "bundled", "--teacher", "bundled")
    assert "exists already" in refused("heal", small, "--teacher", bolt_folder, "--out", chronos_t5_folder)
    assert "--teacher" in refused("heal", small)
    assert sorted(small.parent.rglob("*")) == before


def test_the_help_states_the_defaults(cli: Any) -> None:
    from rankscope.compress.heal import HealConfig

    text = " ".join(cli("heal", "--help").stdout.replace("│", " ").split())
    assert f"(default: {HealConfig().truth:g})" in text
    assert f"(default: {HealConfig().learning_rate:.0e})".replace("e-0", "e-") in text
