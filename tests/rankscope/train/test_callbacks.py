"""Beside the steps of a run: divergence, models that are kept."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest
import torch
from safetensors.torch import load_file

from rankscope.checkpoints import open_checkpoint
from rankscope.errors import RankscopeError
from rankscope.train import pretrain
from rankscope.train.loop import Loop
from rankscope.train.run_folder import snapshots
from rankscope.train.stream import BoltCollator


def poisoned_loss(monkeypatch, batch_number, value=torch.inf):
    """From this batch on the contexts are infinite, and with them the loss."""
    original, seen = BoltCollator.__call__, []

    def poison(self, rows):
        batch = original(self, rows)
        seen.append(1)
        if len(seen) >= batch_number:
            batch["context"] = batch["context"] * value
        return batch

    monkeypatch.setattr(BoltCollator, "__call__", poison)


def test_a_loss_that_is_not_finite_stops_at_its_step_and_names_the_last_snapshot(tiny, monkeypatch, tmp_path):
    poisoned_loss(monkeypatch, 6)
    config = tiny(max_steps=20, save_steps=2, log_steps=100)
    with pytest.raises(RankscopeError, match=r"loss became NaN or infinite by step \d+. .*checkpoint-4") as caught:
        pretrain(config, tmp_path / "out", device="cpu")
    assert "by step 6." in str(caught.value)
    kept = snapshots(tmp_path / "out.run")
    assert [one.step for one in kept] == [2, 4]
    assert not (tmp_path / "out").exists()
    from chronos import BaseChronosPipeline

    forecast, _ = BaseChronosPipeline.from_pretrained(kept[-1].folder).predict_quantiles(torch.ones(20), 4)
    assert forecast.isfinite().all()


@pytest.mark.parametrize(("step", "cadence", "kept"), [(4, 2, "checkpoint-2"), (6, 4, "checkpoint-4")])
def test_weights_that_are_not_finite_are_not_stored(step, cadence, kept, tiny, monkeypatch, tmp_path):
    """One gradient is NaN while the loss is fine: at a step with a snapshot, and at the last one of the run."""
    original, seen = Loop.training_step, []

    def poison(self, model, *args, **kwargs):
        loss = original(self, model, *args, **kwargs)
        seen.append(1)
        if len(seen) == step:
            next(p for p in model.parameters() if p.grad is not None).grad.view(-1)[0] = torch.nan
        return loss

    monkeypatch.setattr(Loop, "training_step", poison)
    with pytest.raises(RankscopeError, match=rf"weights became NaN or infinite by step {step}. .*{kept}\."):
        pretrain(tiny(save_steps=cadence, log_steps=100), tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()


def test_a_learning_rate_beyond_all_measure_diverges(tiny, tmp_path):
    config = tiny(learning_rate=1e30, max_steps=50, save_steps=1)
    with pytest.raises(RankscopeError, match="became NaN or infinite"):
        pretrain(config, tmp_path / "out", device="cpu")
    for one in snapshots(tmp_path / "out.run"):
        assert all(t.isfinite().all() for t in load_file(one.folder / "model.safetensors").values())


def test_kept_models_are_checkpoints_of_their_steps_and_survive_a_resumed_run(tiny, tmp_path):
    config = tiny(keep_steps=(0, 2, 6), max_steps=6, save_steps=3)
    pretrain(config, tmp_path / "out", device="cpu")
    kept = tmp_path / "out" / "kept"
    assert sorted(path.name for path in kept.iterdir()) == ["step-0", "step-2", "step-6"]
    start, last = (load_file(kept / f"step-{step}" / "model.safetensors") for step in (0, 6))
    final = load_file(tmp_path / "out" / "model.safetensors")
    assert all((last[name] == final[name]).all() for name in final)
    assert any((start[name] != final[name]).any() for name in final)
    assert open_checkpoint(str(kept / "step-2")).family.name == config.family


def test_a_run_may_go_on_keeping_other_steps(tiny, tmp_path):
    config = tiny(keep_steps=(1,), max_steps=6, save_steps=3, schedule="constant", warmup_steps=0)
    stopped = dataclasses.replace(config, max_steps=4)
    calls = []

    def stop(done, total, text):
        calls.append(done)
        if done >= 4:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        pretrain(stopped, tmp_path / "out", device="cpu", progress=stop)
    assert (tmp_path / "out.run" / "kept" / "step-1" / "config.json").exists()
    pretrain(dataclasses.replace(config, keep_steps=(5,)), tmp_path / "out", device="cpu", resume=True)
    kept = tmp_path / "out" / "kept"
    assert sorted(path.name for path in kept.iterdir()) == ["step-1", "step-5"]
