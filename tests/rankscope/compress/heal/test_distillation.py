"""Distances against loops and torch's own, and the histories they are taken on."""

import math

import pytest
import torch

from rankscope.checkpoints import open_checkpoint
from rankscope.compress import CompressOptions, compress
from rankscope.compress.heal.distillation import (
    IGNORED,
    ScaledGroupCollator,
    forecast_distance,
    group_distance,
    token_distance,
    token_kl,
)
from rankscope.compress.heal.student import build_student, build_teacher
from rankscope.train.passes import fast_stacks, has_fast_pass
from rankscope.train.stream import ScaledCollator
from rankscope.train.teaching import quantile_distance


def test_token_kl_is_torch_s_over_the_positions_asked_for():
    own, true = torch.randn(3, 4, 7), 3 * torch.randn(3, 4, 7)
    labels = torch.tensor([[1, 2, 3, IGNORED], [IGNORED] * 4, [1, 1, 1, 1]])
    asked = labels != IGNORED
    reference = torch.nn.functional.kl_div(
        own[asked].log_softmax(-1), true[asked].log_softmax(-1), log_target=True, reduction="batchmean"
    )
    assert token_kl(own, true, labels).item() == pytest.approx(reference.item(), rel=1e-5)
    assert token_kl(own, true, labels) != token_kl(true, own, labels)
    assert token_kl(own, true, torch.full((3, 4), IGNORED)) == 0


def test_quantile_distance_is_the_loop():
    own, true = torch.randn(3, 9, 4), torch.randn(3, 9, 4)
    asked = torch.tensor([1.0, 0.0, 1.0])
    each = [abs(float(own[s, q, t] - true[s, q, t])) for s in (0, 2) for q in range(9) for t in range(4)]
    assert quantile_distance(own, true, asked).item() == pytest.approx(sum(each) / len(each), rel=1e-5)
    assert quantile_distance(own, true, torch.zeros(3)) == 0


def rows(*histories):
    return [{"context": torch.tensor(one), "target": torch.zeros(2)} for one in histories]


def test_histories_are_scaled_as_bolt_s_instance_norm_does():
    from chronos.chronos_bolt import InstanceNorm

    nan = math.nan
    batch = ScaledCollator()(rows([nan, 1000.0, 1003.0, 1001.0], [-2.0, nan, 0.5, 8.0], [4.0] * 4, [nan] * 4))
    reference, _ = InstanceNorm()(torch.tensor([[nan, 1000.0, 1003.0, 1001.0], [-2.0, nan, 0.5, 8.0]]))
    assert torch.allclose(batch["context"][:2], reference, equal_nan=True, atol=1e-5)
    assert torch.equal(batch["context"][2], torch.zeros(4))
    assert batch["asked"].tolist() == [1, 1, 1, 0]
    assert batch["target"].isnan().all(dim=1).tolist() == [
        True,
        False,
        True,
        False,
    ]  # far away: nothing is to be learnt


def test_the_scale_of_a_series_does_not_weigh(bolt_folder):
    """Distances are those of forecasts over the history's deviation, whatever the deviation is."""
    module = open_checkpoint(bolt_folder).module()
    other = open_checkpoint(bolt_folder).module()
    with torch.no_grad():
        other.output_patch_embedding.output_layer.bias.add_(0.25)
    history = torch.randn(32)
    for scale, level in ((1.0, 0.0), (1e-3, 5.0), (1e6, -1e7)):
        batch = ScaledCollator()(rows((scale * history + level).tolist()))
        assert forecast_distance(other, module, batch).item() == pytest.approx(0.25, rel=1e-3)


def groups(*histories, known=()):
    """Rows of one group of series; those in ``known`` have a future that is known."""
    future = torch.linspace(-1, 1, 8)
    nothing = torch.full((8,), torch.nan)
    return [
        {"context": one, "target": future, "known": future if place in known else nothing, "group": 0}
        for place, one in enumerate(histories)
    ]


def test_groups_are_scaled_as_the_model_does(chronos2_folder):
    """Scaled before or by the model: the emitted quantiles are the same, of targets and of what covariates say."""
    torch.manual_seed(0)
    module = open_checkpoint(chronos2_folder).module()
    rows = groups(1e3 + torch.randn(16), torch.randn(16), 5 * torch.randn(16), known=(2,))
    rows[1]["context"][:5] = torch.nan
    batch = ScaledGroupCollator(4)(rows)
    assert batch["asked"].tolist() == [1, 1, 0]
    raw = ScaledGroupCollator(4).stack(rows)
    reference, scales = module.instance_norm(raw["context"])
    assert torch.allclose(batch["context"], reference.sinh(), equal_nan=True, atol=1e-4)
    names = ("context", "group_ids", "future_covariates", "num_output_patches")
    with torch.no_grad():
        ours, stock = (module(**{name: one[name] for name in names}).quantile_preds for one in (batch, raw))
    again = (stock - scales[0][..., None]) / scales[1][..., None]
    assert torch.allclose(ours, again, rtol=1e-3, atol=1e-3)
    constant = ScaledGroupCollator(4)(groups(torch.full((16,), 7.0), torch.full((16,), torch.nan)))
    assert not constant["context"][0].any()
    assert constant["asked"].tolist() == [1, 0]
    absurd = ScaledGroupCollator(4)(groups(1e3 + torch.randn(16), torch.randn(16), known=(0,)))
    assert absurd["future_covariates"].isnan().all()
    assert absurd["asked"].tolist() == [0, 1]


def test_group_distance_is_the_shift_of_the_head_and_covariates_do_not_count(chronos2_folder):
    torch.manual_seed(0)
    module, other = (open_checkpoint(chronos2_folder).module() for _ in range(2))
    history = torch.randn(32)
    with torch.no_grad():
        other.output_patch_embedding.output_layer.bias.add_(0.25)
        other.output_patch_embedding.residual_layer.bias.add_(0.5)
    for scale, level in ((1.0, 0.0), (1e-3, 5.0), (1e6, -1e7)):
        batch = ScaledGroupCollator(4)(groups(scale * history + level, history))
        assert group_distance(other, module, batch).item() == pytest.approx(0.75, rel=1e-3)
    batch = ScaledGroupCollator(4)(groups(history, -history, known=(0, 1)))
    assert group_distance(other, module, batch) == 0


def test_covariates_and_groups_reach_both_models(chronos2_folder):
    """What is known of a group changes the distance of two models that read groups differently, not of equal ones."""
    torch.manual_seed(0)
    module, other = (open_checkpoint(chronos2_folder).module() for _ in range(2))
    histories = torch.randn(2, 32)
    assert group_distance(module, other, ScaledGroupCollator(4)(groups(*histories, known=(1,)))) == 0
    with torch.no_grad():
        other.encoder.block[0].layer[1].self_attention.v.weight.mul_(3)
    with_future = ScaledGroupCollator(4)(groups(*histories, known=(1,)))
    without = {**with_future, "future_covariates": torch.full((2, 8), torch.nan)}
    alone = {**with_future, "group_ids": torch.arange(2)}
    found = [group_distance(other, module, one).item() for one in (with_future, without, alone)]
    assert len(set(found)) == 3


def test_the_teacher_is_given_no_gradient(chronos_t5_folder):
    own, true = (open_checkpoint(chronos_t5_folder).module() for _ in range(2))
    batch = {
        "input_ids": torch.tensor([[5, 6, 1]]),
        "attention_mask": torch.ones(1, 3, dtype=torch.long),
        "labels": torch.tensor([[7, 1]]),
    }
    with torch.no_grad():
        own.shared.weight[7] += 1
    token_distance(own, true, batch).backward()
    assert own.shared.weight.grad.abs().sum() > 0
    assert all(p.grad is None for p in true.parameters())


def test_truth_is_the_model_s_own_loss(chronos_t5_folder, bolt_folder, chronos2_folder):
    """All of it with 1, half and half with 0.5; Bolt's sums over the horizon, here of 8, that of Chronos-2 over its
    quantiles.
    """
    tokens = {
        "input_ids": torch.tensor([[5, 6, 1]]),
        "attention_mask": torch.ones(1, 3, dtype=torch.long),
        "labels": torch.tensor([[7, 9, 1]]),
    }
    scaled = ScaledCollator()([{"context": torch.randn(32), "target": torch.randn(8)} for _ in range(3)])
    grouped = ScaledGroupCollator(4)(groups(*torch.randn(3, 32), known=(0,)))
    forward = {name: value for name, value in grouped.items() if name != "asked"}
    cases = (
        (chronos_t5_folder, token_distance, tokens, lambda m: m(**tokens).loss),
        (bolt_folder, forecast_distance, scaled, lambda m: m(scaled["context"], target=scaled["target"]).loss / 8),
        (chronos2_folder, group_distance, grouped, lambda m: m(**forward).loss / m.num_quantiles),
    )
    for folder, distance, batch, own in cases:
        module, other = (open_checkpoint(folder).module() for _ in range(2))
        with torch.no_grad():
            module.shared.weight.add_(0.1 * torch.randn_like(module.shared.weight))
            taught, truth = distance(module, other, batch), own(module)
            assert taught > 0
            assert torch.isclose(distance(module, other, batch, truth=1.0), truth)
            assert torch.isclose(distance(module, other, batch, truth=0.5), (taught + truth) / 2)


def batches(kind):
    torch.manual_seed(2)
    if kind == "chronos-bolt":
        return ScaledCollator()([{"context": torch.randn(32), "target": torch.randn(8)} for _ in range(5)])
    mask, labels = torch.ones(5, 12, dtype=torch.long), torch.randint(2, 64, (5, 4))
    mask[0, :7], labels[2, 2:] = 0, IGNORED
    return {"input_ids": torch.randint(2, 64, (5, 12)), "attention_mask": mask, "labels": labels}


@pytest.mark.parametrize("kind", ["chronos-t5", "chronos-bolt"])
@pytest.mark.parametrize("sliced", [False, True])
def test_the_fast_pass_of_a_compressed_model_has_the_stock_loss_and_gradients(kind, sliced, teacher, tmp_path):
    """Heads and feed-forward layers of unequal widths, and with ``sliced`` narrower streams."""
    folder, distance = teacher(kind), token_distance if kind == "chronos-t5" else forecast_distance
    how = CompressOptions(ratio=0.8, method="joint", calibration="mixture:8", refine=False)
    compress(folder, how, out=tmp_path / "small")
    if sliced:
        smaller = CompressOptions(ratio=0.8, method="stream", calibration="mixture:8")
        compress(tmp_path / "small", smaller, out=tmp_path / "sliced")
    small = open_checkpoint(tmp_path / ("sliced" if sliced else "small"))
    widths = [set(one.qk) | set(one.vo) for one in small.layouts.values() if hasattr(one, "qk")]
    assert any(len(one) > 1 for one in widths)
    module, guide = build_student(small, "all"), build_teacher(open_checkpoint(folder))
    assert has_fast_pass(module)
    assert has_fast_pass(guide)
    for truth in (0.0, 0.5, 1.0):
        stock = distance(module, guide, batches(kind), truth=truth)
        expected = gradients(module, stock)
        with fast_stacks(module), fast_stacks(guide):
            loss = distance(module, guide, batches(kind), truth=truth, fast=True)
        assert loss.item() == pytest.approx(stock.item(), rel=1e-4)
        found = gradients(module, loss)
        assert set(found) == set(expected)
        for name, gradient in expected.items():
            atol = 1e-5 + 1e-5 * gradient.abs().max().item()
            torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=atol)


def test_the_fast_loss_of_equal_models_and_all_its_gradients_are_zero(teacher):
    module, guide = (build_student(open_checkpoint(teacher("chronos-t5")), "all") for _ in range(2))
    with fast_stacks(module), fast_stacks(guide):
        loss = token_distance(module, guide, batches("chronos-t5"), fast=True)
    assert loss == 0
    assert all(not gradient.any() for gradient in gradients(module, loss).values())


def gradients(module, loss):
    module.zero_grad()
    loss.backward()
    return {name: weight.grad.clone() for name, weight in module.named_parameters() if weight.grad is not None}


def test_a_model_in_two_factors_has_no_fast_pass(teacher, student):
    folder = teacher("chronos-bolt")
    assert has_fast_pass(build_teacher(open_checkpoint(folder)))
    assert not has_fast_pass(build_student(open_checkpoint(student(folder)), "all"))
