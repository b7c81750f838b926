"""A run that diverged goes on from its last snapshot with a lower learning rate, and says so."""

import dataclasses
import json
import shutil

import pytest
import torch
from transformers import get_scheduler

import rankscope
from rankscope.checkpoints import describe
from rankscope.errors import OutputError, RankscopeError
from rankscope.train import pretrain
from rankscope.train.loop import set_peak, split_embedding
from rankscope.train.run_folder import seal
from rankscope.train.stream import BoltCollator
from rankscope.train.trainer import training_run

GOOD_STEPS = 6


@pytest.fixture
def poison(monkeypatch):
    """From step 7 on the histories are infinite, until ``poison()`` is called."""
    original, seen, ended = BoltCollator.__call__, [], []

    def call(self, rows):
        batch = original(self, rows)
        seen.append(1)
        return batch if ended or len(seen) <= GOOD_STEPS else {**batch, "context": batch["context"] * torch.inf}

    monkeypatch.setattr(BoltCollator, "__call__", call)
    return lambda: ended.append(1)


@pytest.fixture
def diverged(tiny, poison, tmp_path):
    """A run of 12 steps that diverged at step 7, with a snapshot of step 4."""
    config = tiny(max_steps=12, save_steps=4, log_steps=1, schedule="linear", learning_rate=0.01, warmup_steps=2)
    with pytest.raises(RankscopeError, match="by step") as caught:
        pretrain(config, tmp_path / "out", device="cpu")
    poison()
    return config, str(caught.value)


def rates(folder, curve):
    steps, found = curve(folder, "step"), curve(folder, "learning_rate")
    return {int(step): rate for step, rate in zip(steps, found, strict=True)}


def test_the_message_can_be_followed(diverged, tmp_path):
    _, message = diverged
    named = tmp_path / "out.run" / "checkpoint-4"
    assert f"Last good snapshot: {named}. Continue from it with --resume and a lower" in message
    assert "\n" not in message
    assert describe(named).family.name == "chronos-bolt"
    checkpoint = rankscope.open_checkpoint(named)
    assert all(checkpoint.tensor(name).isfinite().all() for name in checkpoint.index)


def test_it_goes_on_with_a_lower_rate(diverged, curve, tmp_path):
    config, _ = diverged
    lower = dataclasses.replace(config, learning_rate=0.001, max_grad_norm=0.5)
    report = pretrain(lower, tmp_path / "out", device="cpu", resume=True)
    assert report.steps == 12
    record = json.loads((tmp_path / "out" / "pretrain.json").read_text())
    assert record["config"]["learning_rate"] == 0.001
    assert record["changes"] == [
        {"step": 4, "field": "learning_rate", "before": 0.01, "after": 0.001},
        {"step": 4, "field": "max_grad_norm", "before": 1.0, "after": 0.5},
    ]
    pretrain(config, tmp_path / "whole", device="cpu")
    found, undisturbed = rates(tmp_path / "out", curve), rates(tmp_path / "whole", curve)
    share = {step: 1.0 if step <= 4 else 0.1 for step in range(1, 13)}
    assert found == {step: pytest.approx(share[step] * undisturbed[step], rel=1e-6) for step in share}
    assert found[6] > found[9] > 0
    assert pretrain(lower, tmp_path / "out", device="cpu", resume=True) == report


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant_with_warmup"])
def test_the_rate_is_that_of_a_schedule_with_the_lower_peak(schedule):
    def made(peak, steps=0):
        optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=peak)
        rates = get_scheduler(schedule, optimizer, num_warmup_steps=2, num_training_steps=12)
        for _ in range(steps):
            optimizer.step()
            rates.step()
        return optimizer, rates

    (old, old_rates), (wanted, wanted_rates) = made(0.01, 4), made(0.001, 4)
    optimizer, rates = made(0.001)
    optimizer.load_state_dict(old.state_dict())
    rates.load_state_dict(old_rates.state_dict())
    assert optimizer.param_groups[0]["lr"] != wanted.param_groups[0]["lr"]
    set_peak(optimizer, rates, 0.001)
    for _ in range(8):
        assert optimizer.param_groups == wanted.param_groups
        assert rates.get_last_lr() == wanted_rates.get_last_lr()
        for step in (optimizer.step, rates.step, wanted.step, wanted_rates.step):
            step()


def test_the_embedding_moves_at_its_own_rate_also_when_the_peak_is_lowered():
    """The first step of AdamW moves every weight by the rate, whatever its gradient."""
    weights = [torch.nn.Parameter(torch.zeros(3)) for _ in range(3)]
    optimizer = torch.optim.AdamW(
        [{"params": weights[:2], "weight_decay": 0.1}, {"params": weights[2:], "weight_decay": 0.0}], lr=0.01
    )
    split_embedding(optimizer, weights[1:2], 5.0)
    assert [(len(one["params"]), one["weight_decay"]) for one in optimizer.param_groups] == [(1, 0.1), (1, 0), (1, 0.1)]
    rates = get_scheduler("constant", optimizer)
    set_peak(optimizer, rates, 0.001)
    sum(weight.sum() * scale for weight, scale in zip(weights, (1.0, 7.0, 0.1), strict=True)).backward()
    optimizer.step()
    moved = [-weight[0].item() for weight in weights]
    assert moved == pytest.approx([0.001, 0.005, 0.001], rel=1e-5)
    rates.step()
    assert rates.get_last_lr() == pytest.approx([0.001, 0.001, 0.005])


@pytest.mark.slow
def test_the_lower_rate_survives_a_further_stop(diverged, same_weights, tmp_path):
    config, _ = diverged
    lower = dataclasses.replace(config, learning_rate=0.001)
    shutil.copytree(tmp_path / "out.run", tmp_path / "broken.run")
    pretrain(lower, tmp_path / "out", device="cpu", resume=True)

    class Stop(Exception):
        pass

    def stop(done, total, what):
        if "loss" in what and done == 9:
            raise Stop

    with pytest.raises(Stop):
        pretrain(lower, tmp_path / "broken", device="cpu", resume=True, progress=stop)
    with pytest.raises(OutputError, match=r"learning_rate 0\.001, not 0\.0001"):  # it has not diverged again
        pretrain(dataclasses.replace(lower, learning_rate=0.0001), tmp_path / "broken", device="cpu", resume=True)
    pretrain(lower, tmp_path / "broken", device="cpu", resume=True)
    assert same_weights(tmp_path / "broken", tmp_path / "out")
    records = [json.loads((tmp_path / name / "pretrain.json").read_text()) for name in ("broken", "out")]
    assert records[0]["changes"] == records[1]["changes"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"learning_rate": 0.02}, "learning_rate 0.01, not 0.02"),
        ({"learning_rate": 0.001, "weight_decay": 0.0}, "weight_decay"),
        ({"schedule": "constant"}, "schedule"),
        ({"max_grad_norm": 0.0}, "max_grad_norm"),
    ],
)
def test_nothing_else_may_change(changes, named, diverged, tmp_path):
    config, _ = diverged
    with pytest.raises(OutputError, match=named):
        pretrain(dataclasses.replace(config, **changes), tmp_path / "out", device="cpu", resume=True)


def test_unchanged_it_is_the_undisturbed_run(diverged, same_weights, tmp_path):
    config, _ = diverged
    pretrain(config, tmp_path / "out", device="cpu", resume=True)
    pretrain(config, tmp_path / "whole", device="cpu")
    assert same_weights(tmp_path / "out", tmp_path / "whole")
    assert "changes" not in json.loads((tmp_path / "out" / "pretrain.json").read_text())


def test_a_change_moves_to_the_snapshot_that_is_left(tiny, tmp_path):
    def run(**changes):
        return training_run(tiny(**changes), tmp_path / "out", "fp32", 1)

    with run().open(resume=False, force=False):
        (run().folder / "checkpoint-2").mkdir()
        seal(run().folder / "checkpoint-2", 1.0, 1)
    change = {"step": 4, "field": "learning_rate", "before": 0.1, "after": 0.001}
    begun = run()
    with begun.open(resume=True, force=False):
        begun.store.note(changes=[change], diverged="the loss became NaN")
    again = run()
    assert again.check(resume=True, force=False).step == 2
    assert again.changes == [{**change, "step": 2}]
    (run().folder / "checkpoint-2" / "complete.json").unlink()
    with pytest.raises(OutputError, match="learning_rate"):  # without a snapshot it would be another run altogether
        run(learning_rate=1e-5).check(resume=True, force=False)
