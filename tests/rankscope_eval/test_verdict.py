"""Verdicts err as rarely as they say, are Student's where that is exact, and are symmetric in model and baseline."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from rankscope.errors import OptionError
from rankscope.io import codec
from rankscope.measure.tradeoff import Verdict
from rankscope_eval.relative import Draws, resample
from rankscope_eval.report import EvalReport, EvalRow, summarise
from rankscope_eval.verdict import ALPHA, judge

EDGE = math.log(1.02)


def sums(errors: np.ndarray) -> np.ndarray:
    """Series of |y| = 10 whose quantile loss and scaled error are ``errors``."""
    errors = np.asarray(errors, dtype=float)
    return np.stack([errors, np.full_like(errors, 10.0), errors, np.full_like(errors, 4.0)], axis=1)


def of_logs(logs: np.ndarray, resamples: int = 2000) -> Verdict:
    """Judge data sets of one series each, with these logarithms of ratios."""
    draws = {str(place): Draws(np.full(resamples, log), 1, log) for place, log in enumerate(logs)}
    return judge(draws, {name: math.exp(one.log) for name, one in draws.items()})


def simulated(
    truth: float, rng: np.random.Generator, data_sets: int, series: int, between: float, within: float
) -> Verdict:
    """Judge a model of a true log-ratio, whose ratios vary between data sets and between series of one."""
    draws, ratios = {}, {}
    for name in map(str, range(data_sets)):
        base = rng.lognormal(0, 0.3, series)
        # ratios are of sums: the mean of a log-normal is above its median
        factor = truth + rng.normal(0, between) - within**2 / 2
        one = resample(sums(base * rng.lognormal(factor, within, series)), sums(base), name, resamples=300)[1]
        assert one is not None
        draws[name], ratios[name] = one, math.exp(one.log)
    return judge(draws, ratios)


@pytest.mark.parametrize("count", [5, 12, 40])
def test_the_interval_is_students_of_90_percent(count: int) -> None:
    logs = stats.norm.ppf((np.arange(count) + 0.5) / count) * 0.02 + 0.01
    low, high = stats.t.interval(0.9, count - 1, logs.mean(), logs.std(ddof=1) / math.sqrt(count))
    verdict = of_logs(logs, 8000)
    assert np.log(verdict.interval) == pytest.approx([low, high], abs=0.05 * (high - low))


@pytest.mark.parametrize("count", [6, 13])
def test_single_series_are_judged_as_by_two_of_scipys_t_tests(count: int) -> None:
    rng = np.random.default_rng(1)
    same = 0
    for _ in range(200):
        logs = rng.normal(rng.uniform(-0.03, 0.03), rng.uniform(0.005, 0.03), count)
        tests = [
            stats.ttest_1samp(logs, -EDGE, alternative="greater"),
            stats.ttest_1samp(logs, EDGE, alternative="less"),
        ]
        same += (of_logs(logs).word == "held") == all(one.pvalue < ALPHA for one in tests)
    assert same >= 192  # those that differ are near the border, which the bootstrap moves a little


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("data_sets", "series", "between", "within"),
    [(20, 12, 0.01, 0.03), (13, 6, 0.02, 0.02), (6, 1, 0.01, 0.01), (6, 30, 0.01, 0.03), (3, 12, 0.004, 0.01)],
)
def test_a_ratio_at_the_edge_is_seldom_held(
    sign: int, data_sets: int, series: int, between: float, within: float
) -> None:
    rng = np.random.default_rng(7)
    tries = 300
    held = sum(simulated(sign * EDGE, rng, data_sets, series, between, within).word == "held" for _ in range(tries))
    # One-sided, at 5 %; 300 tries of that stay below 7.4 % in 98 of 100 runs.
    assert held / tries < 0.075


@pytest.mark.parametrize("truth", [0.0, 0.5 * EDGE])
def test_power_is_that_of_two_t_tests(truth: float) -> None:
    """P(|mean| + t·s/√n < edge) for normal logarithms, integrated over the distribution of s."""
    count, spread, tries = 8, 0.02, 600
    t = stats.t.ppf(1 - ALPHA, count - 1)
    error = spread / math.sqrt(count)

    def given(chi2: float) -> float:
        room = EDGE - t * error * math.sqrt(chi2 / (count - 1))
        both = stats.norm.cdf((room - truth) / error) - stats.norm.cdf((-room - truth) / error)
        return max(both, 0.0) * stats.chi2.pdf(chi2, count - 1)

    power = integrate.quad(given, 0, 60)[0]
    rng = np.random.default_rng(3)
    held = sum(of_logs(rng.normal(truth, spread, count), 1000).word == "held" for _ in range(tries))
    assert 0.2 < power < 0.95
    assert held / tries == pytest.approx(power, abs=4 * math.sqrt(power * (1 - power) / tries))


@pytest.mark.parametrize(("word", "other"), [("worse", "better"), ("better", "worse")])
def test_equal_models_are_seldom_told_apart(word: str, other: str) -> None:
    rng = np.random.default_rng(11)
    words = [simulated(0.0, rng, 7, 6, 0.03, 0.03).word for _ in range(300)]
    assert words.count(word) / 300 < 0.075
    sure = [simulated(math.log(1.2 if word == "worse" else 1 / 1.2), rng, 7, 6, 0.03, 0.03).word for _ in range(20)]
    assert sure == [word] * 20
    assert other not in sure


@pytest.mark.parametrize(
    ("low", "high", "word", "turned"),
    [
        (0.99, 1.01, "held", "held"),
        (1.001, 1.019, "held", "held"),  # worse for sure, and by less than counts
        (1.001, 1.03, "worse", "better"),
        (0.97, 0.999, "better", "worse"),
        (0.97, 1.01, "no worse", "not shown"),
        (0.97, 1.03, "not shown", "not shown"),
        (0.99, 1.03, "not shown", "no worse"),
        (1.05, 1.06, "worse", "better"),
    ],
)
def test_words(monkeypatch: pytest.MonkeyPatch, low: float, high: float, word: str, turned: str) -> None:
    one = {"a": Draws(np.zeros(3), 3, 0.0)}
    found = []
    for ends in ((low, high), (1 / high, 1 / low)):
        monkeypatch.setattr("rankscope_eval.verdict.interval", lambda *_, ends=ends, **__: ends)
        found.append(judge(one, {"a": 1.0}).word)
    assert found == [word, turned]


def test_worse_is_read_off_the_interval_that_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = {0.9: (1.001, 1.03), 0.95: (0.999, 1.032)}
    monkeypatch.setattr("rankscope_eval.verdict.interval", lambda *_, level, **__: ends[round(level, 6)])
    assert judge({"a": Draws(np.zeros(3), 3, 0.0)}, {"a": 1.0}).word == "not shown"


def test_the_worst_of_many_equal_sets_is_seldom_called_worse() -> None:
    rng = np.random.default_rng(2)
    tries = [simulated(0.0, rng, 10, 20, 0.0, 0.1) for _ in range(200)]
    assert sum(one.worse_there for one in tries) / 200 < 0.09  # 5 % by Bonferroni; each by itself 40 %
    assert all(one.worst_ratio is not None and one.worst_ratio > 1 for one in tries)


def rows(factor: float, outlier: float = 1.0, with_sums: bool = True) -> list[EvalRow]:
    """Rows of a model and a baseline over four data sets; the last one's ratio is ``outlier``."""
    rng, found = np.random.default_rng(0), []
    for name in "abcd":
        base = rng.lognormal(0, 0.2, 9)
        ours = base * (outlier if name == "d" else factor) * rng.lognormal(0, 0.001, 9)
        for model, errors in (("mine", ours), ("base", base)):
            one = sums(errors)
            score = float(errors.sum())
            kept = one[:, None] if with_sums else None
            found.append(EvalRow("b", name, model, score, score, 9, 9, 4, 1, 0.1, bands=kept))
    return found


def test_a_summary_names_the_worst_set() -> None:
    (one,) = summarise(rows(1.0, 1.5), ["mine"], "base")
    verdict = one.WQL_verdict
    assert (verdict.word, verdict.worst, verdict.worse_there) == ("not shown", "d", True)
    assert verdict.worst_ratio == pytest.approx(1.5, rel=2e-3)
    (even,) = summarise(rows(1.01, 1.01), ["mine"], "base")
    assert str(even.MASE_verdict) == "held within 2 %"
    (strict,) = summarise(rows(1.01, 1.01), ["mine"], "base", 0.005)
    assert (str(strict.MASE_verdict), strict.MASE_verdict.margin) == ("worse", 0.005)


def test_without_series_there_is_nothing_to_judge_by() -> None:
    (one,) = summarise(rows(1.0, 1.5, with_sums=False), ["mine"], "base")
    verdict = one.WQL_verdict
    assert (verdict.word, verdict.interval, verdict.worst, verdict.worst_interval) == ("not shown", None, "d", None)
    assert verdict.worst_ratio == pytest.approx(1.5, rel=2e-3)


def test_a_report_of_an_earlier_release_opens_without_verdicts() -> None:
    summary = summarise(rows(1.0), ["mine"], "base")
    report = EvalReport("s", "base", 0, 20, 32, None, 1.0, (), summary)
    document = codec.plain(report)
    assert codec.parse(EvalReport, document).summary == summary
    for one in document["summary"]:
        del one["MASE_verdict"], one["WQL_verdict"]
    (read,) = codec.parse(EvalReport, document).summary
    assert (read.WQL_verdict, read.WQL_interval) == (None, summary[0].WQL_interval)


@pytest.mark.parametrize("margin", [0.0, 1.0, -0.1, math.nan])
def test_a_margin_is_a_share(margin: float) -> None:
    with pytest.raises(OptionError, match=r"share between 0 and 1, such as 0\.02"):
        judge({}, {}, margin)
