"""Files of a figure: all of them, or none."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from rankscope.errors import OutputError
from rankscope.plots import figure, styled
from rankscope_paper.figures import FIGURES, Drawn, Settings, refuse_existing_files, write_drawn


@pytest.fixture
def drawn() -> Drawn:
    with styled():
        fig, (ax,) = figure()
        ax.plot([0, 1], [0, 1])
    return Drawn(fig, pd.DataFrame({"x": [1, 2], "y": [1 / 3, 2 / 3]}), "What was measured: " + "words " * 40)


def test_four_files(drawn: Drawn, tmp_path: Path) -> None:
    files = write_drawn(FIGURES["4a"], drawn, tmp_path / "new")
    assert [file.name for file in files] == ["fig4a.csv", "fig4a.png", "fig4a.svg", "fig4a.txt"]
    assert sorted(file.name for file in (tmp_path / "new").iterdir()) == [file.name for file in files]
    csv, png, _, txt = files
    assert csv.read_text().splitlines() == ["x,y", "1,0.333333", "2,0.666667"]
    # one column of 3.35 in at 300 dots per inch: width in the PNG's header
    assert int.from_bytes(png.read_bytes()[16:20], "big") == 1005
    lines = txt.read_text().splitlines()
    assert lines[0].startswith("Fig. 4a. Rank of W_Q against the width, Chronos. What was measured: words")
    assert max(map(len, lines)) <= 100
    # the same figure gives the same bytes
    again = write_drawn(FIGURES["4a"], drawn, tmp_path / "again")
    assert [file.read_bytes() for file in again] == [file.read_bytes() for file in files]


def test_nothing_is_replaced_without_force(drawn: Drawn, tmp_path: Path) -> None:
    (tmp_path / "fig4a.txt").write_text("mine")
    for attempt in (
        lambda: refuse_existing_files(FIGURES["4a"], Settings(), tmp_path, force=False),
        lambda: write_drawn(FIGURES["4a"], drawn, tmp_path),
    ):
        with pytest.raises(OutputError, match=r"fig4a\.txt exists already"):
            attempt()
    assert [file.name for file in tmp_path.iterdir()] == ["fig4a.txt"]
    write_drawn(FIGURES["4a"], drawn, tmp_path, force=True)
    assert (tmp_path / "fig4a.txt").read_text() != "mine"


@pytest.mark.parametrize(
    ("number", "file"),
    [
        ("14", "fig14.parquet"),
        ("16", "fig16_angles.csv"),
        ("table2", "table2_bundled-bolt.png"),
        ("start-end", "start-end_chronos-t5.txt"),
    ],
)
def test_files_of_all_figures_of_a_recipe_are_looked_for(number: str, file: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text("mine")
    with pytest.raises(OutputError, match=f"{file} exists already"):
        refuse_existing_files(FIGURES[number], Settings(), tmp_path, force=False)


def test_what_a_kill_left_is_removed(drawn: Drawn, tmp_path: Path) -> None:
    left = tmp_path / ".fig4a.csv.ab12cd34.partial"
    left.mkdir()
    (left / "fig4a.csv").write_text("half")
    write_drawn(FIGURES["4a"], drawn, tmp_path)
    assert not left.exists()


def test_a_failure_on_the_way_leaves_nothing(drawn: Drawn, tmp_path: Path, monkeypatch) -> None:
    def full(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_csv", full)
    with pytest.raises(OutputError, match="No space left on device"):
        write_drawn(FIGURES["4a"], drawn, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text("")
    with pytest.raises(OutputError, match="is a file: name a folder"):
        refuse_existing_files(FIGURES["4a"], Settings(), file, force=True)
