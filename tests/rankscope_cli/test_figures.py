"""``rankscope figures``: its list, its document, its files, its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]
Refused = Callable[..., str]


def test_the_list(cli: Cli, document: Callable[..., dict[str, Any]]) -> None:
    listed = document("figures")
    assert listed["schema"] == "rankscope/figures@1"
    assert [one["id"] for one in listed["figures"]][:4] == ["1", "2a", "2b", "2c"]
    for one in listed["figures"]:
        assert one["ready"] == (not one["missing"])
    shown = cli("figures", "--list")
    assert shown.exit_code == 0
    assert "15         Chebyshev embeddings in two dimensions" in shown.stdout
    table = shown.stdout.split("rankscope figures ID")[0].splitlines()
    assert max(len(line.rstrip()) for line in table) <= 80
    missing = [one for one in listed["figures"] if not one["ready"]]
    assert [line for line in shown.stdout.splitlines() if ": " in line and " with --" in line] == [
        f"{one['id']}: {one['missing']}" for one in missing
    ]


def test_one_figure(document: Callable[..., dict[str, Any]], bolt_folder: Path, tmp_path: Path) -> None:
    drawn = document("figures", "5a", "--model", bolt_folder, "--out", tmp_path / "out")
    assert drawn["schema"] == "rankscope/figures@1"
    (one,) = drawn["figures"]
    assert [Path(file).name for file in one["files"]] == ["fig5a.csv", "fig5a.png", "fig5a.svg", "fig5a.txt"]
    assert all(Path(file).is_file() for file in one["files"])
    assert one["caption"].startswith("Fig. 5a. Rank of the attention matrices by layer")
    assert str(bolt_folder) in one["caption"]
    assert drawn["failed"] == []


def test_the_caption_is_printed(cli: Cli, tmp_path: Path) -> None:
    result = cli("figures", "13", "--out", tmp_path)
    assert result.exit_code == 0
    assert result.stdout.startswith("Fig. 13. Singular values of W_Q during training.")
    assert result.stderr.count("wrote") == 4
    again = cli("figures", "13", "--out", tmp_path)
    assert again.exit_code == 2
    assert "exists already: choose another folder, or pass --force" in again.stderr
    assert cli("figures", "13", "--out", tmp_path, "--force").exit_code == 0


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (("table3",), "figure 'table3' is not known: did you mean 'table2'? Choose from 1, 2a"),
        (("4c", "--model", "bundled"), "--model does not apply to figure 4c, which takes --data"),
        (("4a", "4c", "--data", "x"), "--data applies to a single figure; give one figure number"),
        (("4a", "--data", "nowhere"), "there is no file or folder nowhere: name a saved result"),
        (("5a", "--all"), "--all draws every figure; leave out the numbers"),
        (("5a", "--list"), "--list takes no figure numbers"),
        (("5a", "--model", "bundeld"), "no model 'bundeld': did you mean 'bundled'"),
        (("15", "--device", "gpu"), "device 'gpu' is not known: did you mean 'cpu'?"),
        (("15", "--rerun"), "--rerun does not apply to figure 15, which takes --seed"),
    ],
)
def test_bad_input(refused: Refused, args: tuple[str, ...], part: str, tmp_path: Path) -> None:
    assert part in refused("figures", *args, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_absent_data_and_empty_folders(refused: Refused, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("rankscope_paper.figures.recipe.CARRIED", tmp_path)
    line = refused("figures", "4a", "--out", tmp_path / "out")
    assert "there is no saved width.json: make it with `rankscope sweep width --out DIR`, and name it" in line
    assert "holds no sweep.json" in refused("figures", "4a", "--data", tmp_path, "--out", tmp_path / "out")
    (tmp_path / "sweep.json").write_text('{"schema": "rankscope/sweep@7"}')
    line = refused("figures", "3a", "--data", tmp_path, "--out", tmp_path / "out")
    assert "is rankscope/sweep@7: this release reads rankscope/sweep@1" in line


def test_all_goes_on_past_what_is_missing(cli: Cli, tmp_path: Path, monkeypatch) -> None:
    from rankscope_paper.figures import FIGURES

    monkeypatch.setattr("rankscope_paper.figures.recipe.CARRIED", tmp_path)
    monkeypatch.setattr("rankscope_paper.figures.FIGURES", {name: FIGURES[name] for name in ("4a", "2b")})
    result = cli("figures", "--all", "--quick", "--out", tmp_path / "out", "--json")
    assert result.exit_code == 2
    drawn = json.loads(result.stdout)
    assert [one["id"] for one in drawn["figures"]] == ["2b"]
    assert len(drawn["failed"]) == 1
    assert result.stderr.splitlines()[-1] == drawn["failed"][0]
    assert drawn["failed"][0].startswith("figure 4a failed: there is no saved width.json")
