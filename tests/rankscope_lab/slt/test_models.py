"""Forecasters against their published counts, laws, and second implementations."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rankscope.errors import DataError, OptionError
from rankscope_lab.blocks import AttentionBlock, patches
from rankscope_lab.runs import count_parameters
from rankscope_lab.slt.forecasters import (
    EPSILON,
    DLinear,
    ForecasterShape,
    InstanceNorm,
    NBeats,
    PatchForecaster,
    SeasonalNaive,
    moving_average,
)
from rankscope_lab.slt.models import MODELS, SHAPES, build_model

SMALL = ForecasterShape(lookback=40, horizon=6, patch=8, stride=4, d_model=16, heads=2, d_ff=24, dropout=0.0)


@pytest.mark.parametrize(("name", "count"), [("slt", 1_082_592), ("patchtst", 1_181_920), ("nbeats", 741_888)])
def test_parameters_equal_the_published_counts(name: str, count: int) -> None:
    assert count_parameters(build_model(name, 24)) == count


def test_parts_have_the_published_counts() -> None:
    slt, patchtst = (build_model(name, 24) for name in ("slt", "patchtst"))
    assert count_parameters(slt.embedding) == 2_176
    assert count_parameters(slt.positions) == 8_064
    assert [count_parameters(block) for block in slt.blocks] == [82_816, 82_816, 132_480]
    assert count_parameters(slt.head) == 774_240
    assert count_parameters(slt) - count_parameters(slt.head) == 308_352
    assert count_parameters(patchtst) - count_parameters(patchtst.head) == 407_680
    assert slt.shape.tokens == 63


PROJ, ATT = "projection", "attention"


def test_every_variant_changes_what_its_name_says() -> None:
    """Blocks from the bottom up, positions, and what is added to a weight before it multiplies."""
    assert {name: (shape.blocks, shape.positions, shape.offset) for name, shape in SHAPES.items()} == {
        "slt": ((PROJ, PROJ, ATT), "multiplicative", 0.0),
        "patchtst": ((ATT, ATT, ATT), "additive", 0.0),
        "slt-additive": ((PROJ, PROJ, ATT), "additive", 0.0),
        "patchtst-mult": ((ATT, ATT, ATT), "multiplicative", 0.0),
        "slt-middle": ((PROJ, ATT, PROJ), "multiplicative", 0.0),
        "slt-bottom": ((ATT, PROJ, PROJ), "multiplicative", 0.0),
        "slt-offset": ((PROJ, PROJ, ATT), "multiplicative", 1.0),
        "projections": ((PROJ, PROJ, PROJ), "multiplicative", 0.0),
        "head": ((), "none", 0.0),
    }


def test_every_name_builds_and_forecasts() -> None:
    x = torch.randn(2, 512, 3)
    for name in MODELS:
        for revin in (False, True):
            with torch.no_grad():
                assert build_model(name, 24, revin=revin)(x).shape == (2, 96, 3)
    with pytest.raises(OptionError, match="did you mean 'patchtst'"):
        build_model("patchst", 24)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "naive"])
def test_variables_are_forecast_each_for_itself(name: str) -> None:
    model = build_model(name, 24).eval()
    x = torch.randn(2, 512, 4)
    order = torch.tensor([2, 0, 3, 1])
    with torch.no_grad():
        whole = model(x)
        torch.testing.assert_close(model(x[..., order]), whole[..., order], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(model(x[..., 1:2]), whole[..., 1:2], rtol=1e-4, atol=1e-5)


def reference(model: PatchForecaster, x: Tensor) -> Tensor:
    """The same with torch's own layers, one variable and one patch at a time."""
    shape = model.shape
    columns = []
    for variable in range(x.shape[2]):
        cut = [x[:, i * shape.stride : i * shape.stride + shape.patch, variable] for i in range(shape.tokens)]
        tokens = torch.stack([model.embedding(patch) for patch in cut], 1)
        if shape.positions != "none":
            weight = model.positions.weight
            tokens = tokens + weight if shape.positions == "additive" else tokens * (weight + shape.offset)
        for block in model.blocks:
            if isinstance(block, AttentionBlock):
                attention = nn.MultiheadAttention(shape.d_model, shape.heads, batch_first=True)
                attention.load_state_dict(block.attention.state_dict())
                mixed = attention(tokens, tokens, tokens)[0]
            else:
                mixed = F.gelu(tokens @ block.projection.weight.T)
            tokens = F.layer_norm(tokens + mixed, [shape.d_model], block.norm1.weight, block.norm1.bias)
            inner = F.gelu(block.feed_forward.inner(tokens))
            tokens = block.norm2(tokens + block.feed_forward.outer(inner))
        columns.append(model.head(tokens.reshape(len(x), -1)))
    return torch.stack(columns, -1)


@pytest.mark.parametrize("name", list(SHAPES))
def test_forecasts_equal_those_of_torchs_layers(name: str) -> None:
    kinds = SHAPES[name]
    torch.manual_seed(0)
    model = PatchForecaster(replace(SMALL, blocks=kinds.blocks, positions=kinds.positions, offset=kinds.offset)).eval()
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.3)
    x = torch.randn(3, 40, 2)
    torch.testing.assert_close(model(x), reference(model, x), rtol=1e-4, atol=1e-5)


def test_positions_1_carry_no_position_up_to_the_head() -> None:
    model = PatchForecaster(SMALL).eval()
    nn.init.ones_(model.positions.weight)
    tokens = model.embedding(patches(torch.randn(2, 40, 1), 8, 4))
    order = torch.randperm(tokens.shape[1])

    def through(x: Tensor) -> Tensor:
        x = model.positions(x)
        for block in model.blocks:
            x = block(x)
        return x

    torch.testing.assert_close(through(tokens[:, order]), through(tokens)[:, order], rtol=1e-4, atol=1e-5)
    nn.init.normal_(model.positions.weight)
    assert not torch.allclose(through(tokens[:, order]), through(tokens)[:, order], atol=1e-2)


def test_hidden_is_the_stream_that_the_head_reads() -> None:
    model = PatchForecaster(SMALL).eval()
    x = torch.randn(2, 40, 3)
    stream = model.hidden(x)
    assert [one.shape for one in stream] == [(6, 9, 16)] * 4
    torch.testing.assert_close(model.head(stream[-1].flatten(1)).view(2, 3, 6).transpose(1, 2), model(x))
    with pytest.raises(OptionError, match="reads 40 steps, got 39"):
        model(x[:, 1:])


def test_dropout_acts_in_training_only() -> None:
    model = PatchForecaster(replace(SMALL, dropout=0.5))
    x = torch.randn(2, 40, 1)
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))


def test_dropout_is_where_the_benchmark_has_it() -> None:
    """On attention weights and in both places of the feed-forward layers; not on what attention or positions give."""
    for name in ("slt", "patchtst"):
        model = build_model(name, 24)
        rates = {path: module.p for path, module in model.named_modules() if isinstance(module, nn.Dropout)}
        feed_forward = {path: rate for path, rate in rates.items() if ".feed_forward." in path}
        assert len(feed_forward) == 6
        assert set(feed_forward.values()) == {0.15}
        assert {rates[path] for path in rates.keys() - feed_forward.keys()} <= {0.0}
        attends = [block.attention.dropout for block in model.blocks if isinstance(block, AttentionBlock)]
        assert set(attends) == {0.15}


def test_nbeats_equals_a_plain_loop() -> None:
    model = NBeats(20, 5, width=8, blocks=2, layers=3)
    x = torch.randn(2, 20, 3)
    for variable in range(3):
        left, total = x[:, :, variable], torch.zeros(2, 20)
        for block in model.blocks:
            inner = left
            for layer in (0, 2, 4):
                inner = (inner @ block.layers[layer].weight.T + block.layers[layer].bias).clamp(min=0)
            total = total + block.forecast(inner)
            left = left - block.backcast(inner)
        torch.testing.assert_close(model(x)[:, :, variable], total[:, :5])
    with pytest.raises(OptionError, match="at most its look-back, 20"):
        NBeats(20, 21)


def test_moving_average_equals_a_loop_with_repeated_ends() -> None:
    x = torch.randn(2, 12)
    for row, series in enumerate(x.tolist()):
        for t in range(12):
            around = [series[min(max(t + k, 0), 11)] for k in range(-2, 3)]
            assert moving_average(x, 5)[row, t].item() == pytest.approx(sum(around) / 5, abs=1e-6)


def test_dlinear_is_linear_and_splits_its_input() -> None:
    model = DLinear(30, 4, kernel=5)
    assert count_parameters(DLinear(512, 96)) == 2 * (512 * 96 + 96)
    nn.init.zeros_(model.rest.weight)
    nn.init.zeros_(model.rest.bias)
    x = torch.randn(1, 30, 2)
    expected = torch.stack([model.trend(moving_average(x[..., v], 5)) for v in range(2)], -1)
    torch.testing.assert_close(model(x), expected)
    model = DLinear(30, 4, kernel=5)
    nn.init.zeros_(model.trend.weight)
    nn.init.zeros_(model.trend.bias)
    expected = torch.stack([model.rest(x[..., v] - moving_average(x[..., v], 5)) for v in range(2)], -1)
    torch.testing.assert_close(model(x), expected)
    nn.init.constant_(model.trend.weight, 1 / 30)
    constant = torch.full((1, 30, 1), 3.0)
    torch.testing.assert_close(model(constant), (3.0 + model.rest.bias).view(1, 4, 1))


def test_seasonal_naive_repeats_the_last_season() -> None:
    x = torch.randn(2, 50, 3)
    forecast = SeasonalNaive(50, 31, 24)(x)
    for step in range(31):
        assert torch.equal(forecast[:, step], x[:, 50 - 24 + step % 24])
    with pytest.raises(DataError, match="no season of 24 hours"):
        SeasonalNaive(40, 6, 0)
    with pytest.raises(DataError, match="season of 24 steps does not fit into a look-back of 20"):
        SeasonalNaive(20, 5, 24)


def test_instance_norm_follows_level_and_scale() -> None:
    """Shifting and stretching a window shifts and stretches its forecast; the inner model sees mean 0, variance 1."""
    seen: list[Tensor] = []

    class Last(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x)
            return x[:, -4:] ** 3

    model = InstanceNorm(Last())
    x = torch.randn(2, 50, 3, dtype=torch.float64)
    torch.testing.assert_close(model(x * 5 + 7), model(x) * 5 + 7, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(seen[0].mean(1), torch.zeros(2, 3, dtype=torch.float64), atol=1e-8, rtol=0)
    variance = 25 * x.var(1, unbiased=False)
    torch.testing.assert_close(seen[0].var(1, unbiased=False), variance / (variance + EPSILON))
    constant = model(torch.full((1, 50, 1), 2.0))
    torch.testing.assert_close(constant, torch.full((1, 4, 1), 2.0))


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(OptionError, match="did you mean 'projection'"):
        ForecasterShape(blocks=("projections",))
    with pytest.raises(OptionError, match="positions 'add'"):
        ForecasterShape(positions="add")
    with pytest.raises(OptionError, match="belongs to multiplicative"):
        ForecasterShape(positions="none", offset=1.0)
