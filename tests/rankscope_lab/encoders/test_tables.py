"""Tables of made-up runs: printed values give printed tables, loops give the same means, gaps are said."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from scipy.stats import ttest_rel

from rankscope.io import codec
from rankscope_lab.encoders.published import published_seeds, published_value
from rankscope_lab.encoders.run_spec import Point, RunResult, RunSpec, etth1_spec
from rankscope_lab.encoders.tables.compute import compute_paired, compute_table, paired_runs, table_runs
from rankscope_lab.encoders.tables.paper import TABLES
from rankscope_lab.encoders.tables.spec import Protocol, Row, TableResult, convergence


def run(spec: RunSpec, loss: float = 2.0, accuracy: float = 0.2, **more: Any) -> RunResult:
    points = (Point(1, 3.0, loss + 1, 0.0), Point(20, 2.5, loss, accuracy), Point(40, 2.0, loss + 0.1, 0.9))
    return RunResult(spec, points, **{"parameters": 7, "encoder_parameters": 5, "seconds": 1.0, **more})


def runs(made: Iterable[RunResult]) -> dict[RunSpec, RunResult]:
    return {one.spec: one for one in made}


def only(table: TableResult, setting: str, encoder: str, measure: str) -> Row:
    (row,) = [row for row in table.rows if (row.setting, row.encoder, row.measure) == (setting, encoder, measure)]
    return row


@pytest.mark.parametrize(
    ("table", "count"),
    [
        ("1", 160),
        ("2", 160 + 160 + 140),
        ("3", 200),
        ("4", 360),
        ("5", 40),
        ("6", 15),
        ("7", 40),
        ("8", 12),  # both layers of the same six runs
        ("9", 8),
        ("10", 40),
        ("11", 40),
        ("12", 60),
        ("13", 160),
        ("bias", 10),
    ],
)
def test_a_table_needs_the_runs_of_the_paper(table: str, count: int) -> None:
    specs = table_runs(TABLES[table], Protocol(seeds=20))
    assert len(specs) == count
    assert {spec.epochs for spec in specs} == {300}
    assert len(table_runs(TABLES[table], Protocol(seeds=2, epochs=40))) == count // published_seeds(table) * min(
        2, published_seeds(table)
    )


@pytest.mark.parametrize("table", TABLES)
def test_every_number_of_a_table_is_printed_and_no_other(table: str) -> None:
    found = compute_table(TABLES[table], {}, Protocol(seeds=20))
    unprinted = {row.measure for row in found.rows if row.published is None}
    assert unprinted == ({"cos_mean", "cos_max"} if table == "bias" else set())
    assert all(math.isnan(row.summary.mean) and row.verdict == "" for row in found.rows)
    assert "runs are missing" in " ".join(found.notes)


def printed_run(table: str, setting: str, spec: RunSpec, sign: float) -> RunResult:
    """A run as far from the printed means as ``sign`` printed deviations."""

    def value(measure: str) -> float:
        found = published_value(table, setting, spec.encoder, measure)
        assert found is not None
        return found.mean + sign * (found.std or 0.0)

    gram = {"mean": 0.0, "max": 0.0}
    if table in ("5", "6"):
        gram = {"mean": value("cos_mean"), "max": value("cos_max")}
    accuracy = value("accuracy") if table in ("1", "2", "4", "13") else 0.0
    counts = {}
    if table == "1":
        counts["encoder_parameters"] = int(value("encoder_parameters"))
    if table == "4":
        counts["parameters"] = int(value("parameters"))
    return run(spec, value("nll"), accuracy, diagnostics={"gram": gram}, **counts)


@pytest.mark.parametrize(("sign", "expected"), [(0.0, "within"), (1.5, "within 2"), (-2.5, "outside")])
@pytest.mark.parametrize("table", ["1", "2", "4", "5", "6", "13"])
def test_runs_at_the_printed_means_reproduce_the_table(table: str, sign: float, expected: str) -> None:
    printed = TABLES[table]
    made = {
        setting.spec(encoder, seed, 300): printed_run(table, setting.name, setting.spec(encoder, seed, 300), sign)
        for setting in printed.settings
        for encoder in setting.encoders
        for seed in range(published_seeds(table))
    }
    found = compute_table(printed, made, Protocol(seeds=20))
    for row in found.rows:
        assert row.published is not None
        assert row.difference == pytest.approx(sign * (row.published.std or 0.0), abs=1e-9)
        assert row.verdict == ("equal" if "parameters" in row.measure else expected)
        assert row.summary.n == published_seeds(table)


def test_means_are_over_the_printed_seeds_and_leave_out_diverged_runs() -> None:
    losses = [2.0, 2.1, 2.4, math.nan, 2.2, 9.9, 8.8]
    made = runs(run(RunSpec("linear", channels=16, seed=s, objective="mse"), v) for s, v in enumerate(losses))
    found = compute_table(TABLES["12"], made, Protocol(seeds=7))
    row = only(found, "C=16", "linear", "mse")
    finite = [2.0, 2.1, 2.4, 2.2]  # Table 12 is printed from seeds 0 to 4
    mean = sum(finite) / 4
    assert row.summary.mean == pytest.approx(mean)
    assert row.summary.std == pytest.approx(math.sqrt(sum((v - mean) ** 2 for v in finite) / 3))
    assert (row.summary.n, row.wanted, row.diverged) == (4, 5, 1)
    assert row.overall.n == 6
    assert any(
        "1 run is in no mean, having diverged: synthetic-c16-n512-d64-mse-e300-linear-s3" in n for n in found.notes
    )


def test_rows_without_a_printed_spread_are_judged_by_ours() -> None:
    def probed(seed: int, value: float) -> RunResult:
        return run(RunSpec("linear", seed=seed), diagnostics={"probe": [[1.0] * 4, [0.0] * 4, [0.0] * 4, [value] * 4]})

    printed = published_value("8", "layer 3", "linear", "ch0")
    assert printed is not None
    values = [printed.mean + 0.03, printed.mean - 0.05, printed.mean + 0.02]
    found = compute_table(TABLES["8"], runs(probed(s, v) for s, v in enumerate(values)), Protocol(seeds=3))
    row = only(found, "layer 3", "linear", "ch0")
    assert row.summary.mean == pytest.approx(values[0])  # printed from seed 0 alone
    assert (row.summary.n, row.overall.n, row.verdict) == (1, 3, "within")
    alone = compute_table(TABLES["8"], runs([probed(0, values[0])]), Protocol(seeds=1))
    assert only(alone, "layer 3", "linear", "ch0").verdict == ""


def test_costs_are_relative_to_linear_of_the_same_seeds_and_not_judged() -> None:
    made = [run(RunSpec("linear", seed=s), seconds=10.0 + s) for s in range(3)]
    made += [run(RunSpec("ci", seed=s), seconds=33.0) for s in range(2)]
    row = only(compute_table(TABLES["10"], runs(made), Protocol(seeds=5)), "C=4", "ci", "cost")
    assert row.summary.mean == pytest.approx(33 / 10.5)
    assert row.verdict == ""


def test_costs_leave_out_runs_that_were_cut_and_runs_of_another_machine() -> None:
    made = [run(RunSpec("linear", seed=s), seconds=10.0, machine="one" if s else "other") for s in range(4)]
    made += [run(RunSpec("ci", seed=s), seconds=20.0 + s, machine="one", stopped=9 * (s == 3)) for s in range(4)]
    row = only(compute_table(TABLES["10"], runs(made), Protocol(seeds=5)), "C=4", "ci", "cost")
    assert row.values == {1: 2.1, 2: 2.2}


@pytest.mark.parametrize(("epoch", "verdict"), [(140, "within"), (160, "outside")])
def test_epochs_are_judged_to_half_of_the_grid_that_they_lie_on(epoch: int, verdict: str) -> None:
    """Printed is 144, a mean over seeds; without spread all of ours are at one validation."""
    points = (Point(1, 3.0, 3.0, 0.0), Point(epoch, 2.0, 2.0, 0.0))
    made = [replace(run(RunSpec("mlp", seed=s)), points=points) for s in range(5)]
    assert only(compute_table(TABLES["10"], runs(made), Protocol(seeds=5)), "C=4", "mlp", "epoch").verdict == verdict


def test_convergence_is_the_first_validation_near_the_best() -> None:
    points = tuple(Point(e, 0.0, v, 0.0) for e, v in [(1, 3.4), (20, 2.0501), (40, 2.0499), (60, 2.1), (80, 2.0)])
    assert convergence(replace(run(RunSpec("linear")), points=points)) == 40


def test_contrasts_are_differences_seed_by_seed() -> None:
    def placed(encoder: str, seed: int, overlap: float) -> RunResult:
        position = {"overlap": overlap, "effective_rank": 7.59, "sigma": [52.0, 1.0], "energy": 5120.0}
        return run(RunSpec(encoder, seed=seed), diagnostics={"position": position})

    made = [placed("linear", s, v) for s, v in enumerate([0.03, 0.04, 0.035, 0.1])]
    made += [placed("linear-ppe", s, v) for s, v in enumerate([0.005, 0.006, 0.004])]
    found = compute_table(TABLES["11"], runs(made), Protocol(seeds=20))
    row = only(found, "change", "linear-ppe", "overlap")
    assert row.values == pytest.approx({0: -0.025, 1: -0.034, 2: -0.031})
    assert row.verdict == "inside"
    assert row.interval is not None
    assert row.interval[0] <= row.summary.mean <= row.interval[1]  # type: ignore[operator]
    assert only(found, "C=4", "linear", "sigma0").summary.mean == 52.0


def test_shares_and_norms_of_drivers_and_distractors() -> None:
    diagnostics = {"norms": [1.0, 1.0, 1.0, 3.0, 0.5, 0.5, 0.5, 0.1], "variance_shares": [0.2] * 4 + [0.05] * 4}
    made = runs([run(RunSpec("linear", channels=8), diagnostics=diagnostics)])
    found = {
        row.measure: row.summary.mean
        for row in compute_table(TABLES["7"], made, Protocol(seeds=20)).rows
        if row.setting == "C=8"
    }
    assert found == pytest.approx(
        {"driver_norm": 1.5, "distractor_norm": 0.4, "driver_share": 0.8, "distractor_share": 0.2}
    )


def test_cut_short_and_left_out_are_said() -> None:
    made = runs([replace(run(RunSpec("linear")), stopped=60)])
    notes = " ".join(compute_table(TABLES["1"], made, Protocol(seeds=1, encoders=("linear", "mlp"))).notes)
    assert "1 of 2 runs are missing (mlp)" in notes
    assert "cut short, the shortest after epoch 60" in notes
    assert "Left out: sum, ci, cat, concat, linear-ortho, linear-ppe." in notes


def test_paired_tests_are_those_of_scipy_on_the_best_losses() -> None:
    ppe = [2.10, 2.12, 2.09, 2.15]
    linear = [2.14, 2.13, 2.16, 2.14]
    made = [run(RunSpec("linear-ppe", seed=s), v) for s, v in enumerate(ppe)]
    made += [run(RunSpec("linear", seed=s), v) for s, v in enumerate(linear)]
    table = compute_paired(runs(made), Protocol(seeds=20, encoders=("linear", "linear-ppe")))
    first = table.rows[0]
    assert (first.published.setting, first.published.better, first.published.other) == ("C=4", "linear-ppe", "linear")
    assert first.measured is not None
    assert first.measured.p == pytest.approx(ttest_rel(linear, ppe).pvalue)
    assert (first.measured.higher, first.measured.difference.n) == (3, 4)
    assert first.interval is not None
    assert first.interval[0] < first.measured.difference.mean < first.interval[1]
    assert first.agrees is False  # too few seeds for the printed significance
    assert table.rows[1].measured is None
    assert any("runs are missing" in note for note in table.notes)


def test_paired_tests_need_the_runs_of_their_settings() -> None:
    specs = paired_runs(Protocol(seeds=2, encoders=("cat", "linear")))
    assert specs == [etth1_spec(encoder, seed) for encoder in ("cat", "linear") for seed in (0, 1)]


def test_tables_are_json() -> None:
    import json

    made = runs([run(RunSpec("linear"))])
    text = json.dumps(
        codec.plain(compute_table(TABLES["1"], made, Protocol(seeds=1, encoders=("linear",)))), allow_nan=False
    )
    assert json.loads(text)["rows"][0]["values"] == {"0": 2.0}
    json.dumps(codec.plain(compute_paired(made, Protocol(seeds=1))), allow_nan=False)


def test_the_order_of_drops_is_checked_seed_by_seed_and_ties_of_print_may_fall_either_way() -> None:
    def dropped(encoder: str, seed: int, *masked: float) -> RunResult:
        return run(RunSpec(encoder, seed=seed), diagnostics={"mask": {"none": 0.25, "masked": list(masked)}})

    made = [
        dropped("linear", 0, 0.09, 0.12, 0.11, 0.20),  # printed: 0 2 1 3
        dropped("linear", 1, 0.09, 0.10, 0.11, 0.20),
        dropped("linear", 2, 0.09, 0.13, 0.11, 0.20),
        dropped("cat", 0, 0.09, 0.12, 0.11, 0.20),  # channels 1 and 2 are printed alike
        dropped("cat", 1, 0.09, 0.10, 0.11, 0.20),
        dropped("mlp", 0, 0.20, 0.12, 0.11, 0.09),
    ]
    checks = {check.subject: check for check in compute_table(TABLES["9"], runs(made), Protocol(seeds=3)).checks}
    assert [(name, one.holds, one.seeds, one.n) for name, one in checks.items()] == [
        ("cat", True, 2, 2),
        ("linear", True, 2, 3),
        ("mlp", False, 0, 1),
    ]
    assert checks["linear"].claim.endswith("0 2 1 3")
