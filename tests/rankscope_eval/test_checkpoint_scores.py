"""Scores of a checkpoint as a few numbers: those of the evaluation, from any process."""

import math
import pickle
from pathlib import Path

import pytest

from rankscope.errors import DataError, RankscopeError
from rankscope_eval import evaluate
from rankscope_eval.checkpoint_scores import checkpoint_scorer

SUITE = """
- {name: short, prediction_length: 4, offset: -4, file: [a.csv]}
- {name: other, prediction_length: 2, offset: -2, file: [b.csv]}
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """Two tasks of two monthly series each, and their suite."""
    for name, season in (("a", 4), ("b", 6)):
        rows = [
            f"{2015 + month // 12}-{month % 12 + 1:02d}-01,{month % season + 1},{month % 7 + 2}" for month in range(48)
        ]
        (tmp_path / f"{name}.csv").write_text("date,x,y\n" + "\n".join(rows) + "\n")
    file = tmp_path / "two.yaml"
    file.write_text(SUITE)
    return file


@pytest.fixture
def bolt(tmp_path, write_checkpoint, tiny_config) -> Path:
    return write_checkpoint(tmp_path / "bolt", tiny_config("chronos-bolt", num_decoder_layers=2))


def test_scores_are_geometric_means_of_the_evaluation(suite, bolt, tmp_path, monkeypatch):
    score = pickle.loads(pickle.dumps(checkpoint_scorer(suite, device="cpu")))
    monkeypatch.chdir("/")  # a worker may run elsewhere
    found = score(bolt)
    report = evaluate([str(bolt)], suite=suite, baseline="seasonal-naive")
    ours = [row for row in report.rows if row.model == str(bolt)]
    naive = [row for row in report.rows if row.model == "seasonal-naive"]
    for name in ("WQL", "MASE"):
        mine, theirs = ([getattr(row, name) for row in rows] for rows in (ours, naive))
        assert found[name] == pytest.approx(math.sqrt(mine[0] * mine[1]))
        assert found[f"relative_{name}"] == pytest.approx(math.sqrt(mine[0] * mine[1] / theirs[0] / theirs[1]))
    assert found["forecast_seconds"] > 0


def test_what_cannot_be_used_is_refused_before_anything_is_scored(suite, tmp_path):
    with pytest.raises(DataError, match="'embeded' is not known: did you mean 'embedded'"):
        checkpoint_scorer("embeded")
    (tmp_path / "b.csv").unlink()
    with pytest.raises(RankscopeError, match=r"b\.csv"):
        checkpoint_scorer(suite)
