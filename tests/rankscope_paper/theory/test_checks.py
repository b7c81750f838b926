"""Every check holds, says where its worst instance was, and fails when its bound is broken."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from rankscope.errors import OptionError
from rankscope.io import codec
from rankscope_paper import bounds
from rankscope_paper.theory.check import CheckResult, instance, run_check, verdict
from rankscope_paper.theory.checks import CHECKS
from rankscope_paper.theory.checks.embedding import ACTIVATIONS
from rankscope_paper.theory.run import TheoryReport, run_theory

FEW = {"cor2": 25, "thm2": 150, "thm6-lower": 24, "thm6-upper": 24, "thm4-lower": 30, "cor1-lower": 30}


def few(name: str) -> int:
    return FEW.get(name, 60)


@pytest.mark.parametrize("name", CHECKS)
def test_every_check_holds_and_its_worst_instance_can_be_made_again(name: str) -> None:
    check = CHECKS[name]
    result = run_check(check, few(name), seed=3)
    assert result.passed
    assert 0 < result.worst_ratio <= 1 + 1e-9
    assert result.instances + result.skipped == few(name)
    number = int(result.worst.partition("(instance ")[2].partition(",")[0])
    case, kind = instance(check, number, seed=3)
    assert result.worst.startswith(kind)
    assert check.ratio(case) == result.worst_ratio


@pytest.mark.parametrize("name", [name for name, check in CHECKS.items() if check.printed])
def test_what_the_paper_prints_is_seen_to_fail(name: str) -> None:
    printed = run_check(CHECKS[name], few(name) * 2).printed
    assert printed is not None
    assert not printed.holds
    assert printed.worst_ratio > 1.5


def times(factor: float) -> Callable[[Any], Any]:
    def broken(good: Any) -> Any:
        return lambda *args, **kwargs: factor * good(*args, **kwargs)

    return broken


def twice_the_exponent(good: Any) -> Any:
    return lambda maximum, rho, d, j, tokens=None: good(maximum, rho, d, j, tokens) * rho**-j


def without_length(good: Any) -> Any:
    return lambda residual, *, tokens, **facts: good(residual, tokens=1, **facts)


def next_index(good: Any) -> Any:
    def broken(sigma: torch.Tensor, *args: Any) -> torch.Tensor:
        limit = good(sigma, *args)
        return torch.cat([limit[1:], limit[-1:]]) if limit.ndim else limit

    return broken


def of_smaller_values(good: Any) -> Any:
    return lambda sigma, *args: good(sigma**2, *args) / 3


BROKEN = [
    ("thm1i", "theorem1_splines", times(1 / 2)),
    ("thm1ii", "theorem1_analytic", times(0.9)),
    ("thm1ii", "theorem1_analytic", twice_the_exponent),
    ("cor2", "corollary2_optimised", times(1 / 10)),
    ("thm2", "theorem2_count", times(0.5)),
    ("thm2", "theorem2_count", lambda good: lambda eps, size: (1 + 1 / eps) * size),
    ("thm3", "theorem5_upper", times(0.5)),
    ("thm3", "theorem5_upper", without_length),
    ("thm5", "theorem5_upper", times(0.5)),
    ("thm5", "theorem5_upper", without_length),
    ("thm3-lower", "theorem3_lower", times(2.1)),
    ("thm4-upper", "theorem4_sharp", times(0.8)),
    ("thm4-upper", "theorem4_sharp", of_smaller_values),
    ("thm4-lower", "theorem4_lower", times(2)),
    ("cor1", "corollary1_upper", times(0.6)),
    ("cor1", "corollary1_upper", next_index),
    ("cor1-lower", "corollary1_lower", times(1.3)),
    ("thm6-lower", "theorem6_lower", times(2.1)),
    ("thm6-upper", "theorem6_attained", times(0.9)),
    ("one-token", "one_token_lower", times(1.01)),
]


@pytest.mark.parametrize(("name", "bound", "broken"), BROKEN)
def test_a_broken_bound_fails(name: str, bound: str, broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, bound, broken(getattr(bounds, bound)))
    rare = name in ("thm3", "thm5")  # few instances come near half of these bounds
    result = run_check(CHECKS[name], few(name) * (2 if rare else 1))
    assert not result.passed
    assert result.worst_ratio > 1


def test_every_check_has_a_broken_bound() -> None:
    assert {name for name, _, _ in BROKEN} == set(CHECKS)


def test_activations_meet_the_hypothesis_of_theorem_2() -> None:
    x = torch.linspace(-30, 30, 60_001, dtype=torch.float64)
    for name, act in ACTIVATIONS.items():
        assert bool((act(x).abs() <= x.abs() * (1 + 1e-12)).all()), name


def test_a_check_that_no_instance_meets_says_nothing() -> None:
    result = run_check(replace(CHECKS["thm2"], ratio=lambda case: None), 3)
    assert result.unmet == ("none of 3 instances met them",)
    assert TheoryReport(0, False, (result,)).passed


def test_a_ratio_that_is_no_number_fails() -> None:
    assert verdict(1.0)
    assert not verdict(1.1)
    assert not verdict(math.nan)
    from dataclasses import replace

    result = run_check(replace(CHECKS["thm4-lower"], ratio=lambda case: math.nan), 4)
    assert not result.passed
    skipped = run_check(replace(CHECKS["thm4-lower"], ratio=lambda case: None), 4)
    assert (skipped.instances, skipped.skipped, skipped.passed) == (0, 4, False)


def test_documents_and_tables_say_what_was_found() -> None:
    report = run_theory(["thm3", "cor1-lower"], instances=8)
    document = codec.plain(report)
    assert {name: value for name, value in document.items() if name != "checks"} == {
        "schema": "rankscope/theory@1",
        "seed": 0,
        "quick": False,
        "pass": True,
    }
    assert tuple(codec.parse(CheckResult, row) for row in document["checks"]) == report.checks
    assert [row["id"] for row in document["checks"]] == list(report.to_frame()["id"]) == ["thm3", "cor1-lower"]


def test_unknown_ids_are_named() -> None:
    with pytest.raises(OptionError, match="did you mean 'thm2'"):
        run_theory(["thm22"])
