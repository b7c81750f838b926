"""Compression to a time: prices of ranks, plans that a clock accepts, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rankscope import load_pipeline, open_checkpoint
from rankscope.compress import Budget, CompressOptions, compress, compress_to_time, read_recipe
from rankscope.compress.joint_stream import JointStream, suited
from rankscope.compress.plan import kind_of
from rankscope.compress.prepare import prepare
from rankscope.compress.recipe import Sought
from rankscope.compress.to_time import Timer, _Sliced, measure_prices, write_shape
from rankscope.engine import silent
from rankscope.errors import OptionError

HOW = CompressOptions(method="joint", calibration="mixture:8", probe="mixture:4")
BOTH = CompressOptions(calibration="mixture:8", probe="mixture:4")
QK, UNITS = "encoder.block.*.layer.0.SelfAttention:qk", "encoder.block.*.layer.1.DenseReluDense"


def counts(folder: Path) -> tuple[int, int]:
    """Widths of queries, and hidden units, of the whole encoder."""
    source = open_checkpoint(folder)
    sites = [site for site in source.sites(["all"]) if site.stack == "encoder"]
    return tuple(sum(source.shape(one)[0] for one in sites if one.role == role) for role in ("self.q", "mlp_in"))


@pytest.fixture
def clock(bolt_folder: Path) -> Callable[..., Timer]:
    """``clock(power=1)``: a timer that sees queries and hidden units of the encoder, and keeps what it timed."""
    whole = counts(bolt_folder)

    def make(power: float = 1.0) -> Timer:
        def share(folder: Path) -> float:
            q, units = (now / before for now, before in zip(counts(folder), whole, strict=True))
            return (0.2 + 0.3 * q + 0.5 * units) ** power

        return lambda folders: [share(folder) for folder in folders]

    return make


def test_prices_are_those_of_a_linear_clock(bolt_folder: Path, clock: Callable[..., Timer], tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    found = measure_prices(prepare(bolt_folder, HOW), clock(), place)
    q, units = counts(bolt_folder)
    assert found.pop(QK) == pytest.approx(0.3 / q)
    assert found.pop(UNITS) == pytest.approx(0.5 / units)
    assert found
    assert set(found.values()) == {0.0}
    assert not list(place.iterdir())


def test_what_single_kinds_do_not_explain_is_shared_by_numbers(bolt_folder: Path, tmp_path: Path) -> None:
    """A clock that sees nothing but a model in which everything is small."""
    prepared = prepare(bolt_folder, HOW)
    place = tmp_path / "place"
    place.mkdir()
    found = measure_prices(prepared, lambda folders: [*(1.0 for _ in folders[1:]), 0.4], place)
    assert min(found.values()) > 0
    per_number = {kind: found[kind] / one.cost for one in prepared.flat if (kind := kind_of(one)) in (QK, UNITS)}
    assert per_number[QK] == pytest.approx(per_number[UNITS])


@pytest.mark.parametrize("power", [1.0, *(pytest.param(one, marks=pytest.mark.slow) for one in (0.5, 2.0))])
def test_the_plan_fits_and_uses_the_time(
    power: float, bolt_folder: Path, clock: Callable[..., Timer], tmp_path: Path
) -> None:
    report = compress_to_time(
        bolt_folder,
        HOW,
        out=tmp_path / "small",
        most=0.7,
        timer=clock(power),
        measure="a clock",
        conditions={"cpu": "some"},
    )
    (share,) = clock(power)([tmp_path / "small"])
    assert 0.6 < share <= 0.7
    assert report.search is not None
    assert report.search.score == share
    assert report.search.steps[-1].holds
    assert {one.name for one in (tmp_path / "small").iterdir()} >= {"compress.json", "recipe.yaml", "README.md"}
    assert not (tmp_path / "small" / ".candidates").exists()
    assert read_recipe(tmp_path / "small").sought == Sought("a clock", 0.7, {"cpu": "some"})
    if power == 1.0:  # what does not add up is shared out
        untouched = [one for one in report.sites if one.stack == "decoder"]
        assert untouched
        assert all(one.parameters_after == one.parameters_before for one in untouched)  # they cost this clock nothing


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.6, 1.7])
def test_wrong_prices_are_corrected_by_the_clock(
    factor: float, bolt_folder: Path, clock: Callable[..., Timer], tmp_path: Path
) -> None:
    prices = measure_prices(prepare(bolt_folder, HOW), clock(), tmp_path)
    wrong = {kind: factor * price for kind, price in prices.items()}
    how = CompressOptions(method="joint", prices=wrong, calibration="mixture:8", probe="mixture:4")
    report = compress_to_time(bolt_folder, how, out=tmp_path / "small", most=0.7, timer=clock())
    assert report.search is not None
    assert not 0.65 < report.search.steps[0].score <= 0.7
    assert 0.65 < report.search.score <= 0.7


@pytest.mark.slow
def test_the_least_is_timed_where_prices_say_that_it_is_too_slow(
    bolt_folder: Path, clock: Callable[..., Timer], tmp_path: Path
) -> None:
    timer = clock(0.5)
    prices = measure_prices(prepare(bolt_folder, HOW), timer, tmp_path)
    how = CompressOptions(method="joint", prices=prices, calibration="mixture:8", probe="mixture:4")
    prepared = prepare(bolt_folder, how)
    estimate = prepared.least("time")
    (real,) = timer([write_shape(prepared, prepared.by_budget(Budget("time", estimate)), tmp_path / "least")])
    assert real < estimate
    most = (real + estimate) / 2
    report = compress_to_time(bolt_folder, how, out=tmp_path / "small", most=most, timer=timer)
    assert report.search is not None
    assert report.search.score <= most


def test_the_dearer_of_two_equal_units_leaves_first(bolt_folder: Path, tmp_path: Path) -> None:
    prepared = prepare(bolt_folder, HOW)
    kinds = {kind_of(one) for one in prepared.flat}
    ranks = {}
    for price in (1e-4, 4e-3):
        prices = {kind: price if kind == UNITS else 1e-3 for kind in kinds}
        how = CompressOptions(budget=Budget("time", 0.95), prices=prices, calibration="mixture:8", probe="mixture:4")
        found = prepare(bolt_folder, how)
        plan = found.by_budget(found.how.budget)
        ranks[price] = sum(one.rank for one in plan.sites if kind_of(one.spectrum) == UNITS)
        used = found.whole(found.how.budget).used(plan.sites)
        removed = sum(
            prices[kind_of(one.spectrum)] * (one.spectrum.rank_now - one.rank) for one in plan.sites if one.changed
        )
        assert used == pytest.approx(1 - removed)
        assert used <= 0.95
    assert ranks[4e-3] < ranks[1e-4]


@pytest.mark.slow
def test_its_recipe_needs_no_clock(bolt_folder: Path, clock: Callable[..., Timer], tmp_path: Path) -> None:
    compress_to_time(bolt_folder, HOW, out=tmp_path / "first", most=0.7, timer=clock())
    compress(
        bolt_folder, read_recipe(tmp_path / "first").options(open_checkpoint(bolt_folder)), out=tmp_path / "second"
    )
    first, second = ((tmp_path / one / "model.safetensors").read_bytes() for one in ("first", "second"))
    assert first == second


def test_models_for_the_clock_have_the_shapes_of_the_plan(bolt_folder: Path, tmp_path: Path) -> None:
    prepared = prepare(bolt_folder, HOW)
    plan = prepared.by_budget(Budget("ratio", 0.8))
    shape = write_shape(prepared, plan, tmp_path / "shape")
    how = CompressOptions(ratio=0.8, method="joint", calibration="mixture:8", probe="mixture:4")
    compress(bolt_folder, how, out=tmp_path / "real")
    random, real = (open_checkpoint(one).index for one in (shape, tmp_path / "real"))
    assert {name: info.shape for name, info in random.items()} == {name: info.shape for name, info in real.items()}
    found = load_pipeline(shape, runtime="fast").predict_quantiles(torch.rand(2, 32), prediction_length=8)[0]
    assert torch.isfinite(found).all()


@pytest.mark.parametrize(
    ("most", "options", "said"),
    [
        (0.05, {}, "out of reach: .* or compress what --layers made"),
        (0.05, {"method": "joint"}, "out of reach: .* or compress what method stream or --layers made"),
        (0.0, {}, "must lie in"),
        (1.5, {}, "must lie in"),
        (0.5, {"ratio": 0.5}, "latency searches for the size; remove ratio"),
        (0.5, {"method": "svd", "probe": None}, "allocation uniform-eps knows no prices"),
        (0.5, {"method": "stream"}, "method stream has no ranks"),
        (0.5, {"prices": {"encoder": 1.0}}, "there is no price of"),
    ],
)
def test_bad_input(
    most: float, options: dict[str, object], said: str, bolt_folder: Path, clock: Callable[..., Timer], tmp_path: Path
) -> None:
    how = CompressOptions(**{"calibration": "mixture:8", "probe": "mixture:4", **options})
    with pytest.raises(OptionError, match=said):
        compress_to_time(bolt_folder, how, out=tmp_path / "small", most=most, timer=clock())
    assert not list(tmp_path.glob("*small*"))


def test_a_clock_that_breaks_leaves_nothing(bolt_folder: Path, tmp_path: Path) -> None:
    def broken(folders: Sequence[Path]) -> list[float]:
        raise OptionError("no clock")

    with pytest.raises(OptionError, match="no clock"):
        compress_to_time(bolt_folder, HOW, out=tmp_path / "small", most=0.5, timer=broken)
    assert not list(tmp_path.glob("*small*"))


def test_a_budget_of_time_without_prices_is_refused(bolt_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="needs prices, which compress_to_time"):
        compress(bolt_folder, CompressOptions(budget=Budget("time", 0.5), calibration="mixture:8"), out=tmp_path / "x")


@pytest.fixture
def sizes(bolt_folder: Path) -> Callable[..., tuple[Timer, list[tuple[str, float]]]]:
    """``sizes(slower=1)``: a timer that sees the parameters, finished folders as so much slower, and what it timed."""
    whole = open_checkpoint(bolt_folder).parameters

    def make(slower: float = 1.0) -> tuple[Timer, list[tuple[str, float]]]:
        seen: list[tuple[str, float]] = []

        def share(folder: Path) -> float:
            found = 0.1 + 0.9 * open_checkpoint(folder).parameters / whole
            found *= slower if folder.name == "found" else 1.0
            seen.append((folder.name, found))
            return found

        return lambda folders: [share(folder) for folder in folders], seen

    return make


def test_streams_share_the_time(bolt_folder: Path, sizes: Callable[..., Any], tmp_path: Path) -> None:
    timer, seen = sizes()
    out = tmp_path / "small"
    report = compress_to_time(bolt_folder, BOTH, out=out, most=0.5, timer=timer, measure="a clock")
    assert report.search is not None
    assert (report.method, report.asked) == ("joint+stream", {"time": 0.5})
    assert 0.95 * 0.5 < report.search.score == seen[-1][1] <= 0.5
    assert seen[-1][0] == "found"
    assert [step.score for step in report.search.steps][-1] == report.search.score
    assert (0.1 + 0.9 * report.ratio) == pytest.approx(report.search.score)
    assert open_checkpoint(out).config["rankscope"]["stream"]
    assert not (out / ".candidates").exists()
    recipe = read_recipe(out)
    assert recipe.sought == Sought("a clock", 0.5, None)
    compress(bolt_folder, recipe.options(open_checkpoint(bolt_folder)), out=tmp_path / "again")
    first, second = ((tmp_path / one / "model.safetensors").read_bytes() for one in ("small", "again"))
    assert first == second


def test_what_is_written_is_timed_and_made_smaller_until_it_fits(
    bolt_folder: Path, sizes: Callable[..., Any], tmp_path: Path
) -> None:
    timer, seen = sizes(1.1)
    report = compress_to_time(bolt_folder, BOTH, out=tmp_path / "small", most=0.5, timer=timer)
    written = [share for name, share in seen if name == "found"]
    assert written[0] > 0.5
    assert 0.45 < written[-1] <= 0.5
    assert report.search is not None
    assert report.search.score == written[-1]
    with pytest.raises(OptionError, match=r"out of reach: of \d+ plans that were timed the fastest took"):
        compress_to_time(bolt_folder, BOTH, out=tmp_path / "none", most=0.3, timer=sizes(9.0)[0])
    assert not list(tmp_path.glob("*none*"))


def test_of_what_fits_the_largest_is_taken(bolt_folder: Path, tmp_path: Path) -> None:
    """A clock that takes small models for slow ones."""
    whole = open_checkpoint(bolt_folder).parameters
    seen: list[float] = []

    def share(folder: Path) -> float:
        seen.append(open_checkpoint(folder).parameters / whole)
        return 0.9 if seen[-1] > 0.4 else 0.3 - seen[-1] / 2

    report = compress_to_time(
        bolt_folder, BOTH, out=tmp_path / "small", most=0.5, timer=lambda folders: [share(one) for one in folders]
    )
    assert report.ratio == pytest.approx(max(one for one in seen if one <= 0.4), rel=0.05)


def test_cuts_alone_may_fit(bolt_folder: Path, sizes: Callable[..., Any], tmp_path: Path) -> None:
    report = compress_to_time(bolt_folder, BOTH, out=tmp_path / "small", most=0.97, timer=sizes()[0])
    assert report.search is not None
    assert 0.9 < report.search.score <= 0.97
    assert report.method == "joint+stream"


def test_shapes_of_both_are_those_that_are_written(bolt_folder: Path, tmp_path: Path) -> None:
    """Cuts have the very shapes; streams, measured anew on what the cuts leave, the same numbers to a few."""
    way = _Sliced(JointStream(open_checkpoint(bolt_folder), suited_both(bolt_folder), silent))
    plan = way.plan(0.5)
    shape = open_checkpoint(way.shape(plan, tmp_path / "shape"))
    assert shape.parameters == pytest.approx(way.ratio(plan) * open_checkpoint(bolt_folder).parameters)
    way.both.write(Budget("ratio", 0.5), tmp_path / "real", progress=silent)
    real = open_checkpoint(tmp_path / "real")
    assert shape.index.keys() == real.index.keys()
    assert shape.parameters == pytest.approx(real.parameters, rel=0.05)
    assert not list(tmp_path.glob("*-cut"))
    found = load_pipeline(tmp_path / "shape", runtime="fast").predict_quantiles(torch.rand(2, 32), prediction_length=8)
    assert torch.isfinite(found[0]).all()


def suited_both(folder: Path) -> CompressOptions:
    found = suited(open_checkpoint(folder), replace(BOTH, ratio=1.0))
    assert found is not None
    return found
