"""Tokens follow the distribution that transformers' own processors leave, and a wrong sampler is found out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from rankscope.errors import OptionError
from rankscope.forecast import sampling
from rankscope.forecast.sampling import Sampler, drawn

DRAWS = 60_000
HOW: list[dict[str, Any]] = [
    {},
    {"top_k": 50},
    {"top_k": 7},
    {"top_k": 300},
    {"temperature": 0.6, "top_k": 20},
    {"top_p": 0.7},
    {"top_k": 40, "top_p": 0.9, "temperature": 1.5},
    {"top_k": 5, "never": 3},
]


def logits_of(size: int = 256, seed: int = 0) -> torch.Tensor:
    """One row, spread so that all of top-k, its outside and ties matter."""
    row = torch.randn(size, generator=torch.Generator().manual_seed(seed)) * 2
    row[10:14] = row.topk(7).values[-1]  # ties at the seventh place
    return row


def allowed(row: torch.Tensor, how: dict[str, Any]) -> torch.Tensor:
    """Chances by transformers' processors."""
    scores = row.clone()[None]
    if how.get("never") is not None:
        scores[:, how["never"]] = -torch.inf
    if "temperature" in how:
        scores = TemperatureLogitsWarper(how["temperature"])(None, scores)  # type: ignore[arg-type]
    if "top_k" in how:
        scores = TopKLogitsWarper(how["top_k"])(None, scores)  # type: ignore[arg-type]
    if "top_p" in how:
        scores = TopPLogitsWarper(how["top_p"])(None, scores)  # type: ignore[arg-type]
    return scores.softmax(-1)[0].double()


def p_value(tokens: torch.Tensor, chances: torch.Tensor) -> float:
    """Chi-square over tokens that are expected at least five times, the rest together."""
    counts = torch.bincount(tokens, minlength=len(chances)).double()
    assert not counts[chances == 0].any()
    expected = chances * len(tokens)
    often = expected >= 5
    found, told = counts[often].tolist(), expected[often].tolist()
    if float(expected[~often].sum()) >= 5:
        found, told = [*found, float(counts[~often].sum())], [*told, float(expected[~often].sum())]
    scale = sum(found) / sum(told)
    return float(chisquare(found, [one * scale for one in told]).pvalue)


@pytest.mark.parametrize("how", HOW, ids=str)
@pytest.mark.parametrize("path", ["chosen", "sorting"])
def test_draws_follow_what_transformers_leaves(how: dict[str, Any], path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if path == "sorting":  # no vocabulary has so many blocks
        monkeypatch.setattr(sampling, "BLOCKS", 2**20)
    torch.manual_seed(1)
    row = logits_of()
    assert p_value(Sampler(**how)(row.repeat(DRAWS, 1)), allowed(row, how)) > 1e-4


@pytest.mark.parametrize("wrong", [{"top_k": 44}, {"top_k": 50, "temperature": 1.05}, {}, {"top_k": 50, "top_p": 0.98}])
def test_a_wrong_sampler_is_found_out(wrong: dict[str, Any]) -> None:
    torch.manual_seed(2)
    row = logits_of()
    chances = allowed(row, {"top_k": 50})
    tokens = Sampler(**wrong)(row.repeat(DRAWS, 1))
    counts = torch.bincount(tokens, minlength=len(row))
    assert bool(counts[chances == 0].any()) or p_value(tokens, chances) < 1e-4


def test_rows_are_drawn_apart() -> None:
    torch.manual_seed(3)
    rows = torch.stack([logits_of(seed=seed) for seed in range(4)])
    tokens = Sampler(top_k=10)(rows.repeat_interleave(20_000, 0)).view(4, -1)
    for row, some in zip(rows, tokens, strict=True):
        assert p_value(some, allowed(row, {"top_k": 10})) > 1e-4


def test_greedy_takes_the_first_of_the_largest() -> None:
    assert Sampler(top_k=1)(torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 3.0]])).tolist() == [1, 0]
    assert Sampler(top_k=1, never=1)(torch.tensor([[0.0, 2.0, 1.0]])).tolist() == [2]


def test_what_has_no_chance_is_never_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    chances = torch.tensor([[0.0, 0.3, 0.0, 0.7, 0.0]])
    for u in (0.0, 0.3 / 1.0, 1 - 2**-24, 1.0):
        monkeypatch.setattr(torch, "rand", lambda *shape, u=u, **_: torch.full(shape, u))
        assert int(drawn(chances)) in (1, 3)


@pytest.mark.parametrize("how", [{"temperature": 0.0}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.2}])
def test_bad_options(how: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        Sampler(**how)
