"""A loss in place of a size: bisected with a score that is known, kept only where it holds."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rankscope import open_checkpoint
from rankscope.checkpoints import Checkpoint
from rankscope.compress import CompressOptions, compress, compress_to_loss, read_recipe
from rankscope.compress.to_loss import Measured
from rankscope.errors import DataError, OptionError, OutputError
from rankscope.io import codec

SVD = CompressOptions(allocation="energy", method="svd", sites="attention")


@pytest.fixture
def source(bolt_folder: Path) -> Checkpoint:
    return open_checkpoint(bolt_folder)


def stored(folder: Path) -> int:
    return open_checkpoint(folder).parameters


def by_size(source: Checkpoint, slope: float = 1.0) -> Callable[[Path], float]:
    """A score that worsens evenly as parameters go."""
    return lambda folder: 1 + slope * (source.parameters - stored(folder)) / source.parameters


@pytest.mark.parametrize("max_loss", [0.1, *(pytest.param(one, marks=pytest.mark.slow) for one in (0.05, 0.2))])
def test_the_smallest_folder_that_holds_is_kept(max_loss: float, source: Checkpoint, tmp_path: Path) -> None:
    seen: list[float] = []
    score = by_size(source)

    def noted(folder: Path) -> float:
        seen.append(score(folder))
        return seen[-1]

    report = compress_to_loss(source, SVD, out=tmp_path / "out", max_loss=max_loss, score=noted, measure="size")
    assert score(tmp_path / "out") <= 1 + max_loss
    search = report.search
    assert search is not None
    assert (search.measure, search.max_loss) == ("size", max_loss)
    assert search.score == score(tmp_path / "out")
    assert [step.score for step in search.steps] == seen
    assert all(step.holds == (step.score <= 1 + max_loss) for step in search.steps)
    held = [step.ratio for step in search.steps if step.holds]
    failed = [step.ratio for step in search.steps if not step.holds]
    assert report.ratio == min(held)
    assert max(failed) < report.ratio
    assert report.ratio < 1.05 * max(failed) + 32 / report.selected_parameters["before"]
    # nothing that holds is smaller by more than the search tells apart
    compress(
        source,
        CompressOptions(ratio=report.ratio * 0.93, method="svd", sites="attention", allocation="energy"),
        out=tmp_path / "less",
    )
    assert score(tmp_path / "less") > 1 + max_loss


@pytest.mark.slow
def test_the_folder_is_that_of_compress_at_its_ratio(source: Checkpoint, tmp_path: Path) -> None:
    report = compress_to_loss(source, SVD, out=tmp_path / "out", max_loss=0.1, score=by_size(source))
    size = read_recipe(tmp_path / "out").ratio
    how = CompressOptions(ratio=size, method="svd", sites="attention", allocation="energy")
    compress(source, how, out=tmp_path / "same")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "same" / name).read_bytes()
    assert {file.name for file in (tmp_path / "out").iterdir()} == {file.name for file in (tmp_path / "same").iterdir()}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    saved = json.loads((tmp_path / "out" / "compress.json").read_text())
    assert saved == codec.plain(report)
    assert saved["out"] == str(tmp_path / "out")
    assert saved["search"].keys() == {"measure", "max_loss", "score", "steps"}
    assert all(step.keys() == {"ratio", "score", "holds", "upper"} for step in saved["search"]["steps"])


def test_the_bound_has_to_hold(source: Checkpoint, tmp_path: Path) -> None:
    """A size that scores well by chance among neighbours that do not is not taken."""
    score = by_size(source)
    plain = compress_to_loss(source, SVD, out=tmp_path / "a", max_loss=0.1, score=lambda _: 0.9)
    bounded = compress_to_loss(
        source, SVD, out=tmp_path / "b", max_loss=0.1, score=lambda folder: Measured(0.9, score(folder))
    )
    assert plain.search is not None
    assert bounded.search is not None
    assert plain.ratio < bounded.ratio
    assert {step.score for step in bounded.search.steps} == {0.9}
    bounds = [(step.upper, step.holds) for step in bounded.search.steps]
    assert all(upper is not None and holds == (upper <= 1.1) for upper, holds in bounds)
    with pytest.raises(OptionError, match="is out of reach"):
        compress_to_loss(source, SVD, out=tmp_path / "c", max_loss=0.1, score=lambda _: Measured(0.9, 1.2))


def test_where_even_the_least_holds_nothing_else_is_tried(source: Checkpoint, tmp_path: Path) -> None:
    report = compress_to_loss(source, SVD, out=tmp_path / "out", max_loss=0.0, score=lambda _: 0.9)
    assert report.search is not None
    assert len(report.search.steps) == 1
    assert {site.rank for site in report.sites} == {1}


@pytest.mark.slow
def test_where_nothing_smaller_holds_the_model_is_kept_as_it_is(source: Checkpoint, tmp_path: Path) -> None:
    report = compress_to_loss(source, SVD, out=tmp_path / "out", max_loss=0.0, score=by_size(source))
    assert report.ratio == 1.0
    assert report.search is not None
    assert report.search.steps[-1].holds
    same = open_checkpoint(tmp_path / "out")
    assert all(torch.equal(same.tensor(name), source.tensor(name)) for name in source.index)


@pytest.mark.slow
def test_where_not_even_ratio_one_holds_the_nearest_is_named(source: Checkpoint, tmp_path: Path) -> None:
    score = by_size(source)
    with pytest.raises(
        OptionError, match=r"even at ratio 1 score is 1\.0312 at most; .* max loss of 0\.0313"
    ) as caught:
        compress_to_loss(source, SVD, out=tmp_path / "out", max_loss=0.01, score=lambda folder: score(folder) + 0.03123)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["chronos-bolt"]
    report = compress_to_loss(
        source, SVD, out=tmp_path / "out", max_loss=0.0313, score=lambda folder: score(folder) + 0.03123
    )
    assert report.ratio == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_scores_that_are_no_number_never_hold(value: float, source: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="is not finite at any ratio"):
        compress_to_loss(source, SVD, out=tmp_path / "out", max_loss=1.0, score=lambda _: value)
    limit = stored_at(source, tmp_path, 0.5)
    report = compress_to_loss(
        source, SVD, out=tmp_path / "out", max_loss=0.0, score=lambda folder: 1.0 if stored(folder) > limit else value
    )
    assert stored(tmp_path / "out") > limit
    assert {step["score"] for step in codec.plain(report)["search"]["steps"]} == {1.0, None}


def stored_at(source: Checkpoint, folder: Path, ratio: float) -> int:
    return compress(
        source, CompressOptions(attention_ratio=ratio, allocation="energy"), out=folder / "half"
    ).parameters["after"]


@pytest.mark.slow
def test_moments_are_measured_once(source: Checkpoint, tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    how = CompressOptions(method="joint", calibration="kernelsynth:4")
    report = compress_to_loss(
        source,
        how,
        out=tmp_path / "out",
        max_loss=0.05,
        score=by_size(source),
        measure="size",
        steps=3,
        progress=lambda *step: seen.append(step),
    )
    assert report.search is not None
    assert len(report.search.steps) <= 5
    assert sum(what == "calibrating" and done == total for done, total, what in seen) == 1
    said = [what for _, _, what in seen if what.endswith(("hold", "holds"))]
    assert len(said) == len(report.search.steps)
    assert all(what.startswith(("ratio 0.", "ratio 1:")) for what in said)
    assert any("size 1.0" in what for what in said)


def test_what_fails_while_it_is_measured_leaves_nothing(source: Checkpoint, tmp_path: Path) -> None:
    def interrupted(_: Path) -> float:
        raise KeyboardInterrupt

    def unreadable(_: Path) -> float:
        raise FileNotFoundError(2, "No such file or directory", "series.csv")

    for score, error in ((interrupted, KeyboardInterrupt), (unreadable, DataError)):
        with pytest.raises(error):
            compress_to_loss(source, SVD, out=tmp_path / "out", max_loss=0.1, score=score)
        assert [path.name for path in tmp_path.iterdir()] == ["chronos-bolt"]


@pytest.mark.parametrize("max_loss", [-0.1, math.nan, math.inf])
def test_losses_that_are_none(max_loss: float, source: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="max loss"):
        compress_to_loss(source, SVD, out=tmp_path / "out", max_loss=max_loss, score=lambda _: 1.0)


def test_other_things_that_are_refused(source: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="steps 0"):
        compress_to_loss(source, SVD, out=tmp_path / "out", max_loss=0.1, score=lambda _: 1.0, steps=0)
    (tmp_path / "out").mkdir()
    with pytest.raises(OutputError, match="exists already"):
        compress_to_loss(source, SVD, out=tmp_path / "out", max_loss=0.1, score=lambda _: pytest.fail("scored"))
    compress_to_loss(source, SVD, out=tmp_path / "out", max_loss=0.1, score=lambda _: 1.0, force=True)
    assert (tmp_path / "out" / "model.safetensors").is_file()
