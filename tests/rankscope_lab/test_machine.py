"""Rounded products: factors are, sums are not, and only inside."""

import pytest
import torch

from rankscope_lab import machine
from rankscope_lab.machine import products


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_products_have_the_error_of_their_format_forward_and_backward(name):
    torch.manual_seed(0)
    x, w = torch.randn(256, 512), torch.randn(512, 128, requires_grad=True)
    with products("cpu", name):
        out = (x @ w).float()
        out.backward(torch.ones_like(out))
    exact = (x.double() @ w.detach().double(), x.double().T @ torch.ones(256, 128, dtype=torch.float64))
    for found, truth in zip((out.detach(), w.grad), exact, strict=True):
        error = float((found.double() - truth).norm() / truth.norm())
        assert error < (1e-6 if name == "float32" else 2**-8)
        assert name == "float32" or error > 1e-4


def test_what_is_set_is_set_back_also_after_an_error():
    before = torch.get_float32_matmul_precision()
    with pytest.raises(ZeroDivisionError), products("cpu", "bfloat16"):
        raise ZeroDivisionError
    assert torch.get_float32_matmul_precision() == before
    assert not torch.is_autocast_enabled("cpu")


def test_processors_without_such_products_use_autocast(monkeypatch):
    monkeypatch.setattr(machine, "rounding_products", lambda: False)
    with products("cpu", "bfloat16"):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16


def test_a_processor_that_only_says_that_it_rounds_is_not_believed(monkeypatch):
    """With AVX-512 bfloat16 instructions and no AMX, torch says yes, and oneDNN multiplies in float32."""
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    monkeypatch.setattr(torch, "set_float32_matmul_precision", lambda name: None)  # as on such a processor
    machine.rounding_products.cache_clear()
    try:
        assert not machine.rounding_products()
    finally:
        machine.rounding_products.cache_clear()
