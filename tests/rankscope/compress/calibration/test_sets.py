"""Series to calibrate on: what a name means, and that it always means the same."""

from pathlib import Path

import numpy as np
import pytest
import torch

from rankscope.compress.calibration import calibration_set
from rankscope.errors import DataError, OptionError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Three series of 40, 9 and 4 values in the wide layout; every value tells its series and its place."""
    rows = [
        ",".join(str(100 * column + row) if row < length else "" for column, length in enumerate((40, 9, 4)))
        for row in range(40)
    ]
    path = tmp_path / "mine.csv"
    path.write_text("a,b,c\n" + "\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("name", ["mixture:3", "kernelsynth:3", " kernelsynth:1 , mixture:2 "])
def test_generated_sets_are_functions_of_the_seed(name: str) -> None:
    first, again = (calibration_set(name, context=24, horizon=8, seed=4) for _ in range(2))
    other = calibration_set(name, context=24, horizon=8, seed=5)
    assert first.context.shape == (3, 24)
    assert first.future.shape == (3, 8)
    assert (first.context.dtype, first.future.dtype, len(first)) == (torch.float32, torch.float32, 3)
    assert first.name == again.name == ",".join(part.strip() for part in name.split(","))
    torch.testing.assert_close(first.context, again.context, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(first.future, again.future, rtol=0, atol=0)
    assert not torch.equal(first.future, other.future)
    assert bool(torch.isfinite(first.future).all())


def test_a_file_gives_the_last_window_of_every_series(file: Path) -> None:
    found = calibration_set(file, context=10, horizon=5)
    assert found.context[0].tolist() == list(range(25, 35))
    assert found.future[0].tolist() == list(range(35, 40))
    assert found.future[1].tolist() == [104, 105, 106, 107, 108]
    assert found.context[1].isnan().tolist() == [True] * 6 + [False] * 4
    assert found.context[1, 6:].tolist() == [100, 101, 102, 103]
    assert len(found) == 2  # the third series is no longer than the horizon


def test_a_number_behind_a_file_draws_windows(file: Path) -> None:
    found = calibration_set(f"{file}:50", context=10, horizon=5, seed=1)
    assert len(found) == 50
    assert torch.equal(found.future, calibration_set(f"{file}:50", context=10, horizon=5, seed=1).future)
    whole = torch.cat([found.context, found.future], dim=1).numpy()
    for row in whole:
        values = row[~np.isnan(row)]
        assert (np.diff(values) == 1).all()  # a window of one series, whole and at the right end
        assert len(values) > 5
        assert not np.isnan(row[-len(values) :]).any()
    assert len({row[-1] for row in whole}) > 10


def test_sets_are_joined(file: Path) -> None:
    found = calibration_set(f"kernelsynth:2,{file}", context=10, horizon=5)
    assert len(found) == 4
    alone = calibration_set(file, context=10, horizon=5)
    torch.testing.assert_close(found.context[2:], alone.context, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "is empty"),
        (" , ", "is empty"),
        ("mixture", "number of series of at least 1"),
        ("mixture:0", "number of series of at least 1"),
        ("kernelsynth:-3", "number of series of at least 1"),
        ("kernelsynth:many", "number of series of at least 1"),
    ],
)
def test_names_that_mean_nothing(name: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        calibration_set(name, context=10, horizon=5)
    assert "\n" not in str(caught.value)


def test_files_that_hold_nothing_to_use(file: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no series longer than the horizon, 40 values"):
        calibration_set(file, context=10, horizon=40)
    with pytest.raises(DataError, match="nowhere"):
        calibration_set(tmp_path / "nowhere.csv", context=10, horizon=5)
    with pytest.raises(DataError):
        calibration_set("kernelsynt:4", context=10, horizon=5)
