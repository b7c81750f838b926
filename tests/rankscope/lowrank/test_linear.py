import pytest
import torch
from torch import nn

from rankscope.errors import CheckpointError, OptionError
from rankscope.families import Factored
from rankscope.lowrank.linear import FactoredLinear
from rankscope.lowrank.models import factor_modules, initialise_factors, stock_std


@pytest.mark.parametrize("bias", [False, True])
def test_forward_equals_the_dense_product(bias: bool) -> None:
    torch.manual_seed(0)
    layer = FactoredLinear(12, 7, rank=3, bias=bias).double()
    dense = nn.Linear(12, 7, bias=bias).double()
    with torch.no_grad():
        dense.weight.copy_(layer.dense())
        if bias:
            dense.bias.copy_(layer.bias)
    x = torch.randn(5, 2, 12, dtype=torch.float64)
    torch.testing.assert_close(layer(x), dense(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_heads_with_sketches_of_their_own_equal_a_loop_over_heads(axis: int, bias: bool) -> None:
    """Eq. 21, head by head: rows of q, k and v (axis 0), columns of o (axis 1)."""
    torch.manual_seed(0)
    d_in, d_out, heads, rank = 12, 20, 4, 3
    layer = FactoredLinear(d_in, d_out, rank, heads=heads, axis=axis, bias=bias).double()
    x = torch.randn(5, 2, d_in, dtype=torch.float64)
    ups = layer.up.weight.chunk(heads, dim=axis)
    downs = layer.down.weight.chunk(heads)
    if axis == 0:
        expected = torch.cat([x @ (up @ down).T for up, down in zip(ups, downs, strict=True)], dim=-1)
    else:
        parts = zip(x.chunk(heads, dim=-1), ups, downs, strict=True)
        expected = sum(part @ (up @ down).T for part, up, down in parts)
    if bias:
        expected = expected + layer.bias
    torch.testing.assert_close(layer(x), expected, rtol=0, atol=1e-12)
    plain = x @ layer.dense().T + (layer.bias if bias else 0)
    torch.testing.assert_close(plain, expected, rtol=0, atol=1e-12)
    d, d_head = (d_in, d_out // heads) if axis == 0 else (d_out, d_in // heads)
    assert sum(p.numel() for p in layer.parameters()) == heads * rank * (d + d_head) + (d_out if bias else 0)


def test_sketches_that_do_not_fit_are_refused() -> None:
    with pytest.raises(OptionError, match="7×12 matrix does not split into 2 heads along axis 0"):
        FactoredLinear(12, 7, rank=1, heads=2)
    with pytest.raises(OptionError, match=r"rank 5 is outside 1…4 for a 8×12 matrix of 2 heads"):
        FactoredLinear(12, 8, rank=5, heads=2)
    with pytest.raises(OptionError, match=r"rank 7 is outside 1…6 for a 8×12 matrix of 2 heads"):
        FactoredLinear(12, 8, rank=7, heads=2, axis=1)


@pytest.mark.parametrize("rank", [0, -1, 8])
def test_ranks_that_do_not_fit_are_refused(rank: int) -> None:
    with pytest.raises(OptionError, match=r"rank .* is outside 1…7 for a 7×12 matrix"):
        FactoredLinear(12, 7, rank=rank)


def test_weight_is_a_stand_in_without_data() -> None:
    layer = FactoredLinear(12, 7, rank=3, dtype=torch.bfloat16)
    before = [p.clone() for p in layer.parameters()]
    assert layer.weight.shape == (7, 12)
    assert layer.weight.dtype == torch.bfloat16
    assert layer.weight.device.type == "meta"
    nn.init.normal_(layer.weight)  # what stock initialisers do
    assert all(torch.equal(a, b) for a, b in zip(before, layer.parameters(), strict=True))
    assert "weight" not in layer.state_dict()
    assert layer.float().weight.dtype == torch.float32


@pytest.mark.parametrize("heads", [None, 4])
@pytest.mark.parametrize(("d_in", "d_out", "rank"), [(64, 64, 1), (256, 64, 8), (64, 256, 64)])
def test_initial_product_has_the_stock_variance(d_in: int, d_out: int, rank: int, heads: int | None) -> None:
    torch.manual_seed(0)
    layer = FactoredLinear(d_in, d_out, rank, heads=heads, init_std=0.3)
    variances = []
    for _ in range(40):
        initialise_factors(layer)
        variances.append(layer.dense().square().mean().item())
    assert sum(variances) / len(variances) == pytest.approx(0.09, rel=0.1)


def test_stock_std_is_what_t5_draws() -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    config = T5Config(d_model=128, d_kv=16, num_heads=4, d_ff=256, num_layers=1, vocab_size=8, initializer_factor=0.7)
    model = T5ForConditionalGeneration(config)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and name != "lm_head":
            expected = stock_std(name, module.in_features, 16, 0.7)
            assert module.weight.std().item() == pytest.approx(expected, rel=0.05), name


def test_only_linear_layers_are_swapped() -> None:
    model = nn.ModuleDict({"a": nn.Linear(4, 6), "b": nn.Embedding(3, 4)})
    factor_modules(model, {"a": Factored(2)}, d_head=1, factor=1.0)
    assert isinstance(model["a"], FactoredLinear)
    assert (model["a"].in_features, model["a"].out_features, model["a"].rank) == (4, 6, 2)
    assert model["a"].bias is not None
    for name in ("b", "absent", "a"):
        with pytest.raises(CheckpointError, match=f"names {name}, no linear layer"):
            factor_modules(model, {name: Factored(1)}, d_head=1, factor=1.0)
    with pytest.raises(CheckpointError, match="rank 5 exceeds its 6×4 matrix"):
        factor_modules(nn.ModuleDict({"a": nn.Linear(4, 6)}), {"a": Factored(5)}, d_head=1, factor=1.0)
