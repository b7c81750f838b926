"""``rankscope figures``: its list, its document, its files, its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import rankscope_paper.figures

Cli = Callable[..., Any]
Refused = Callable[..., str]
CARRIED = Path(rankscope_paper.figures.__file__).parent / "data"


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


def test_the_seed_is_that_of_what_is_drawn(document: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    drawn = document("figures", "9", "13", "15", "--seed", "3", "--out", tmp_path)
    saved = json.loads((CARRIED / "f1.json").read_text())
    assert [one["seed"] for one in drawn["figures"]] == [saved["seed"], None, 3]


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
        (("5a", "--seed", "0"), "--seed does not apply to figure 5a, which takes --model"),
        (("9", "--seed", "5"), "--seed does not change the saved result that figure 9 is drawn from: add --rerun"),
        (
            ("9", "--rerun", "--data", "x"),
            "--rerun does not change the saved result that figure 9 is drawn from: leave",
        ),
        (("2a", "--quick", "--data", "x"), "--quick does not change the saved result that figure 2a is drawn from"),
        (("--list", "--model", "nosuch", "--data", "nosuch", "--quick"), "--model requires a figure to draw: its"),
        (("--model", "nosuch"), "--model requires a figure to draw"),
        (("--list", "--rerun"), "--rerun requires a figure to draw"),
        ((), "--out requires a figure to draw"),
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


def write_f(number: int, change: dict[str, Any] | None) -> Callable[[Path], None]:
    def write(file: Path) -> None:
        whole = json.loads((CARRIED / f"f{number}.json").read_text())
        file.write_text(json.dumps(whole)[:500] if change is None else json.dumps(whole | change))

    return write


def write_table(name: str, change: Callable[[pd.DataFrame], pd.DataFrame]) -> Callable[[Path], None]:
    return lambda file: change(pd.read_parquet(CARRIED / name)).to_parquet(file)


def write_bytes(content: bytes) -> Callable[[Path], None]:
    return lambda file: file.write_bytes(content) and None


ANGLES, SPECTRA = "head_angles.parquet", "spectra.parquet"
DAMAGED: dict[str, tuple[str, str, Callable[[Path], None]]] = {
    "9 truncated": ("9", "f1.json", write_f(1, None)),
    "9 without readings": ("9", "f1.json", write_f(1, {"readings": []})),
    "9 another type": ("9", "f1.json", write_f(1, {"readings": 5})),
    "9 experiments that are no list": ("9", "f1.json", write_bytes(b'{"experiments": 5}')),
    "10 a list": ("10", "f2.json", write_bytes(b"[1]")),
    "10 other sizes": ("10", "f2.json", write_f(2, {"d_model": 5})),
    "11 no schema": ("11", "f3.json", write_f(3, {"schema": 5})),
    "13 truncated": ("13", SPECTRA, write_bytes(b"PAR1")),
    "13 no column": ("13", SPECTRA, write_table(SPECTRA, lambda frame: frame.drop(columns="sigma"))),
    "13 text": ("13", SPECTRA, write_table(SPECTRA, lambda frame: frame.assign(sigma="x"))),
    "13 no steps": ("13", SPECTRA, write_table(SPECTRA, lambda frame: frame.assign(step=None))),
    "14 truncated": ("14", ANGLES, write_bytes(b"PAR1")),
    "14 no column": ("14", ANGLES, write_table(ANGLES, lambda frame: frame.drop(columns="heads"))),
    "14 no heads": ("14", ANGLES, write_table(ANGLES, lambda frame: frame.assign(heads=None))),
    "14 rows that are not there": ("14", ANGLES, write_table(ANGLES, lambda frame: frame.iloc[::3])),
    "14 text": ("14", ANGLES, write_table(ANGLES, lambda frame: frame.assign(row="x"))),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_data(refused: Refused, tmp_path: Path, damage: str) -> None:
    number, name, write = DAMAGED[damage]
    write(tmp_path / name)
    assert name in refused("figures", number, "--data", tmp_path / name, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()
