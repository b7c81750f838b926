import math
from pathlib import Path

import pytest

from rankscope.errors import DataError, OptionError
from rankscope.io import codec
from rankscope.plots.style import COLUMN
from rankscope_lab.ranks.compress import CurvePoint
from rankscope_lab.ranks.runs import RankedRun
from rankscope_lab.ranks.study import RankRow, RankStudy, curve_rows
from rankscope_paper.figures import FIGURES, Settings, draw
from rankscope_paper.figures.lab_ranks import lab_ranks


def row(study: str, setting: str, variant: str, what: str, layer: int | None, rank: float, seeds: int = 3) -> RankRow:
    return RankRow(study, setting, variant, what, "blocks", layer, "", seeds, 64, rank, 0.5, None, {"0.1": 2 * rank})


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    rows = [row("encoders", "large", name, "input", i, 4.0 + i) for name in ("linear-ppe", "linear") for i in range(3)]
    rows += [row("encoders", "large", name, "output", 2, 9.0) for name in ("linear-ppe", "linear")]
    rows += [
        row("encoders", "large", "linear", "between", 0, 99.0),
        row("encoders", "small", "linear", "input", 0, 1.0, 1),
    ]
    rows += [
        row("tokenizers", "VQ", size, what, None, float(size) / 8)
        for size in ("1024", "64")
        for what in ("codebook", "stream")
    ]
    curves = curve_rows(
        [
            (
                RankedRun("encoders", "large", "linear", seed, 2.0, None),
                CurvePoint("attention", method, 0.5, 0.49, 7, 2.0 + seed, 2.0),
            )
            for seed in range(2)
            for method in ("whitened", "svd")
        ]
    )
    study = RankStudy(("0.1",), {"encoders": 6, "tokenizers": 4}, 1, 0, tuple(rows), curves, ())
    file = tmp_path / "lab_ranks.json"
    file.write_text(codec.text(study))
    return file


def test_the_numbers_drawn_are_those_of_the_study(saved: Path) -> None:
    (drawn,) = draw(FIGURES["lab-ranks"], Settings(data=saved))
    frame = drawn.frame.set_index(["panel", "line"]).sort_index(kind="stable")
    linear = frame.loc[("encoders", "linear")]
    assert linear["x"].tolist() == [0, 1, 2, 3]
    assert linear["mean"].tolist() == [4.0, 5.0, 6.0, 9.0]
    assert set(linear["std"]) == {0.5}
    book = frame.loc[("codebooks", "codebook, ε = 0.1")]
    assert (book["x"].tolist(), book["mean"].tolist()) == ([64, 1024], [16.0, 256.0])
    assert book["std"].isna().all()  # the study records no deviation of ε-ranks
    drawn.figure.draw_without_rendering()
    cut = drawn.frame[drawn.frame["panel"] == "cuts"]
    assert cut["line"].tolist() == ["attention, whitened"]  # the plain SVD is in the study, not in the figure
    assert (cut["x"].item(), cut["mean"].item()) == (0.49, 1.25)
    assert cut["std"].item() == pytest.approx(math.sqrt(0.125), rel=1e-5)
    # no forecaster was studied: three panels, and the caption names the larger setting
    titles = [ax.get_title(loc="left") for ax in drawn.figure.axes]
    assert [title[:3] for title in titles] == ["(a)", "(b)", "(c)"]
    assert titles[0] == "(a)  input encoders: generated series (large)"
    assert titles[1] == "(b)  codebooks: VQ"
    assert "encoders: large; tokenizers: VQ" in drawn.caption
    assert "6 runs of encoders, 4 runs of tokenizers (1 diverged)" in drawn.caption


def test_lines_are_told_apart_without_colour(saved: Path) -> None:
    (drawn,) = draw(FIGURES["lab-ranks"], Settings(data=saved))
    for ax in drawn.figure.axes:
        looks = [(line.get_marker(), line.get_linestyle()) for line in ax.lines if line.get_marker() in "os^DvP"]
        assert len(looks) == len(set(looks)) > 0
    assert drawn.figure.get_size_inches()[0] == COLUMN


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    (tmp_path / "lab_ranks.json").write_text('{"schema": "other"}')
    with pytest.raises(DataError, match="is other: this release reads rankscope/lab-ranks@1"):
        draw(FIGURES["lab-ranks"], Settings(data=tmp_path))
    with pytest.raises(OptionError, match="nothing can be drawn"):
        lab_ranks({})
    with pytest.raises(OptionError, match="could not be told apart"):
        lab_ranks({"layers": {str(i): ([0.0], [1.0], [0.0]) for i in range(7)}})
