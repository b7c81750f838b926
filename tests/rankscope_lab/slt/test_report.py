"""Tables against numbers worked out by hand, published ones against the paper."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from rankscope.errors import OptionError
from rankscope.io import codec
from rankscope_lab.slt.ablations import Setting, ablation
from rankscope_lab.slt.published import (
    OWN_SPREAD,
    PUBLISHED_NOISE,
    published_gain,
    published_mse,
    published_noise,
    published_speed_up,
    verdict,
)
from rankscope_lab.slt.report import study_report
from rankscope_lab.slt.run_spec import Epoch, RunResult, RunSpec, Score, WindowCounts
from rankscope_lab.slt.runs import settings_of, study_specs
from rankscope_lab.statistics import spread


def ran(model: str, seed: int, tests: list[float], *, seconds: float = 1.0, **changes: Any) -> RunResult:
    """A run whose test MSE after each epoch is given; validation is a tenth below, best where the test is."""
    epochs = tuple(
        Epoch(number, Score(1.0, 1.0), Score(0.9 * mse, 0.5), Score(mse, mse / 2), seconds)
        for number, mse in enumerate(tests, start=1)
    )
    spec = RunSpec(changes.pop("dataset", "ETTh1"), model, seed=seed, **changes)
    return RunResult(spec, epochs, 100, 7, WindowCounts(9, 8, 7), windows_per_second=(120.0 / seconds, 1.0, 200.0))


RUNS = [
    *(ran("slt", seed, [0.9, mse], seconds=2.0) for seed, mse in enumerate((0.44, 0.43, 0.45))),
    *(ran("patchtst", seed, [0.4, mse], seconds=3.0) for seed, mse in enumerate((0.46, 0.44, 0.48))),
]


def test_rows_hold_mean_and_sample_deviation() -> None:
    slt, patchtst = study_report(RUNS).rows
    assert (slt.model, patchtst.model) == ("slt", "patchtst")
    assert slt.mse.mean == pytest.approx(0.44)
    assert slt.mse.std == pytest.approx(math.sqrt((0 + 0.01**2 + 0.01**2) / 2))
    assert slt.mae.mean == pytest.approx(0.22)
    assert (slt.mse.n, slt.diverged) == (3, 0)
    assert slt.seconds_per_epoch == 2.0
    assert patchtst.windows_per_second == 40.0


def test_diverged_runs_are_counted_and_kept_out() -> None:
    report = study_report([*RUNS, ran("slt", 3, [math.nan])])
    slt = report.rows[0]
    assert (slt.mse.n, slt.diverged, slt.mse.mean) == (3, 1, pytest.approx(0.44))
    assert report.diverged == ("ETTh1-released-slt-e10-s3",)
    alone = study_report([ran("slt", 0, [math.nan])])
    assert (alone.rows[0].mse.n, alone.rows[0].verdict) == (0, None)
    json.dumps(codec.plain(alone))


def test_settings_are_compared_by_seed() -> None:
    (comparison,) = study_report(RUNS, ["published"]).comparisons
    gaps = [0.44 - 0.46, 0.43 - 0.44, 0.45 - 0.48]
    assert comparison.mse.difference.mean == pytest.approx(sum(gaps) / 3)
    assert comparison.mse.p == pytest.approx(stats.ttest_1samp(gaps, 0.0).pvalue)
    assert comparison.mse.lower == 3
    assert comparison.relative == pytest.approx(sum(gaps) / 3 / 0.46)
    half = stats.t.ppf(0.975, 2) * spread(gaps).std / math.sqrt(3)
    assert (comparison.mse.low, comparison.mse.high) == (pytest.approx(-0.02 - half), pytest.approx(-0.02 + half))
    assert comparison.mse.clear == (half < 0.02)


def test_best_epochs_are_compared_with_last_ones() -> None:
    report = study_report(RUNS, ["choice"])
    by_model = {one.first: one.mse.difference.mean for one in report.comparisons}
    assert by_model["slt, best"] == pytest.approx(0.0)
    assert by_model["patchtst, best"] == pytest.approx(0.4 - 0.46)


def test_equal_time_takes_what_the_slower_model_had_by_then() -> None:
    """SLT takes 4 s for its two epochs; by then PatchTST-like has done one of 3 s."""
    (comparison,) = study_report(RUNS, ["time"]).comparisons
    assert comparison.second == "patchtst, same time"
    assert comparison.mse.difference.mean == pytest.approx(0.44 - 0.4)


def test_ratios_are_above_1_where_slt_is_faster() -> None:
    (ratio,) = study_report(RUNS).speed_ups
    assert (ratio.training, ratio.inference) == (pytest.approx(1.5), pytest.approx(1.5))
    assert ratio.gain == pytest.approx(1 - 0.44 / 0.46)
    assert ratio.published == 1.36


def test_published_ratios_stand_beside_the_published_settings_only() -> None:
    runs = [ran(model, 0, [0.9, 0.4], epochs=2, lookback=48) for model in ("slt", "patchtst")]
    (ratio,) = study_report(runs).speed_ups
    assert (ratio.published, ratio.published_gain) == (None, None)


def test_tables_and_protocols_are_kept_apart() -> None:
    runs = [*RUNS, ran("slt", 0, [0.2], dataset="ETTh2"), ran("slt", 0, [0.3], protocol="field", revin=True)]
    rows = {(row.dataset, row.protocol, row.model): row for row in study_report(runs).rows}
    assert len(rows) == 4
    assert rows["ETTh2", "released", "slt"].mse.mean == 0.2
    assert rows["ETTh1", "field", "slt+revin"].verdict is None
    frame = study_report(runs).to_frame()
    assert frame["model"].tolist() == ["slt", "patchtst", "slt", "slt+revin"]
    assert frame["published"].tolist()[:2] == [0.4387, 0.4450]


def test_published_numbers_are_those_of_the_paper() -> None:
    assert published_mse(RunSpec("ETTh2", "slt")) == 0.1941
    assert published_mse(RunSpec("weather", "nbeats")) == 0.1737
    for spec in (
        RunSpec("ETTh1", "slt", "field"),
        RunSpec("ETTh1", "slt", revin=True),
        RunSpec("ETTh1", "slt", epochs=9),
    ):
        assert published_mse(spec) is None
    assert published_mse(RunSpec("ETTh1", "head")) is None
    noise = {model: round(published_noise("ETTh1", model) or 0, 3) for model in ("patchtst", "slt", "nbeats")}
    assert noise == {"patchtst": 0.022, "slt": 0.004, "nbeats": 0.012}
    assert published_noise("ETTh2", "slt") is None
    gains = {"Weather": 3.7, "Traffic": 1.8, "ETTh1": 1.4, "ETTh2": 20.4, "ETTm1": 11.0, "ETTm2": 5.4}
    for name, gain in gains.items():
        assert 100 * (published_gain(name) or 0) == pytest.approx(gain, abs=0.06)
    assert published_speed_up("traffic") == 1.38
    assert published_gain("made") is None


def test_verdicts_say_what_they_rest_on() -> None:
    near = verdict(RunSpec("ETTh1", "patchtst"), 0.4600, 0.001)
    assert near is not None
    assert (near.word, near.basis, round(near.difference, 4)) == ("within", PUBLISHED_NOISE, 0.015)
    words = {}
    for mean, std in ((0.20, 0.004), (0.20, 0.002), (0.19, 0.001), (0.20, None)):
        found = verdict(RunSpec("ETTh2", "slt"), mean, std)
        assert found is not None
        words[mean, std] = (found.word, found.basis)
    assert words == {
        (0.20, 0.004): ("within", OWN_SPREAD),
        (0.20, 0.002): ("higher", OWN_SPREAD),
        (0.19, 0.001): ("lower", OWN_SPREAD),
        (0.20, None): ("–", ""),
    }
    assert verdict(RunSpec("ETTh1", "dlinear"), 0.4, None) is None


def test_runs_come_seed_by_seed_and_once() -> None:
    settings = settings_of(["slt", "naive"], ["published", "revin"])
    trained = ["slt", "patchtst", "nbeats", "dlinear"]
    assert sorted(map(str, settings)) == sorted(["naive", *trained, *(f"{one}+revin" for one in trained)])
    specs = study_specs(settings, ["ETTh1", "ETTh2"], ["released"], 2, epochs=3, precision="bfloat16")
    assert len(specs) == len(set(specs)) == 2 * (2 * 8 + 1)
    assert [spec.seed for spec in specs] == [0] * 18 + [1] * 16
    naive = [spec for spec in specs if spec.model == "naive"]
    assert {(spec.epochs, spec.precision, spec.seed) for spec in naive} == {(0, "float32", 0)}
    assert settings_of(["slt", "naive"], [], revin=True) == [Setting("slt"), Setting("naive"), Setting("slt", True)]


def test_blocks_and_positions_are_averaged_over_the_other() -> None:
    """Blocks gain 0.02, positions 0.01, both together 0.004 more; the seed of one setting is missing."""
    means = {"patchtst": 0.5, "patchtst-mult": 0.49, "slt-additive": 0.48, "slt": 0.466}
    runs = [ran(model, seed, [mean + 0.001 * seed]) for model, mean in means.items() for seed in range(3)]
    runs = [run for run in runs if (run.spec.model, run.spec.seed) != ("patchtst-mult", 2)]
    found = {(one.first, one.second): one.mse.difference for one in study_report(runs, ["block-position"]).comparisons}
    assert found["slt & slt-additive", "patchtst-mult & patchtst"].mean == pytest.approx(-0.022)
    assert found["slt & patchtst-mult", "slt-additive & patchtst"].mean == pytest.approx(-0.012)
    assert found["slt & patchtst", "slt-additive & patchtst-mult"].mean == pytest.approx(-0.002)
    assert found["slt & patchtst", "slt-additive & patchtst-mult"].n == 2
    assert found["slt-additive", "patchtst"].mean == pytest.approx(-0.02)
    assert found["slt-additive", "patchtst"].n == 3


def test_weights_of_the_best_validation_on_both_sides() -> None:
    found = {(one.first, one.second): one for one in study_report(RUNS, ["validated"]).comparisons}
    assert found["slt", "patchtst"].mse.difference.mean == pytest.approx((0.44 + 0.43 + 0.45) / 3 - 0.4)
    slt, patchtst = study_report(RUNS).rows
    assert slt.best_mse.mean == pytest.approx(0.44)
    assert patchtst.best_mse.mean == pytest.approx(0.4)


def test_a_misspelt_ablation_is_refused() -> None:
    with pytest.raises(OptionError, match="did you mean 'offset'"):
        ablation("ofset")


RESULTS = Path(__file__).parents[3] / "benchmarks/results/lab/slt"


def test_the_stored_runs_give_the_verdicts_of_the_page() -> None:
    """By the rules of the script two models are within what was published, SLT is below it and ahead."""
    runs = [
        codec.read(RunResult, file)
        for table in ("ETTh1", "ETTh2")
        for model in ("slt", "patchtst", "nbeats")
        for file in sorted(RESULTS.glob(f"{table}-released-{model}-e10-s*.json"))
    ]
    rows = {(row.dataset, row.model): row for row in study_report(runs).rows}
    assert all(row.mse.n == 3 for row in rows.values())
    found = {key: row.verdict.word for key, row in rows.items() if row.verdict is not None}
    expected = {"slt": "lower", "patchtst": "within", "nbeats": "within"}
    assert found == {(table, model): said for table in ("ETTh1", "ETTh2") for model, said in expected.items()}
    assert all(rows[table, "slt"].mse.mean < rows[table, "patchtst"].mse.mean for table in ("ETTh1", "ETTh2"))
