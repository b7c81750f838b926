"""Printed values are consistent among themselves, and verdicts judge them as stated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankscope_lab.encoders.published import (
    Published,
    agrees,
    disagreements,
    published_seeds,
    published_tests,
    published_value,
    verdict,
)
from rankscope_lab.encoders.run_spec import DROP_IN, ENCODERS

TABLES = [str(number) for number in range(1, 14)]


def mean(table: str, setting: str, encoder: str, measure: str) -> float:
    found = published_value(table, setting, encoder, measure)
    assert found is not None
    return found.mean


@pytest.mark.parametrize("encoder", DROP_IN)
def test_tables_agree_where_they_print_the_same_runs(encoder: str) -> None:
    for measure in ("nll", "accuracy"):
        assert mean("1", "C=4", encoder, measure) == mean("2", "C=4", encoder, measure)
        assert mean("1", "C=4", encoder, measure) == pytest.approx(mean("4", "d=64", encoder, measure), abs=0.0011)


@pytest.mark.parametrize("encoder", ["mlp", "linear-ppe", "linear", "linear-ortho", "concat"])
def test_changes_are_differences(encoder: str) -> None:
    change = mean("3", "N=5120", encoder, "nll") - mean("3", "N=512", encoder, "nll")
    assert mean("3", "change", encoder, "nll") == pytest.approx(change, abs=1.1e-3)
    assert mean("3", "N=512", encoder, "nll") == mean("2", "C=16", encoder, "nll")


def test_probe_means_and_shares_add_up() -> None:
    for layer in ("layer 0", "layer 3"):
        for encoder in DROP_IN:
            average = sum(mean("8", layer, encoder, f"ch{k}") for k in range(4)) / 4
            assert mean("8", layer, encoder, "mean") == pytest.approx(average, abs=1.1e-3)
    for setting in ("C=8", "C=16"):
        shares = [mean("7", setting, "linear", f"{who}_share") for who in ("driver", "distractor")]
        assert sum(shares) == pytest.approx(1, abs=1e-9)


def test_paired_differences_follow_from_the_means_of_table_2() -> None:
    tests = [one for one in published_tests() if one.setting in ("C=4", "C=8", "C=16") and one.difference is not None]
    assert len(tests) >= 9
    for one in tests:
        means = [mean("2", one.setting, encoder, "nll") for encoder in (one.better, one.other)]
        assert one.difference == pytest.approx(means[1] - means[0], abs=1.6e-3), one


def test_every_table_has_seeds_and_every_test_known_encoders() -> None:
    assert [published_seeds(table) for table in TABLES] == [20, 20, 20, 20, 20, 5, 20, 1, 1, 5, 20, 5, 20]
    for one in published_tests():
        assert {one.better, one.other} <= set(ENCODERS)
        assert one.wins is None or 0 <= one.wins <= one.n
    assert len(disagreements()) == 10
    assert published_value("1", "C=4", "linear", "colour") is None


def test_values_are_those_printed(shared_folder: Path) -> None:
    printed = json.loads((shared_folder / "reference/encoder_audit_tables.json").read_text())
    for setting, rows in printed["table2_channel_scaling"]["rows"].items():
        for encoder, row in rows.items():
            assert published_value("2", setting, encoder, "nll") == Published(**row["val_nll"])
    for encoder, row in printed["table13_etth1"]["rows"].items():
        assert published_value("13", "ETTh1", encoder, "accuracy") == Published(**row["val_acc"])
    for encoder, row in printed["table9_mask_acc_C4_seed0"]["rows"].items():
        found = [mean("9", "C=4", encoder, f"ch{k}") for k in range(4)]
        assert found == row["masked_ch0_3"]
    stated = {(one.setting, one.better, one.other): one.p for one in published_tests() if one.stated == "paper"}
    assert sorted(stated.values()) == sorted(one["p"] for one in printed["text_paired_tests"])


def test_verdicts_go_by_print_then_interval_then_our_spread() -> None:
    by_print = Published(2.0, std=0.125)
    assert [verdict(x, by_print) for x in (2.125, 1.875, 2.25, 1.7)] == ["within", "within", "within 2", "outside"]
    assert verdict(2.2, by_print, ours=9.0) == "within 2"
    by_interval = Published(2.0, interval=(1.9, 2.1))
    assert [verdict(x, by_interval, ours=9.0) for x in (1.9, 2.2)] == ["inside", "outside"]
    alone = Published(2.0)
    assert [verdict(2.25, alone, ours=spread) for spread in (0.25, 0.125, 0.1, None)] == [
        "within",
        "within 2",
        "outside",
        "",
    ]
    assert [verdict(x, Published(320.0), exact=True) for x in (320.0, 321.0)] == ["equal", "differs"]
    assert verdict(None, by_print) == verdict(1.0, None) == ""


def test_paired_tests_agree_by_sign_and_level() -> None:
    assert agrees(0.03, 0.001, 0.04, 1e-6) is True
    assert agrees(-0.03, 0.001, 0.04, 1e-6) is False
    assert agrees(0.03, 0.2, 0.04, 1e-6) is False
    assert agrees(-0.001, 0.6, 0.01, 0.14) is True
    assert agrees(0.01, 0.01, None, 0.001) is True
    assert agrees(0.01, None, 0.01, 0.1) is None


def test_print_may_be_off_by_half_of_its_last_digit() -> None:
    printed = Published(7.59)
    assert [verdict(7.586, printed, ours=0.0, rounding=r) for r in (0.005, 0.0)] == ["within", "outside"]
    inside = Published(0.005, interval=(0.005, 0.006))
    assert [verdict(0.0063, inside, rounding=r) for r in (0.0005, 0.0)] == ["inside", "outside"]
