"""The harness on toy models: what it measures, what it keeps, what it refuses."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rankscope_eval.tradeoff.run as harness
from rankscope import read_table2
from rankscope.compress import CompressOptions, compress
from rankscope.compress.calibration import load_calibration
from rankscope.compress.heal import HealConfig, heal
from rankscope.errors import DataError, FamilyError, OptionError, OutputError, RankscopeError
from rankscope.measure.tradeoff import (
    DONE,
    FAILED,
    OUT_OF_REACH,
    DatasetScore,
    Judgement,
    Original,
    Table2Report,
)
from rankscope_eval import Forecasting, Grid, TradeoffOptions, evaluate, run_table2
from rankscope_eval.tradeoff.folder import KeptOriginal, KeptPoint
from rankscope_eval.tradeoff.scorers import ForecastScorer

SMALL = Grid((0.6, 0.4), ("svd", "joint"), seeds=(0, 1))


@pytest.fixture
def options(tmp_path: Path) -> TradeoffOptions:
    """One data set of two monthly series, four series to compare on, eight to calibrate on."""
    rows = [f"{2018 + m // 12}-{m % 12 + 1:02d}-01,{m * m % 11 + 1},{9 - m % 5}" for m in range(40)]
    (tmp_path / "s.csv").write_text("date,x,y\n" + "\n".join(rows) + "\n")
    suite = tmp_path / "one.yaml"
    suite.write_text("- {name: s, benchmark: b, prediction_length: 4, offset: -4, file: [s.csv]}\n")
    return TradeoffOptions(
        suite=str(suite), how=Forecasting(num_samples=3, runtime="stock"), overlap_series=4, calibration="mixture:8"
    )


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the models that were compressed, in order."""
    names: list[str] = []

    def counting(model: Any, options: CompressOptions, **where: Any) -> Any:
        names.append(f"{options.attention_ratio:g}-{options.method}-{options.seed}")
        return compress(model, options, **where)

    monkeypatch.setattr(harness, "compress", counting)
    return names


def untimed(report: Table2Report) -> list[Any]:
    """Points without what differs from run to run."""
    gone = {"compress_seconds": None, "forecast_seconds": None, "time_ratio": None}
    return [replace(point, measures=replace(point.measures, **gone)) for point in report.points]


@pytest.mark.slow
def test_every_point_is_what_the_verbs_would_say(
    sampling_folder: Path, tmp_path: Path, options: TradeoffOptions, made
) -> None:
    seen: list[tuple[int, int, str]] = []
    out = tmp_path / "out"
    report = run_table2(sampling_folder, out, grid=SMALL, options=options, progress=lambda *told: seen.append(told))
    assert [(p.ratio, p.method, p.seed) for p in report.points] == [
        (ratio, method, seed) for ratio in (0.6, 0.4) for method, seed in (("svd", None), ("joint", 0), ("joint", 1))
    ]
    assert {p.state for p in report.points} == {DONE}
    assert len(made) == 6
    assert [(row.method, row.allocation, row.seeds) for row in report.rows[:2]] == [
        ("svd", "uniform-eps", ()),
        ("joint", "sensitivity", (0, 1)),
    ]
    # the same by hand
    small = compress(sampling_folder, CompressOptions(attention_ratio=0.4, method="svd"), out=tmp_path / "small")
    again = evaluate([str(tmp_path / "small")], str(options.suite), options.how, baseline=str(sampling_folder))
    scores = again.summary[0]
    measures = report.points[3].measures
    assert measures.relative_WQL == pytest.approx(scores.relative_WQL, rel=1e-12)
    assert measures.relative_MASE == pytest.approx(scores.relative_MASE, rel=1e-12)
    assert (measures.reached, measures.parameters, measures.bytes) == (
        small.selected_ratio,
        small.parameters["after"],
        small.bytes["after"],
    )
    (judged,) = (one for one in report.judgements if (one.ratio, one.method) == (0.4, "svd"))
    assert (judged.relative_WQL, judged.relative_MASE) == pytest.approx((scores.relative_WQL, scores.relative_MASE))
    assert (judged.WQL_interval, judged.WQL_verdict) == (scores.WQL_interval, scores.WQL_verdict)
    assert 0 < measures.overlap < 1
    assert measures.quantile_distance is None
    assert measures.cache_bytes == report.original.cache_bytes
    assert report.points[4].measures.cache_bytes < report.original.cache_bytes
    # a second calibration, refitted as the first
    compress(
        sampling_folder,
        CompressOptions(attention_ratio=0.4, method="joint", calibration="mixture:8", seed=1),
        out=tmp_path / "joint",
    )
    again = evaluate([str(tmp_path / "joint")], str(options.suite), options.how, baseline=str(sampling_folder))
    assert report.points[5].measures.relative_WQL == pytest.approx(again.summary[0].relative_WQL, rel=1e-9)
    # and on disk
    assert read_table2(out) == report
    assert {path.name for path in out.glob("table2.*")} == {f"table2.{e}" for e in ("json", "csv", "md", "png", "svg")}
    assert (out / "calibration" / "seed-1.safetensors").exists()
    assert not (out / "work").exists()
    table = (out / "table2.md").read_text()
    assert "| 0.6 | " in table
    assert "| 0.073 | 4.409 |" in table
    assert seen[-1] == (6, 6, "0.4-joint-default-seed1")


def test_at_ratio_one_nothing_is_lost(
    sampling_folder: Path, bolt_folder: Path, tmp_path: Path, options: TradeoffOptions
) -> None:
    grid = Grid((1.0,), ("svd",))
    for model, measure, same in ((sampling_folder, "overlap", 1.0), (bolt_folder, "quantile_distance", 0.0)):
        report = run_table2(model, tmp_path / measure, grid=grid, options=options)
        (row,) = report.rows
        assert (row.median.relative_WQL, row.median.relative_MASE) == (1.0, 1.0)
        assert getattr(row.median, measure) == same
        other = {"overlap": "quantile_distance", "quantile_distance": "overlap"}[measure]
        assert getattr(row.median, other) is None


@pytest.fixture
def several(options: TradeoffOptions, tmp_path: Path) -> TradeoffOptions:
    """Three data sets of two series."""
    suite = tmp_path / "three.yaml"
    rows = (f"- {{name: s{n}, benchmark: b, prediction_length: {n}, offset: -{n}, file: [s.csv]}}\n" for n in (3, 4, 5))
    suite.write_text("".join(rows))
    return replace(options, suite=str(suite))


def test_ratios_that_differ_late_are_two_points() -> None:
    names = [point.name for point in Grid((0.12345678, 0.12345679, 0.25), ("svd",)).points()]
    assert names == [f"{ratio}-svd-default" for ratio in ("0.25", "0.12345679", "0.12345678")]


def test_data_sets_of_one_source_are_no_independent_evidence() -> None:
    def judged(source: str) -> Judgement:
        scores = tuple(DatasetScore("b", name, 1.0, 1.0, source) for name in "xyz")
        sums = {f"b/{name}": np.ones((20, 4)) for name in "xyz"}
        point = replace(Grid((0.5,), ("svd",)).points()[0], scores=scores)
        original = Original(1, 1, 1, scores=scores)
        return harness._judgement([KeptPoint(point, sums)], KeptOriginal(original, sums), 0.02)

    assert judged("").WQL_interval == pytest.approx((1.0, 1.0))
    assert judged("one").WQL_interval is None


@pytest.mark.slow
def test_rows_are_judged_over_data_sets_and_series(bolt_folder: Path, tmp_path: Path, several: TradeoffOptions) -> None:
    grid = Grid((0.4,), ("joint",), seeds=(0, 1))
    report = run_table2(bolt_folder, tmp_path / "out", grid=grid, options=several)
    (row,) = report.rows
    judged = row.judgement
    # the seeds' scores averaged, then the geometric mean, by hand
    base = [one.WQL for one in report.original.scores]
    means = [sum(point.scores[place].WQL for point in report.points) / 2 for place in range(3)]
    ratios = [ours / theirs for ours, theirs in zip(means, base, strict=True)]
    assert judged.relative_WQL == pytest.approx(math.prod(ratios) ** (1 / 3))
    assert judged.WQL_verdict.worst_ratio == pytest.approx(max(ratios))
    assert judged.WQL_verdict.worst == f"s{3 + ratios.index(max(ratios))}"
    low, high = judged.WQL_interval
    assert low < judged.relative_WQL < high
    inner = judged.WQL_verdict.interval
    assert low < inner[0] < inner[1] < high
    table = (tmp_path / "out" / "table2.md").read_text()
    assert f"| {judged.relative_WQL:.3f} | {low:.3f}–{high:.3f} | {judged.WQL_verdict.word} |" in table
    assert report.to_frame().loc[0, "WQL_worst"] == judged.WQL_verdict.worst
    # another margin judges the kept sums anew
    wide = replace(several, margin=0.99)
    again = run_table2(bolt_folder, tmp_path / "out", grid=grid, options=wide, resume=True)
    assert again.points == report.points
    assert again.judgements[0].WQL_interval == judged.WQL_interval
    assert again.judgements[0].WQL_verdict.margin == 0.99


@pytest.mark.slow
def test_losses_are_averaged_over_sampling_seeds(
    sampling_folder: Path, bolt_folder: Path, tmp_path: Path, options: TradeoffOptions
) -> None:
    grid = Grid((1.0,), ("svd",))
    single = [
        run_table2(sampling_folder, tmp_path / f"{seed}", grid=grid, options=replace(options, how=how)).original
        for seed in (5, 6)
        for how in [replace(options.how, seed=seed)]
    ]
    both = replace(options, how=replace(options.how, seed=5), sampling_seeds=2)
    original = run_table2(sampling_folder, tmp_path / "both", grid=grid, options=both).original
    scores = [one.scores[0].WQL for one in single]
    assert scores[0] != scores[1]
    assert pytest.approx(sum(scores) / 2) == original.scores[0].WQL
    direct = run_table2(bolt_folder, tmp_path / "direct", grid=grid, options=both)  # samples nothing
    alone = run_table2(bolt_folder, tmp_path / "alone", grid=grid, options=options)
    assert direct.original == alone.original


@pytest.mark.slow
def test_what_is_done_stays_done(
    sampling_folder: Path, tmp_path: Path, options: TradeoffOptions, made, monkeypatch
) -> None:
    out = tmp_path / "out"
    few = replace(SMALL, ratios=(0.6,))
    first = run_table2(sampling_folder, out, grid=few, options=options)
    made.clear()
    monkeypatch.setattr(ForecastScorer, "original", None)  # its scores are kept
    again = run_table2(sampling_folder, out, grid=few, options=options, resume=True)
    assert not made
    assert again == first
    more = run_table2(sampling_folder, out, grid=replace(SMALL, seeds=(1, 2)), options=options, resume=True)
    assert made == ["0.6-joint-2", "0.4-svd-0", "0.4-joint-1", "0.4-joint-2"]
    assert [p for p in more.points if p.ratio == 0.6 and p.seed != 2] == list(first.points)
    assert more.rows[1].seeds == (0, 1, 2)


KILLED = """
import os, signal, sys
from rankscope_eval import Forecasting, Grid, TradeoffOptions, run_table2
from rankscope_eval.tradeoff.scorers import ForecastScorer

compare, calls = ForecastScorer.compare, []

def deadly(*args):
    calls.append(args)
    if len(calls) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return compare(*args)

ForecastScorer.compare = deadly
run_table2(sys.argv[1], sys.argv[2], grid=Grid(*eval(sys.argv[3])), options=TradeoffOptions(*eval(sys.argv[4])))
"""


@pytest.mark.slow
def test_a_killed_run_loses_one_point(sampling_folder: Path, tmp_path: Path, options: TradeoffOptions, made) -> None:
    few = replace(SMALL, ratios=(0.6,))
    whole = run_table2(sampling_folder, tmp_path / "whole", grid=few, options=options)
    out = tmp_path / "out"
    grid = (few.ratios, few.methods, (), few.seeds)
    values = tuple(vars(options).values())
    words = [sys.executable, "-c", KILLED, str(sampling_folder), str(out), repr(grid), repr(values)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (out / "work").is_dir()
    assert not (out / "table2.json").exists()
    made.clear()
    report = run_table2(sampling_folder, out, grid=few, options=options, resume=True)
    assert len(made) == 2
    assert not (out / "work").exists()
    assert untimed(report) == untimed(whole)


@pytest.mark.slow
def test_a_table_is_calibrated_on_one_content_of_a_file(
    bolt_folder: Path, tmp_path: Path, options: TradeoffOptions
) -> None:
    mine = tmp_path / "mine.csv"
    mine.write_text((tmp_path / "s.csv").read_text())
    own = replace(options, calibration=str(mine))
    grid = Grid((0.6,), ("whitened",), seeds=(0,))
    run_table2(bolt_folder, tmp_path / "out", grid=grid, options=own)
    run_table2(bolt_folder, tmp_path / "out", grid=grid, options=own, resume=True)
    mine.write_text(mine.read_text().replace(",1,9", ",2,9", 1))
    with pytest.raises(OutputError, match="was begun with calibrated"):
        run_table2(bolt_folder, tmp_path / "out", grid=replace(grid, seeds=(0, 1)), options=own, resume=True)


@pytest.mark.slow
def test_another_table_is_not_gone_on_with(
    sampling_folder: Path, bolt_folder: Path, tmp_path: Path, options: TradeoffOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, grid = tmp_path / "out", Grid((0.6,), ("svd",))
    run_table2(sampling_folder, out, grid=grid, options=options)
    with pytest.raises(OutputError, match="go on with --resume"):
        run_table2(sampling_folder, out, grid=grid, options=options)
    changes: list[dict[str, Any]] = [
        {"num_samples": 4},
        {"overlap_series": 5},
        {"sampling_seeds": 2},
        {"seed": 1},
        {"calibration": "mixture:9"},
    ]
    for change in changes:
        (name,) = change
        change = change if hasattr(options, name) else {"how": replace(options.how, **change)}
        with pytest.raises(OutputError, match=f"was begun with {name}"):
            run_table2(sampling_folder, out, grid=grid, options=replace(options, **change), resume=True)
    with pytest.raises(OutputError, match="was begun with weights"):
        run_table2(bolt_folder, out, grid=grid, options=options, resume=True)
    text = (tmp_path / "s.csv").read_text()
    (tmp_path / "s.csv").write_text(text.replace(",1,9", ",2,9", 1))
    with pytest.raises(OutputError, match="was begun with data"):
        run_table2(sampling_folder, out, grid=grid, options=options, resume=True)
    (tmp_path / "s.csv").write_text(text)
    with monkeypatch.context() as later:
        later.setattr("rankscope_eval.tradeoff.run.CORPUS_VERSION", 9)
        with pytest.raises(OutputError, match=r"was begun with corpus_version \d, not 9"):
            run_table2(sampling_folder, out, grid=grid, options=options, resume=True)
    fresh = run_table2(
        sampling_folder, out, grid=Grid((0.4,), ("svd",)), options=replace(options, how=Forecasting(seed=1)), force=True
    )
    assert [point.ratio for point in fresh.points] == [0.4]


@pytest.mark.slow
def test_a_point_that_cannot_be_had_says_so(chronos2_folder: Path, sampling_folder: Path, tmp_path, options) -> None:
    report = run_table2(sampling_folder, tmp_path / "far", grid=Grid((0.6, 0.01), ("svd",)), options=options)
    assert [point.state for point in report.points] == [DONE, OUT_OF_REACH]
    assert "is out of reach" in report.points[1].reason
    assert "- svd at 0.01: attention-ratio 0.01 is out of reach" in (tmp_path / "far" / "table2.md").read_text()
    both = run_table2(
        chronos2_folder, tmp_path / "2", grid=Grid((0.6,), ("whitened", "joint"), seeds=(0,)), options=options
    )
    assert [point.state for point in both.points] == [DONE, DONE]
    assert all(point.measures.quantile_distance > 0 for point in both.points)
    nothing = run_table2(sampling_folder, tmp_path / "none", grid=Grid((0.01,), ("svd",)), options=options)
    assert nothing.rows[0].state == OUT_OF_REACH
    assert not (tmp_path / "none" / "table2.png").exists()


def test_a_model_that_cannot_be_scored_fails_alone(sampling_folder: Path, tmp_path, options, monkeypatch) -> None:
    compare = ForecastScorer.compare

    def broken(self: Any, folder: Path, *args: Any) -> Any:
        if json.loads((folder / "compress.json").read_text())["asked"] == {"attention-ratio": 0.6}:
            raise DataError("forecasts are NaN.")
        return compare(self, folder, *args)

    monkeypatch.setattr(ForecastScorer, "compare", broken)
    report = run_table2(sampling_folder, tmp_path / "out", grid=Grid((0.6, 0.4), ("svd",)), options=options)
    assert [(point.state, point.reason) for point in report.points] == [(FAILED, "forecasts are NaN."), (DONE, "")]
    assert report.failed == report.points[:1]


def test_a_healing_that_diverges_fails_alone(sampling_folder: Path, tmp_path, options, monkeypatch) -> None:
    def diverged(*_: Any, **__: Any) -> Any:
        raise RankscopeError("the loss is NaN at step 3.")

    monkeypatch.setattr("rankscope_eval.tradeoff.run.heal", diverged)
    grid = Grid((0.6,), ("svd", "svd+healed"), seeds=(0,), heal_steps=3)
    report = run_table2(sampling_folder, tmp_path / "out", grid=grid, options=options)
    states = {point.method: (point.state, point.reason) for point in report.points}
    assert states == {"svd": (DONE, ""), "svd+healed": (FAILED, "the loss is NaN at step 3.")}


@pytest.mark.slow
def test_text_models_are_scored_on_a_text(t5_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text(" ".join(str(2 + (7 * n * n + n // 9) % 61) for n in range(1400)))
    options = TradeoffOptions(text=str(tmp_path / "ids.txt"), calibration="text:4")
    report = run_table2(
        t5_folder, tmp_path / "out", grid=Grid((1.0, 0.5), ("svd", "joint"), seeds=(0, 1)), options=options
    )
    assert report.original.LPPL > 0
    assert report.settings["windows"] == 2
    whole = report.points[0].measures
    assert (whole.relative_LPPL, whole.overlap, whole.relative_WQL) == (1.0, 1.0, None)
    for point in report.points[3:]:
        assert 0 < point.measures.overlap < 1
        assert point.measures.relative_LPPL != 1.0
    assert (tmp_path / "out" / "table2.svg").exists()
    rules = Grid((0.5,), ("joint",), ("energy", "sensitivity"), seeds=(0,))
    both = run_table2(t5_folder, tmp_path / "rules", grid=rules, options=options).points
    assert [(point.state, point.allocation) for point in both] == [("done", "energy"), ("done", "sensitivity")]
    assert both[0].measures.relative_LPPL != both[1].measures.relative_LPPL


@pytest.mark.parametrize(
    ("grid", "options", "part"),
    [
        ({"ratios": (1.2,)}, {}, r"ratio must lie in \(0, 1\]"),
        ({"ratios": ()}, {}, "ratios is empty"),
        ({"methods": ("join",)}, {}, "did you mean 'joint'"),
        ({"methods": ("joint+heald",)}, {}, r"did you mean 'joint\+healed'"),
        ({"heal_steps": 0}, {}, "heal_steps 0 is not usable"),
        ({"allocations": ("enery",)}, {}, "did you mean 'energy'"),
        ({"seeds": (-1,)}, {}, "seed -1"),
        ({"seeds": (1_000_000,)}, {}, "seed 1000000"),
        ({}, {"overlap_series": 0}, "overlap_series 0"),
        ({}, {"sampling_seeds": 0}, "sampling_seeds 0"),
        ({}, {"margin": 0.0}, "share between 0 and 1"),
        ({}, {"suite": "embeded"}, "did you mean 'embedded'"),
        ({}, {"data": "nowhere"}, "data folder nowhere"),
        ({}, {"calibration": "mixture:0"}, "at least 1"),
        ({}, {"calibration": "nowhere.csv"}, "nowhere.csv"),
        ({}, {"text": "x.txt"}, "is a time-series model"),
        ({}, {"how": Forecasting(device="tpu")}, "device 'tpu'"),
        ({}, {"how": Forecasting(dtype="int3")}, "dtype 'int3'"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    bolt_folder: Path, tmp_path: Path, grid: dict[str, Any], options: dict[str, Any], part: str
) -> None:
    with pytest.raises(RankscopeError, match=part):
        run_table2(bolt_folder, tmp_path / "out", grid=Grid(**grid), options=TradeoffOptions(**options))
    assert not (tmp_path / "out").exists()


def test_text_models_want_a_text_and_nothing_else(
    t5_folder: Path, tmp_path: Path, write_checkpoint: Callable[..., Path], tiny_config: Callable[..., Any]
) -> None:
    (tmp_path / "ids.txt").write_text("3 4 5 " * 500)
    text = str(tmp_path / "ids.txt")
    wrong: list[tuple[TradeoffOptions, str]] = [
        (TradeoffOptions(), "--text FILE"),
        (TradeoffOptions(text=text, max_series=3), "max_series applies to forecasts"),
        (TradeoffOptions(text=text, calibration="mixture:8"), "windows of its text, such as text:256"),
        (TradeoffOptions(text=str(tmp_path / "nowhere")), "cannot be read"),
    ]
    for options, part in wrong:
        with pytest.raises((OptionError, DataError), match=part):
            run_table2(t5_folder, tmp_path / "out", options=options)
    config = {**tiny_config("t5"), "is_encoder_decoder": False, "architectures": ["T5EncoderModel"]}
    lone = write_checkpoint(tmp_path / "encoder", config)
    with pytest.raises(FamilyError, match="no decoder"):
        run_table2(lone, tmp_path / "out", options=TradeoffOptions(text=text))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_healed_method_is_the_method_and_then_heal(
    bolt_folder: Path, tmp_path: Path, options: TradeoffOptions
) -> None:
    grid = Grid((0.4,), ("joint", "joint+healed"), seeds=(1,), heal_steps=2)
    report = run_table2(bolt_folder, tmp_path / "out", grid=grid, options=options)
    cut, healed = report.points
    assert (cut.name, cut.heal_steps, cut.measures.heal_seconds) == ("0.4-joint-default-seed1", None, None)
    assert (healed.name, healed.heal_steps) == ("0.4-joint+healed-default-seed1-2steps", 2)
    assert healed.measures.heal_seconds > 0
    sizes = ("reached", "parameters", "bytes", "cache_bytes")
    assert [getattr(cut.measures, name) for name in sizes] == [getattr(healed.measures, name) for name in sizes]
    # the same by hand
    moments = tmp_path / "out" / "calibration" / "seed-1.safetensors"
    calibration = load_calibration(moments)
    how = CompressOptions(attention_ratio=0.4, method="joint", calibration=calibration, seed=1)
    compress(bolt_folder, how, out=tmp_path / "small")
    heal(tmp_path / "small", bolt_folder, HealConfig(steps=2, seed=1), out=tmp_path / "healed", device="cpu")
    again = evaluate([str(tmp_path / "healed")], str(options.suite), Forecasting(), baseline=str(bolt_folder))
    scores = again.summary[0]
    assert healed.measures.relative_WQL == pytest.approx(scores.relative_WQL, rel=1e-6)
    assert healed.measures.relative_WQL != cut.measures.relative_WQL
    # longer healings are rows of their own
    grid = replace(grid, methods=("joint+healed",), heal_steps=3)
    more = run_table2(bolt_folder, tmp_path / "out", grid=grid, options=options, resume=True)
    assert [(row.method, row.heal_steps) for row in more.rows] == [
        ("joint", None),
        ("joint+healed", 2),
        ("joint+healed", 3),
    ]
    assert "| joint+healed, 3 steps |" in (tmp_path / "out" / "table2.md").read_text()
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.name.startswith(("work", ".work"))) == []


def test_what_cannot_be_healed_says_so(
    bolt_folder: Path, tmp_path: Path, options: TradeoffOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FamilyError("no such models can be healed.")

    monkeypatch.setattr(harness, "heal", refuse)
    report = run_table2(bolt_folder, tmp_path / "out", grid=Grid((0.6,), ("svd+healed",), seeds=(0,)), options=options)
    assert report.points[0].state == OUT_OF_REACH
    assert "can be healed" in report.points[0].reason
    assert not (tmp_path / "out" / "work").exists()


@pytest.mark.slow
def test_a_chronos_2_is_healed(chronos2_folder: Path, tmp_path: Path, options: TradeoffOptions) -> None:
    grid = Grid((0.6,), ("svd+healed",), seeds=(0,), heal_steps=2)
    (point,) = run_table2(chronos2_folder, tmp_path / "out", grid=grid, options=options).points
    assert point.measures.heal_seconds > 0
    assert np.isfinite(point.measures.relative_WQL)
