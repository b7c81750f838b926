"""Chronos-Bolt in the runtime gives the stock pipeline's quantiles."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch

from rankscope.checkpoints import open_checkpoint
from rankscope.forecast import products


@pytest.mark.parametrize("layout", ["dense", "factored", "thin", "head-width", "int8", "twice"])
@pytest.mark.parametrize("horizon", [8, pytest.param(19, marks=pytest.mark.slow)])
def test_quantiles_are_those_of_the_stock_pipeline(
    bolt_folder: Path, uneven: Any, compressed: Any, both: Any, layout: str, horizon: int
) -> None:
    stock, fast = both(compressed(bolt_folder, layout))
    series = uneven(200, 50)
    expected, found = (one.predict(series, prediction_length=horizon) for one in (stock, fast))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5, equal_nan=True)
    levels = [0.1, 0.33, 0.9]
    pairs = zip(
        fast.predict_quantiles(series, horizon, levels), stock.predict_quantiles(series, horizon, levels), strict=True
    )
    for mine, theirs in pairs:
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5, equal_nan=True)


def test_the_bundled_model(uneven: Any, both: Any) -> None:
    stock, fast = both(open_checkpoint("bundled-bolt").folder, dtype="float32")
    series = uneven(40, 700)
    torch.testing.assert_close(fast.predict(series), stock.predict(series), atol=1e-4, rtol=1e-4)


def test_no_summary_token(tmp_path: Path, tiny_config: Any, write_checkpoint: Any, uneven: Any, both: Any) -> None:
    config = tiny_config("chronos-bolt")
    config["chronos_config"]["use_reg_token"] = False
    config["vocab_size"] = 1
    stock, fast = both(write_checkpoint(tmp_path / "plain", config))
    series = uneven(30, 40)[:-1]  # without the token a series of nothing has nothing to attend to
    torch.testing.assert_close(fast.predict(series), stock.predict(series), atol=1e-5, rtol=1e-5)


def test_the_batch_does_not_matter(bolt_folder: Path, uneven: Any, both: Any) -> None:
    _, fast = both(bolt_folder)
    series = uneven(50, 40)
    whole = fast.predict(series)
    fast.model.most = 3
    torch.testing.assert_close(fast.predict(series), whole, atol=1e-5, rtol=1e-5)


def test_weights_are_shared_and_embed_is_the_stock_method(bolt_folder: Path, both: Any) -> None:
    stock, fast = both(bolt_folder)
    assert list(fast.inner_model.state_dict()) == list(stock.inner_model.state_dict())
    series = [torch.arange(20.0), torch.arange(7.0)]
    torch.testing.assert_close(fast.embed(series)[0], stock.embed(series)[0])
    assert (fast.model_context_length, fast.model_prediction_length) == (32, 8)
    assert fast.model.training == stock.model.training


def test_arguments_are_those_of_the_stock_method(bolt_folder: Path, both: Any) -> None:
    stock, fast = both(bolt_folder)
    mine, theirs = (inspect.signature(one.predict).parameters.values() for one in (fast, stock))
    assert [(one.name, one.kind, one.default) for one in mine] == [(one.name, one.kind, one.default) for one in theirs]


def test_in_float32_no_program_is_compiled_for_every_shape(
    bolt_folder: Path, t5_folder: Path, both: Any, monkeypatch: Any
) -> None:
    shapes: list[tuple[int, ...]] = []
    pointwise = products._pointwise

    def recorded(x: torch.Tensor, *rest: Any) -> torch.Tensor:
        shapes.append(tuple(x.shape))
        return pointwise(x, *rest)

    monkeypatch.setattr(products, "has_onednn", lambda dtype: True)
    monkeypatch.setattr(products, "_pointwise", recorded)
    for series in (1, 3):
        for length in (9, 20):
            both(bolt_folder)[1].predict(torch.randn(series, length))
    assert not shapes
    both(t5_folder)[1].predict(torch.randn(3, 20), num_samples=4)
    assert {shape[0] for shape in shapes} == {1, 3, 3 * 4}  # the first step and the others; no tokens of contexts
