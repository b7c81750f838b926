"""The written-out passes against transformers' and chronos' own, and the curve that they train along."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from rankscope.train import loop
from rankscope.train.config import ModelShape, PretrainConfig
from rankscope.train.data.mixture import Mixture
from rankscope.train.logs import LOSSES, read_rows
from rankscope.train.loop import multiplies_bfloat16, resolve_precision
from rankscope.train.models import new_model
from rankscope.train.passes import fast_loss, has_fast_pass
from rankscope.train.stream import GroupCollator
from rankscope.train.trainer import pretrain

SHAPE = ModelShape(
    d_model=32, d_kv=8, d_ff=64, num_layers=2, num_decoder_layers=2, num_heads=4, n_tokens=64, initializer_factor=1.0
)
FAMILIES = ("chronos-t5", "chronos-bolt", "chronos-2")


def network(family: str, **changes: object) -> torch.nn.Module:
    torch.manual_seed(0)
    shape = dataclasses.replace(SHAPE, **changes)
    return new_model(PretrainConfig(family=family, model=shape, context=64, horizon=16)).train()


def batch(family: str, *, padded: bool) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    if family == "chronos-bolt":
        context, target = 3 + torch.randn(5, 64), 3 + torch.randn(5, 16)
        if padded:
            context[0, :40], context[1, 3:20], target[2, 4:] = torch.nan, torch.nan, torch.nan
        return {"context": context, "target": target}
    if family == "chronos-2":
        rows = [
            {"context": 3 + torch.randn(64), "target": 3 + torch.randn(16), "known": torch.randn(16), "group": group}
            for group in (4, 1, 4, 7, 1, 4, 9)
        ]
        for row in rows[:2] + rows[3:]:
            row["known"][:] = torch.nan
        if padded:  # at some times all members of a group, and series alone, have nothing
            for row, gap in ((0, 40), (2, 24), (5, 40), (3, 50)):
                rows[row]["context"][:gap] = torch.nan
            rows[1]["context"][3:20], rows[1]["target"][4:] = torch.nan, torch.nan
        return GroupCollator(16)(rows)
    mask, labels = torch.ones(5, 65, dtype=torch.long), torch.randint(2, 64, (5, 17))
    if padded:
        mask[0, :40], labels[2, 4:] = 0, -100
    return {"input_ids": torch.randint(2, 64, (5, 65)), "attention_mask": mask, "labels": labels}


def gradients(model: torch.nn.Module, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_loss_and_every_gradient_are_those_of_the_stock_pass(family: str, padded: bool) -> None:
    model = network(family)
    stock, own = model(**batch(family, padded=padded)).loss, fast_loss(model, batch(family, padded=padded))
    assert own.item() == pytest.approx(stock.item(), rel=1e-5)
    expected, found = gradients(model, stock), gradients(model, own)
    assert set(found) == set(expected)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=1e-5 + 1e-5 * gradient.abs().max().item())


@pytest.mark.parametrize("family", FAMILIES)
def test_an_untied_head_is_not_scaled(family: str) -> None:
    model = network(family, tie_word_embeddings=False)
    stock = model(**batch(family, padded=True)).loss
    assert fast_loss(model, batch(family, padded=True)).item() == pytest.approx(stock.item(), rel=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_in_bfloat16_point_where_those_in_float32_do(family: str) -> None:
    model = network(family)
    expected = gradients(model, fast_loss(model, batch(family, padded=True)))
    with torch.autocast("cpu", torch.bfloat16):
        loss = fast_loss(model, batch(family, padded=True))
    found = gradients(model, loss)
    flat = [torch.cat([grads[name].flatten() for name in expected]) for grads in (expected, found)]
    assert torch.nn.functional.cosine_similarity(*flat, dim=0) > 0.995


@pytest.mark.parametrize("change", [{"dropout_rate": 0.1}, {"feed_forward_proj": "gated-gelu"}])
def test_other_networks_keep_their_own_pass(change: dict[str, object]) -> None:
    assert has_fast_pass(network("chronos-t5"))
    assert not has_fast_pass(network("chronos-t5", **change))


def test_series_all_alone_have_the_stock_loss_and_gradients() -> None:
    model, given = network("chronos-2"), batch("chronos-2", padded=True)
    given["group_ids"] = torch.arange(len(given["context"]))
    expected, found = gradients(model, model(**given).loss), gradients(model, fast_loss(model, given))
    assert set(found) == set(expected)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=1e-5 + 1e-5 * gradient.abs().max().item())


def test_the_stock_pass_is_back_afterwards() -> None:
    model = network("chronos-t5")
    fast_loss(model, batch("chronos-t5", padded=False))
    assert not {"forward"} & (set(model.encoder.__dict__) | set(model.decoder.__dict__))


@pytest.mark.parametrize(("half", "expected"), [(0.1, "bf16"), (0.9, "fp32"), (3.0, "fp32")])
def test_auto_is_what_a_timed_product_says(half: float, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def product(one: Tensor, other: Tensor) -> None:
        clock[0] += half if one.dtype == torch.bfloat16 else 1.0

    monkeypatch.setattr(torch, "mm", product)
    monkeypatch.setattr(loop.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(loop, "multiplies_bfloat16", multiplies_bfloat16.__wrapped__)
    assert resolve_precision(PretrainConfig(precision="auto"), "cpu") == expected
    assert resolve_precision(PretrainConfig(precision="fp32"), "cpu") == "fp32"


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_both_formats_and_the_stock_pass_learn_alike(family, tmp_path, monkeypatch) -> None:
    shape = dataclasses.replace(SHAPE, start="recency", initializer_factor=0.05)
    mixture = Mixture(kernel_share=0.0, group_share=0.5 if family == "chronos-2" else 0.0)
    config = PretrainConfig(
        family=family, model=shape, context=32, horizon=16, mixture=mixture, max_steps=60,
        batch_size=16, warmup_steps=5, log_steps=10, precision="fp32",
    )  # fmt: skip
    curves = {}
    for name, precision, fast in (("stock", "fp32", False), ("fast", "fp32", True), ("bf16", "bf16", True)):
        with monkeypatch.context() as patch:
            if not fast:
                patch.setattr("rankscope.train.loop.has_fast_pass", lambda model: False)
            pretrain(dataclasses.replace(config, precision=precision), tmp_path / name, device="cpu")
        curves[name] = [float(row["loss"]) for row in read_rows(tmp_path / name / LOSSES)]
    assert curves["fast"] == pytest.approx(curves["stock"], rel=2e-3)
    assert curves["bf16"] == pytest.approx(curves["stock"], rel=0.03)
    assert curves["bf16"][-1] < 0.97 * curves["bf16"][0]
