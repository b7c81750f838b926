"""One scorer for sweeps, searches and training: what it measures is what an evaluation says, and it reads once."""

import math
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankscope.checkpoints import checkpoint, open_checkpoint
from rankscope.errors import DataError, RankscopeError
from rankscope_eval import Forecasting, Grid, Scorer, TradeoffOptions, evaluate, read_suite, run_table2, sources
from rankscope_eval.forecasters import BASELINES

SUITE = """
- {name: short, prediction_length: 4, offset: -4, file: [a.csv]}
- {name: other, prediction_length: 2, offset: -2, file: [b.csv]}
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """Two tasks of two monthly series each, and their suite."""
    for name, season in (("a", 4), ("b", 6)):
        rows = [f"{2015 + m // 12}-{m % 12 + 1:02d}-01,{m % season + 1},{m % 7 + 2}" for m in range(48)]
        (tmp_path / f"{name}.csv").write_text("date,x,y\n" + "\n".join(rows) + "\n")
    file = tmp_path / "two.yaml"
    file.write_text(SUITE)
    return file


@pytest.fixture
def pair(tmp_path: Path, write_checkpoint: Any, tiny_config: Any, random_tensors: Any) -> tuple[Path, Path]:
    """Two checkpoints with other weights."""
    config = tiny_config("chronos-bolt", num_decoder_layers=2)
    first, second = (write_checkpoint(tmp_path / f"m{n}", config, random_tensors(config, seed=n)) for n in (0, 1))
    return first, second


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count of reads of each file of series and openings of each checkpoint, by name."""
    count: Counter[str] = Counter()

    def counting(module: Any, name: str) -> None:
        plain: Callable[..., Any] = getattr(module, name)

        def call(path: Any, *args: Any, **options: Any) -> Any:
            count[Path(str(path)).name] += 1
            return plain(path, *args, **options)

        monkeypatch.setattr(module, name, call)

    counting(sources, "read_series")
    counting(checkpoint, "locate")
    return count


def test_scores_are_geometric_means_of_the_evaluation(suite: Path, pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = Scorer(read_suite(suite))
    found = scorer(pair[0])
    report = evaluate([str(pair[0])], suite, baseline="seasonal-naive")
    for name in ("WQL", "MASE"):
        mine, theirs = ([getattr(row, name) for row in report.rows[first::2]] for first in (0, 1))
        assert found[name] == pytest.approx(math.sqrt(mine[0] * mine[1]))
        assert found[f"relative_{name}"] == pytest.approx(math.sqrt(mine[0] * mine[1] / theirs[0] / theirs[1]))
    assert found["forecast_seconds"] > 0


def test_another_baseline_is_what_a_search_compares_with(suite: Path, pair: Any) -> None:
    first, second = map(str, pair)
    scorer = Scorer(read_suite(suite), Forecasting(), open_checkpoint(first))
    reported: list[str] = []
    scorer.score_baseline(lambda done, total, what: reported.append(what))
    seen = len(reported)
    assert seen > 0
    assert scorer(first)["relative_WQL"] == 1.0
    whole = evaluate([second], suite, baseline=first)
    assert scorer(second)["relative_WQL"] == pytest.approx(whole.summary[-1].relative_WQL, rel=1e-12) != 1.0
    assert len(reported) == seen  # candidates are measured within the progress of who measures them


@pytest.mark.slow
def test_every_file_is_read_once_and_every_checkpoint_opened_once(
    suite: Path, pair: Any, used: Counter[str], tmp_path: Path
) -> None:
    files = {"a.csv": 1, "b.csv": 1}
    suite.write_text(f"{SUITE}- {{name: longer, prediction_length: 8, offset: -16, num_rolls: 2, file: a.csv}}\n")
    evaluate(list(map(str, pair)), suite, baseline=str(pair[0]))
    assert used == {**files, "m0": 1, "m1": 1}
    used.clear()
    scorer = Scorer(read_suite(suite))
    for folder in pair:
        scorer(folder)
    assert used == {**files, "m0": 1, "m1": 1}
    used.clear()
    options = TradeoffOptions(str(suite), overlap_series=2, calibration="mixture:2")
    run_table2(pair[0], tmp_path / "table", grid=Grid((0.6, 0.4), ("svd", "joint"), seeds=(0,)), options=options)
    assert used == {**files, "m0": 1, "work": 4, ".draft": 2}


def test_another_process_reads_and_forecasts_nothing_again(
    suite: Path, pair: Any, used: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = pickle.dumps(Scorer(read_suite(suite), Forecasting(device="auto")))
    wanted = Scorer(read_suite(suite))(pair[0])
    used.clear()
    for name in ("a.csv", "b.csv"):
        (suite.parent / name).unlink()
    monkeypatch.setitem(BASELINES, "seasonal-naive", None)
    monkeypatch.chdir("/")
    found = pickle.loads(packed)(pair[0])
    assert {**found, "forecast_seconds": 0} == {**wanted, "forecast_seconds": 0}
    assert used == {"m0": 1}


def test_what_cannot_be_used_is_refused_before_anything_is_scored(suite: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'embeded' is not known: did you mean 'embedded'"):
        read_suite("embeded")
    with pytest.raises(DataError, match="does not exist"):
        read_suite(tmp_path / "none.yaml")
    (tmp_path / "b.csv").unlink()
    with pytest.raises(RankscopeError, match=r"b\.csv"):
        read_suite(suite)
