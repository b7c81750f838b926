"""Findings against the numbers of the released runs and data, loops, and arithmetic on positions."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from scipy.stats import ttest_rel

from rankscope.io import codec
from rankscope_lab.encoders.data import Part, RunData, bin_baselines, etth1_data, run_data, transition_table
from rankscope_lab.encoders.diagnostics import diagnose
from rankscope_lab.encoders.findings import Finding, FindingsTable, compute_findings, finding_runs
from rankscope_lab.encoders.models import build
from rankscope_lab.encoders.run_spec import Point, RunResult, RunSpec
from rankscope_lab.encoders.tables.spec import Protocol


def only(table: FindingsTable, topic: str, quantity: str, subject: str) -> Finding:
    (row,) = [row for row in table.rows if (row.topic, row.quantity, row.subject) == (topic, quantity, subject)]
    return row


def run(encoder: str, seed: int, loss: float, free: float, energy: float = 1.0) -> RunResult:
    diagnostics = {
        "prefix": {"nll": loss, "free_nll": free, "accuracy": 0.2, "free_accuracy": 0.17},
        "position": {"energy": energy, "sigma": [5.0, 1.0], "effective_rank": 2.0, "overlap": 0.1},
        "gram": {"mean": 0.04, "max": 0.1},
    }
    spec = RunSpec(encoder, seed=seed)
    return RunResult(spec, (Point(300, 2.0, loss, 0.2),), 1, 1, 1.0, diagnostics=diagnostics)


def test_what_needs_no_run_is_as_expected() -> None:
    table = compute_findings({}, Protocol(seeds=20))
    measured = [row for row in table.rows if row.mean is not None and row.expected is not None]
    assert len(measured) == 1 + 3 + 6  # zeros of the data, the untrained projection, chance
    for row in measured:
        assert row.mean == pytest.approx(row.expected, rel=0.06 if row.quantity == "share in span W" else 0.03), row
    # a bin of equal mass would hold 1/32: the one that starts at 0 holds more, the one below less
    assert 0.051 <= (only(table, "zeros", "share of the bin at 0", "data").mean or 0) <= 0.057
    assert 0.005 <= (only(table, "zeros", "share of the bin below", "data").mean or 0) <= 0.012
    notes = " ".join(table.notes)
    assert "80 of 80 runs are missing (linear, linear-ppe, linear-scaled, linear-rotated)" in notes
    assert "--data" in notes
    assert len(table.disagreements) == 10


def test_gaps_are_paired_and_linear_less_the_other() -> None:
    linear, ppe = [2.15, 2.17, 2.14], [2.11, 2.15, 2.12]
    made = [run("linear", s, v, v + 0.08) for s, v in enumerate(linear)]
    made += [run("linear-ppe", s, v, v + 0.07, 1617.0) for s, v in enumerate(ppe)]
    made += [run("linear-rotated", 0, math.nan, math.nan)]
    table = compute_findings({one.spec: one for one in made}, Protocol(seeds=3))
    gap = only(table, "positions", "best NLL", "linear-ppe, gain")
    assert gap.mean == pytest.approx((0.04 + 0.02 + 0.02) / 3)
    assert gap.p == pytest.approx(ttest_rel(linear, ppe).pvalue)
    assert only(table, "zeros", "NLL without them", "linear-ppe, gain").mean == pytest.approx((0.05 + 0.03 + 0.03) / 3)
    assert only(table, "positions", "‖P‖²", "linear-ppe").mean == 1617.0
    assert only(table, "positions", "best NLL", "linear-rotated").mean is None
    assert any("1 run is in no mean" in note for note in table.notes)
    assert json.loads(codec.text(table))["rows"]


def test_a_fresh_linear_model_has_the_sinusoids_size_and_pays_for_positions_that_count() -> None:
    spec = RunSpec("linear", series=64)
    torch.manual_seed(0)
    data = run_data(spec)
    found = diagnose(spec, build(spec), data)
    result = RunResult(RunSpec("linear"), (Point(300, 3.5, 3.5, 0.0),), 1, 1, 1.0, diagnostics=found)
    table = compute_findings({result.spec: result}, Protocol(seeds=1))
    for quantity in ("‖P‖²", "top singular value", "effective rank"):
        row = only(table, "positions", quantity, "linear")
        assert row.mean == pytest.approx(row.expected, rel=1e-3)
    # 159 scored positions, of which 6 lie in the zeros
    prefix = found["prefix"]
    start = (159 * prefix["nll"] - 153 * prefix["free_nll"]) / 6
    labels = data.validation.targets
    assert bool((labels[:, 1:7] == labels[0, 0]).all())
    assert start > 0


def test_runs_are_the_four_kinds_of_positions() -> None:
    assert len(finding_runs(Protocol(seeds=20))) == 80
    assert {spec.encoder for spec in finding_runs(Protocol(seeds=1, encoders=("mlp", "linear-scaled")))} == {
        "linear-scaled"
    }


def test_baselines_equal_a_loop() -> None:
    draw = torch.Generator().manual_seed(0)
    train, held = torch.randint(3, (4, 9), generator=draw), torch.randint(3, (2, 6), generator=draw)
    counts = [[0.5] * 3 for _ in range(3)]
    for series in train.tolist():
        for a, b in pairwise(series):
            counts[a][b] += 1
    steps = [(a, b) for series in held.tolist() for a, b in pairwise(series)]
    nll = -sum(math.log(counts[a][b] / sum(counts[a])) for a, b in steps) / len(steps)
    share = [train.flatten().tolist().count(k) / 36 for k in range(3)]
    marginal = -sum(math.log(share[b]) for _, b in steps) / len(steps)
    inputs = torch.zeros(4, 9, 1), torch.zeros(2, 6, 1)
    found = bin_baselines(RunData(Part(inputs[0], train), Part(inputs[1], held)), bins=3)
    assert found["transition"] == pytest.approx(nll)
    assert found["marginal"] == pytest.approx(marginal)
    assert found["current"] == pytest.approx(sum(a == b for a, b in steps) / len(steps))
    assert transition_table(train, 3).sum(1).tolist() == pytest.approx([1.0] * 3)


def test_baselines_of_etth1_are_those_known(etth1: Path) -> None:
    table = compute_findings({}, Protocol(seeds=1), etth1_data(str(etth1)))
    rows = [row for row in table.rows if row.topic == "baselines"]
    assert len(rows) == 5
    for row in rows:
        assert row.mean == pytest.approx(row.expected, abs=5e-3 if row.quantity == "share of labels" else 6e-4), row
