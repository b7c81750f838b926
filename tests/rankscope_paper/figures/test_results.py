"""Fig. 6, 9 to 11, Table 2: saved results are drawn as they are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rankscope.errors import DataError
from rankscope.io import codec
from rankscope_paper.experiments import run_f3
from rankscope_paper.experiments.f3 import F3Size
from rankscope_paper.figures import CARRIED, FIGURES, Settings, draw


def test_the_frontier_is_what_was_measured() -> None:
    (drawn,) = draw(FIGURES["6"], Settings())
    saved = json.loads((CARRIED / "by_design.json").read_text())
    ours = drawn.frame[(drawn.frame["kind"] == "designed") & (drawn.frame["name"] != "64")]
    trained = [row for row in saved["rows"] if row["how"] == "trained" and row["paper"] and row["seed"] == 0]
    assert ours["WQL"].tolist() == [row["WQL"] for row in trained]
    assert ours["time"].tolist() == [row["time"]["32"]["median"] for row in trained]
    beside = drawn.frame[drawn.frame["kind"] == "attention compressed"]
    assert beside["name"].tolist() == ours["name"].tolist() == ["3", "5", "7"]
    paper = drawn.frame[drawn.frame["kind"] == "paper"].set_index("name")
    # Table 3 of the paper, trained from scratch, in-domain
    assert paper.loc["3", ["time", "WQL", "MASE"]].tolist() == [0.346, 1.034, 0.988]
    assert paper.loc["7", ["time", "WQL", "MASE"]].tolist() == [0.494, 1.021, 0.949]
    assert "unhealed; grey: the paper's Table 3" in drawn.caption  # attention compressed is hollow, too
    peers = json.loads((CARRIED / "peers.json").read_text())["rows"]
    models = drawn.frame[drawn.frame["panel"] == "models"]
    assert sorted(models["MASE"]) == sorted(row["MASE"] for row in peers)
    np.testing.assert_allclose(sorted(models["time"]), sorted(row["milliseconds_per_series"] / 1000 for row in peers))
    assert set(models["kind"]) == {"Chronos-Bolt", "Chronos-T5", "local"}
    assert set(models[models["kind"] == "local"]["name"]) >= {"seasonal-naive", "auto-ets"}


def test_the_tables_of_both_models(tmp_path: Path) -> None:
    both = draw(FIGURES["table2"], Settings())
    assert [one.name for one in both] == ["bundled", "bundled-bolt"]
    (bolt,) = draw(FIGURES["table2"], Settings(models=("bundled-bolt",)))
    saved = json.loads((CARRIED / "table2_bundled-bolt.json").read_text())
    for ratio in (0.25, 0.15):
        best = min(row["relative_WQL"] for row in saved["judgements"] if row["ratio"] == ratio)  # as it is drawn
        assert f"{best:.3f} at {ratio:.2f}" in bolt.caption
    assert "points are set aside" in bolt.caption
    assert bolt.frame["ratio"].tolist() == [row["ratio"] for row in saved["rows"]]
    (tmp_path / "table2.json").write_text(json.dumps({**saved, "schema": "rankscope/table2@0"}))
    with pytest.raises(DataError, match="is rankscope/table2@0: this release reads rankscope/table2@1"):
        draw(FIGURES["table2"], Settings(data=tmp_path))
    with pytest.raises(DataError, match="saved table of 'bundled-blot' is not known: did you mean 'bundled-bolt'"):
        draw(FIGURES["table2"], Settings(models=("bundled-blot",)))


def test_an_experiment_is_drawn_from_its_saved_result(tmp_path: Path) -> None:
    size = F3Size(d_model=16, tokens=48, heads=(1, 4), smallest=1e-6, eps=(1e-2,), seeds=2)
    result = run_f3(seed=3, size=size)
    (tmp_path / "f3.json").write_text(json.dumps(codec.plain(result)))
    (drawn,) = draw(FIGURES["11"], Settings(data=tmp_path))
    means = result.rank_out.mean(axis=0)[:, 0]
    assert f"ε = 0.01: {result.rank_in[0]} in X, {means[0]:.4g} at h = 1, {means[1]:.4g} at h = 4" in drawn.caption
    assert "seed 3, read from the saved result." in drawn.caption
    assert len(drawn.frame) == len(result.to_frame())
    with pytest.raises(DataError, match="holds no experiment f1"):
        draw(FIGURES["9"], Settings(data=tmp_path / "f3.json"))
    report = tmp_path / "theory.json"  # as `rankscope theory f3 --out theory.json` writes it
    report.write_text(json.dumps({"schema": "rankscope/theory@1", "checks": [], "experiments": [codec.plain(result)]}))
    assert draw(FIGURES["11"], Settings(data=report))[0].frame.equals(drawn.frame)
    with pytest.raises(DataError, match=r"theory\.json holds no experiment f1: run `rankscope theory f1"):
        draw(FIGURES["9"], Settings(data=report))
    (tmp_path / "f3.json").write_text(json.dumps({**codec.plain(result), "schema": "rankscope/experiment@0"}))
    with pytest.raises(DataError, match="this release reads rankscope/experiment@1"):
        draw(FIGURES["11"], Settings(data=tmp_path))


def test_quick_computes_the_reduced_size() -> None:
    (drawn,) = draw(FIGURES["11"], Settings(quick=True, seed=2))
    assert "reduced size, seed 2." in drawn.caption
    assert "never falls" in drawn.caption
