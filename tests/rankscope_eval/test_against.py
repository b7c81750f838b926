"""One model's WQL over another's: what a search measures is what an evaluation says."""

from pathlib import Path
from typing import Any

import pytest

from rankscope.errors import DataError
from rankscope_eval import evaluate
from rankscope_eval.against import relative_wql


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    file = tmp_path / "two.yaml"
    rows = [("nile", "Y", 1), ("air_passengers", "M", 12)]
    length = "prediction_length: 8"
    file.write_text(
        "".join(
            f"- {{name: {name}, embedded: {name}, freq: {freq}, season_length: {s}, offset: -8, {length}}}\n"
            for name, freq, s in rows
        )
    )
    return file


def test_a_folder_is_measured_as_eval_measures_it(
    suite: Path, bolt_folder: Path, tmp_path: Path, write_checkpoint: Any, tiny_config: Any, random_tensors: Any
) -> None:
    config = tiny_config("chronos-bolt")
    other = write_checkpoint(tmp_path / "other", config, random_tensors(config, seed=1))
    told: list[str] = []
    score = relative_wql(str(bolt_folder), suite=suite, progress=lambda done, total, what: told.append(what))
    seen = len(told)
    assert seen > 0
    assert score(bolt_folder) == 1.0
    value = score(other)
    assert value != 1.0
    whole = evaluate([str(other)], baseline=str(bolt_folder), suite=suite)
    assert value == pytest.approx(whole.summary[-1].relative_WQL, rel=1e-12)
    assert len(told) == seen  # candidates are measured within the progress of who measures them


def test_a_suite_that_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        relative_wql("seasonal-naive", suite=tmp_path / "none.yaml")
