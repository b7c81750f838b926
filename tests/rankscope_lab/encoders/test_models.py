"""Encoders and models of the audit: published parameter counts, the formulas written as loops, who sees what."""

import math

import pytest
import torch

from rankscope.errors import OptionError
from rankscope_lab.blocks import channel_encoders as enc
from rankscope_lab.blocks import sinusoid
from rankscope_lab.encoders.models import build
from rankscope_lab.encoders.run_spec import ARCHITECTURES, DROP_IN, ENCODERS, RunSpec, etth1_spec


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("encoder", "own", "total"),
    [
        ("sum", 320, 152_480), ("concat", 128, 152_288), ("linear", 512, 152_672), ("linear-ortho", 512, 152_672),
        ("mlp", 4_480, 156_640), ("linear-ppe", 4_672, 156_832), ("linear-nobias", 256, 152_416),
        ("ci", 128, 158_432), ("cat", 384, 152_544),
    ],
)  # fmt: skip
def test_parameter_counts_at_four_channels(encoder, own, total):
    model = build(RunSpec(encoder))
    assert (count(model.encoder), count(model)) == (own, total)


@pytest.mark.parametrize(
    ("spec", "total"),
    [
        (RunSpec("linear", d_model=128), 600_224), (RunSpec("linear-ppe", d_model=256), 2_445_856),
        (RunSpec("concat", d_model=256), 2_378_528), (RunSpec("linear", channels=16), 154_208),
        (RunSpec("mlp", channels=16), 157_408), (RunSpec("linear-ppe", channels=16), 158_368),
        (RunSpec("ci", channels=8), 166_624), (RunSpec("ci", channels=16), 183_008),
        (RunSpec("cat", channels=8), 152_800),
        (etth1_spec("linear", 0), 117_800), (etth1_spec("cat", 0), 117_520), (etth1_spec("ci", 0), 127_880),
    ],
)  # fmt: skip
def test_parameter_counts_in_other_settings(spec, total):
    assert count(build(spec)) == total


def slow(name, encoder, v, t, k_count, d):
    """One token by the formula, a channel at a time, in float64; p(t) is added by the caller."""
    weights = {key: value.detach().double() for key, value in encoder.named_parameters()}
    if name == "sum":
        return sum(weights["weight"] * v[k] + weights["channel"][k] for k in range(k_count))
    if name == "mlp":
        inner = weights["inner.weight"] @ v + weights["inner.bias"]
        inner = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
        return weights["outer.weight"] @ inner + weights["outer.bias"]
    if name == "concat":
        return torch.cat([weights["weight"][k] * v[k] + weights["bias"][k] for k in range(k_count)])
    return sum(weights["weight"][k] * v[k] + weights["bias"][k] for k in range(k_count))


@pytest.mark.parametrize("name", [*DROP_IN, "linear-scaled", "linear-rotated"])
def test_encoders_are_their_formulas(name):
    torch.manual_seed(3)
    encoder = build(RunSpec(name, d_model=16)).encoder
    for parameter in encoder.parameters():
        parameter.data.normal_()
    x = torch.randn(2, 9, 4)
    tokens = encoder(x)
    table = sinusoid(9, 16).double()
    for b, t in ((0, 0), (1, 8), (0, 5)):
        position = table[t]
        if name in ("linear-ppe", "linear-rotated"):
            position = encoder.projection.weight.double() @ position + encoder.projection.bias.double()
        if name == "linear-scaled":
            position = position * 0.56
        expected = slow(name, encoder, x[b, t].double(), t, 4, 16) + position
        torch.testing.assert_close(tokens[b, t].double(), expected, atol=1e-4, rtol=1e-4)


def test_the_penalty_counts_every_pair_of_rows_once():
    encoder = enc.OrthoEncoder(3, 8, 5)
    w = encoder.weight.detach()
    expected = 0.01 * sum(float(w[i] @ w[j]) ** 2 for i in range(3) for j in range(i))
    assert encoder.penalty().item() == pytest.approx(expected, rel=1e-5)
    assert enc.LinearEncoder(3, 8, 5).penalty() is None


def test_fresh_weights_have_the_published_size():
    torch.manual_seed(0)
    linear = enc.LinearEncoder(400, 64, 5).requires_grad_(False)
    assert float(linear.weight.norm(dim=1).mean()) == pytest.approx(1, abs=0.02)
    assert not linear.bias.any()
    concat = enc.ConcatEncoder(16, 6400, 5).requires_grad_(False)
    assert float(concat.weight.norm(dim=1).mean()) == pytest.approx(1, abs=0.02)
    ppe = enc.ProjectedEncoder(4, 64, 160).requires_grad_(False)
    assert float(ppe.position(160).square().sum()) == pytest.approx(1770, rel=0.12)
    rotated = enc.ProjectedEncoder(4, 64, 160, orthogonal=True).requires_grad_(False)
    assert float(rotated.position(160).square().sum()) == pytest.approx(5120, rel=1e-5)


@pytest.mark.parametrize("encoder", [*DROP_IN, *ARCHITECTURES])
def test_no_output_sees_later_inputs_and_all_see_the_present(encoder):
    model = build(RunSpec(encoder)).eval()
    x = torch.randn(1, 24, 4)
    changed = x.clone()
    changed[:, 12, 2] += 3
    with torch.no_grad():
        before, after = model(x), model(changed)
    assert before.shape == (1, 24, 32)
    torch.testing.assert_close(after[:, :12], before[:, :12], atol=1e-5, rtol=1e-5)
    assert float((after[:, 12] - before[:, 12]).abs().max()) > 1e-3
    assert float((after[:, 20] - before[:, 20]).abs().max()) > 1e-5


def test_cat_sees_its_own_and_earlier_time_steps():
    """Token (t, k) sees (t', k') exactly where t' ≤ t: a change moves the tokens of its own step and of later ones."""
    model = build(RunSpec("cat")).eval()
    x = torch.randn(1, 6, 4)
    changed = x.clone()
    changed[0, 3, 1] += 2
    moved = (model.hidden(changed)[1] - model.hidden(x)[1]).abs().amax((0, 2)) > 1e-6
    assert moved.tolist() == [t >= 3 for t in range(6) for _ in range(4)]


def test_ci_treats_channels_alike_before_its_head():
    model = build(RunSpec("ci")).eval()
    x = torch.randn(2, 10, 4)
    order = torch.tensor([2, 0, 3, 1])
    one, other = model.hidden(x)[-1], model.hidden(x[..., order])[-1]
    torch.testing.assert_close(one.unflatten(0, (2, 4))[:, order], other.unflatten(0, (2, 4)), atol=1e-5, rtol=1e-5)


def test_hidden_ends_in_what_the_head_reads():
    model = build(RunSpec("linear")).eval()
    x = torch.randn(2, 7, 4)
    stream = model.hidden(x)
    assert [tuple(h.shape) for h in stream] == [(2, 7, 64)] * 4
    torch.testing.assert_close(model.head(model.norm(stream[-1])), model(x))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"encoder": "linaer"}, "did you mean 'linear'"),
        ({"encoder": "concat", "channels": 5}, "5 channels do not divide d_model 64"),
        ({"encoder": "linear", "data": "etth2"}, "etth1"),
        ({"encoder": "linear", "objective": "mae"}, "objective"),
        ({"encoder": "linear", "seed": -1}, "seed at least 0"),
    ],
)
def test_runs_that_cannot_be_run_are_refused(wrong, says):
    with pytest.raises(OptionError, match=says):
        RunSpec(**wrong)


def test_every_encoder_can_be_built():
    assert {type(build(RunSpec(name)).encoder).__name__ for name in ENCODERS} >= {"SumEncoder", "ScalarEncoder"}
