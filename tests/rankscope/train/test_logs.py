"""Log lines, event files, and what the Trainer is told."""

import dataclasses
import re
import sys

import pytest
import torch
from safetensors.torch import load_file

from rankscope.errors import OptionError
from rankscope.train import pretrain
from rankscope.train.logs import Clock, LossMeter, append_row, forget_after, read_rows, tokens_per_series
from rankscope.train.loop import training_arguments
from rankscope.train.models import new_model


def test_every_interval_and_the_rest_have_a_line(tiny, curve, tmp_path):
    said = []
    pretrain(tiny(max_steps=7, log_steps=3), tmp_path / "out", device="cpu", progress=lambda *r: said.append(r))
    assert curve(tmp_path / "out", "step") == [3, 6, 7]
    lines = [(done, total) for done, total, what in said if re.match(r"loss [\d.]+, [\d.kM]+ series/s, ", what)]
    assert lines == [(3, 7), (6, 7), (7, 7)]


def test_a_line_is_the_mean_of_its_steps(tiny, curve, tmp_path):
    pretrain(tiny(), tmp_path / "fine", device="cpu")
    pretrain(tiny(log_steps=3), tmp_path / "coarse", device="cpu")
    fine = curve(tmp_path / "fine")
    assert curve(tmp_path / "coarse") == pytest.approx([sum(fine[:3]) / 3, sum(fine[3:]) / 3], rel=1e-6)


@pytest.mark.parametrize("family", ["chronos-t5", "chronos-bolt"])
def test_accumulated_batches_train_as_one(family, tiny, curve, monkeypatch, tmp_path):
    """T5's forward takes any keyword, which transformers 5 misreads: without care the loss is doubled here."""
    monkeypatch.setattr("rankscope.train.stream.BLOCK", 1)
    monkeypatch.setattr("rankscope.train.stream.LEAST_BLOCK", 0)
    pretrain(tiny(family, batch_size=8), tmp_path / "whole", device="cpu")
    pretrain(tiny(family, batch_size=4, accumulation=2), tmp_path / "halves", device="cpu")
    assert curve(tmp_path / "halves") == pytest.approx(curve(tmp_path / "whole"), rel=1e-5)
    assert curve(tmp_path / "halves", "grad_norm") == pytest.approx(curve(tmp_path / "whole", "grad_norm"), rel=1e-3)


def test_event_files_hold_the_curve_and_survive_a_stop(tiny, curve, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def stop(done, total, what):
        if "loss" in what and done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(tiny(), tmp_path / "out", device="cpu", tensorboard=True, progress=stop)
    pretrain(tiny(), tmp_path / "out", device="cpu", tensorboard=True, resume=True)
    events = EventAccumulator(str(tmp_path / "out" / "tensorboard"))
    events.Reload()
    assert {"train/loss", "train/learning_rate", "train/grad_norm", "train/series_per_second"} <= set(
        events.Tags()["scalars"]
    )
    scalars = events.Scalars("train/loss")
    assert [one.step for one in scalars] == [1, 2, 3, 4, 5, 6]
    assert [one.value for one in scalars] == pytest.approx(curve(tmp_path / "out"))


def test_without_tensorboard_the_run_says_so_and_goes_on(tiny, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.warns(UserWarning, match=r"rankscope\[logs\]"):
        pretrain(tiny(max_steps=2), tmp_path / "out", device="cpu", tensorboard=True)
    assert not (tmp_path / "out" / "tensorboard").exists()


def test_a_line_that_was_cut_off_is_forgotten(tmp_path):
    file = tmp_path / "loss.csv"
    for step in (10, 20, 120):
        append_row(file, {"step": step, "loss": 0.5})
    whole = file.read_text()
    file.write_text(whole[: whole.index("120") + 2])  # a "12" that never was step 12
    assert [row["step"] for row in read_rows(file)] == ["10", "20"]
    forget_after(file, 15)
    assert file.read_text() == "step,loss\n10,0.5\n"
    forget_after(file, 5)
    assert not file.exists()


def test_rows_of_other_columns_widen_the_file(tmp_path):
    """As where a resumed run is validated on another suite."""
    file = tmp_path / "scores.csv"
    for step, scores in ((1, {"a": 0.5, "b": 0.25}), (2, {"b": 0.75, "c": 1.0}), (3, {"a": 2.0})):
        append_row(file, {"step": step, **scores})
        forget_after(file, step)
    assert file.read_text().split() == ["step,a,b,c", "1,0.5,0.25,", "2,,0.75,1.0", "3,2.0,,"]


def test_rows_that_do_not_fit_the_header_are_left_out(tmp_path):
    file = tmp_path / "scores.csv"
    file.write_text("step,a\n1,0.5\n2,0.5,0.25\n3\n4,0.125\n")
    forget_after(file, 4)
    assert file.read_text().split() == ["step,a", "1,0.5", "4,0.125"]


def test_a_restored_meter_goes_on_to_the_bit():
    losses = torch.rand(9, generator=torch.Generator().manual_seed(0))
    whole, broken, again = LossMeter(), LossMeter(), LossMeter()
    for n, loss in enumerate(losses):
        whole.add(loss)
        whole.step()
        (broken if n < 4 else again).add(loss)
        (broken if n < 4 else again).step()
        if n == 3:
            again.restore(*broken.state())
    assert whole.take() == again.take()
    assert whole.take() == 0.0


def test_pauses_do_not_count(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("rankscope.train.logs.time.perf_counter", lambda: now[0])
    clock = Clock()
    now[0] = 2.0
    with clock.pause():
        now[0] = 10.0
    now[0] = 11.0
    assert clock.take() == 3.0
    now[0] = 12.0
    assert clock.take() == 1.0


@pytest.mark.parametrize("family", ["chronos-t5", "chronos-bolt"])
def test_tokens_are_those_that_the_network_attends_to(family, tiny):
    """Counted by what enters the first layer of each stack."""
    config = tiny(family)
    from rankscope.train.stream import BoltCollator, TokenCollator

    model = new_model(config)
    rows = [{"context": torch.arange(32.0), "target": torch.arange(8.0)}] * 3
    collate = TokenCollator(model.config.chronos_config) if family == "chronos-t5" else BoltCollator()
    seen = []
    for stack in (model.encoder, model.decoder):
        stack.block[0].register_forward_pre_hook(lambda module, args: seen.append(args[0].shape[1]))
    model(**collate(rows))
    assert sum(seen) == tokens_per_series(config)


def test_every_field_reaches_the_trainer(tiny, tmp_path):
    config = tiny(
        beta2=0.95, max_grad_norm=0.5, accumulation=3, learning_rate=0.02, weight_decay=0.3, warmup_steps=2, seed=9,
        precision="fp32",
    )  # fmt: skip
    arguments = training_arguments(config, tmp_path, "cpu", 0)
    told = {
        "adam_beta2": 0.95,
        "max_grad_norm": 0.5,
        "gradient_accumulation_steps": 3,
        "per_device_train_batch_size": 4,
        "learning_rate": 0.02,
        "weight_decay": 0.3,
        "warmup_steps": 2,
        "seed": 9,
        "save_steps": 3,
        "logging_steps": 1,
        "max_steps": 6,
        "bf16": False,
        "torch_compile": False,
    }
    assert {name: getattr(arguments, name) for name in told} == told
    assert training_arguments(dataclasses.replace(config, precision="bf16"), tmp_path, "cpu", 0).bf16
    with pytest.raises(OptionError, match="CUDA_VISIBLE_DEVICES"):
        training_arguments(config, tmp_path, "cuda:1", 0)
    with pytest.raises(OptionError, match="workers"):
        training_arguments(config, tmp_path, "cpu", -1)


def test_a_constant_rate_is_warmed_up_too(tiny, curve, tmp_path):
    pretrain(tiny(schedule="constant", warmup_steps=3), tmp_path / "out", device="cpu")
    assert curve(tmp_path / "out", "learning_rate")[-1] == 1e-3
    assert max(curve(tmp_path / "out", "learning_rate")[:2]) < 1e-3


@pytest.mark.parametrize("family", ["chronos-t5", "chronos-bolt"])
def test_bf16_computes_in_half_and_stores_in_full(family, tiny, curve, tmp_path):
    pretrain(tiny(family, precision="fp32"), tmp_path / "full", device="cpu")
    pretrain(tiny(family, precision="bf16"), tmp_path / "half", device="cpu")
    assert curve(tmp_path / "half") != curve(tmp_path / "full")
    assert curve(tmp_path / "half") == pytest.approx(curve(tmp_path / "full"), rel=0.05)
    assert {t.dtype for t in load_file(tmp_path / "half" / "model.safetensors").values()} == {torch.float32}


@pytest.mark.parametrize("family", ["chronos-t5", "chronos-bolt"])
def test_activations_are_computed_again(family, tiny, curve, monkeypatch, tmp_path):
    """Every layer runs twice per step, and the losses stay."""
    calls = {}

    def counting(config):
        model = new_model(config)
        for name, module in model.named_modules():
            if name.endswith("layer.0.SelfAttention"):
                module.register_forward_pre_hook(lambda *args, name=name: calls.update({name: calls.get(name, 0) + 1}))
        return model

    monkeypatch.setattr("rankscope.train.trainer.new_model", counting)
    monkeypatch.setattr("rankscope.train.loop.has_fast_pass", lambda model: False)
    pretrain(tiny(family, max_steps=3), tmp_path / "plain", device="cpu")
    assert set(calls.values()) == {3}
    calls.clear()
    pretrain(tiny(family, max_steps=3, gradient_checkpointing=True), tmp_path / "again", device="cpu")
    assert set(calls.values()) == {6}
    assert curve(tmp_path / "again") == pytest.approx(curve(tmp_path / "plain"), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["chronos-t5", "chronos-bolt"])
def test_a_compiled_network_is_saved_under_its_own_names(family, tiny, curve, monkeypatch, tmp_path):
    """Graphs are captured as for the real compiler, but run as they are: compiling takes a minute."""
    monkeypatch.setattr("rankscope.train.loop.COMPILER", "aot_eager")
    captured = []
    original = torch.compile
    monkeypatch.setattr(torch, "compile", lambda model, **k: captured.append(k["backend"]) or original(model, **k))
    pretrain(tiny(family, max_steps=3), tmp_path / "plain", device="cpu")
    pretrain(tiny(family, max_steps=3, compile=True), tmp_path / "compiled", device="cpu")
    assert captured == ["aot_eager"]
    plain, compiled = (load_file(tmp_path / name / "model.safetensors") for name in ("plain", "compiled"))
    assert plain.keys() == compiled.keys()
    assert curve(tmp_path / "compiled") == pytest.approx(curve(tmp_path / "plain"), rel=1e-4)
    from chronos import BaseChronosPipeline

    assert BaseChronosPipeline.from_pretrained(tmp_path / "compiled") is not None


def test_workers_change_nothing(tiny, same_weights, tmp_path):
    pretrain(tiny(), tmp_path / "none", device="cpu")
    pretrain(tiny(), tmp_path / "two", device="cpu", workers=2)
    assert same_weights(tmp_path / "none", tmp_path / "two")


def test_the_saved_config_keeps_the_cache_on(tiny, tmp_path):
    pretrain(tiny("chronos-t5", max_steps=2), tmp_path / "out", device="cpu")
    assert '"use_cache": true' in (tmp_path / "out" / "config.json").read_text()
