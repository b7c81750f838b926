"""A healed folder: nearer to its teacher, and otherwise what it was."""

import csv
import json
import math
import random

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

import rankscope
from rankscope.checkpoints import open_checkpoint
from rankscope.compress import CompressOptions, compress
from rankscope.compress.heal import HealConfig, heal
from rankscope.compress.heal.run import as_pretraining
from rankscope.compress.heal.student import compressed_parameters
from rankscope.errors import DataError, OptionError, RankscopeError
from rankscope.io import codec
from rankscope.io.run_store import RunStore

OTHERS = [("chronos-t5", "svd"), ("chronos-t5", "joint"), ("chronos-bolt", "svd"), ("chronos-2", "joint")]
CASES = [("chronos-bolt", "joint"), *(pytest.param(*case, marks=pytest.mark.slow) for case in OTHERS)]


def weights(folder):
    return load_file(folder / "model.safetensors")


def curve(folder, column="loss"):
    with (folder / "loss.csv").open() as handle:
        return [float(row[column]) for row in csv.DictReader(handle)]


@pytest.mark.parametrize(("kind", "method"), CASES)
def test_the_loss_falls_and_the_folder_is_what_it_was(kind, method, teacher, student, short, tmp_path):
    whole = teacher(kind, num_decoder_layers=2)
    small = student(whole, method, dtype="bfloat16")
    report = heal(
        small,
        whole,
        short(steps=40, log_steps=5, learning_rate=3e-3, batch_size=16, truth=0.0, save_seconds=60.0),
        out=tmp_path / "out",
        device="cpu",
    )
    assert report.last_loss < 0.8 * report.first_loss
    assert (report.first_loss, report.last_loss) == (curve(tmp_path / "out")[0], curve(tmp_path / "out")[-1])
    assert report.trained_parameters == report.parameters == open_checkpoint(small).parameters
    for name in ("config.json", "compress.json", *(() if kind == "chronos-2" else ("generation_config.json",))):
        assert (tmp_path / "out" / name).read_bytes() == (small / name).read_bytes()
    before, after = weights(small), weights(tmp_path / "out")
    assert {n: (t.shape, t.dtype) for n, t in before.items()} == {n: (t.shape, t.dtype) for n, t in after.items()}
    assert {t.dtype for t in after.values()} == {torch.bfloat16}
    assert json.loads((tmp_path / "out" / "heal.json").read_text()) == codec.plain(report)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "student", "teacher"]


@pytest.mark.parametrize(
    ("kind", "patches", "horizon", "own", "grouped"),
    [("chronos-bolt", None, 8, 8, 0.0), ("chronos-2", 3, 12, 12, 0.5), ("chronos-2", 1000, 512, 64, 0.5)],
)
def test_horizon_and_groups_are_what_the_family_reads(kind, patches, horizon, own, grouped, tiny_config, teacher):
    config = tiny_config(kind)
    if patches:
        config["chronos_config"]["max_output_patches"] = patches
    whole = open_checkpoint(teacher(kind, chronos_config=config["chronos_config"]))
    for options, most in ((HealConfig(), horizon), (HealConfig(files=("own.csv",)), own)):
        plan = as_pretraining(options, whole, whole)
        assert (plan.horizon, plan.mixture.group_share) == (most, grouped)


@pytest.mark.usefixtures("untyped")  # types are checked by random items
def test_random_states_are_the_callers_afterwards(teacher, student, short, tmp_path):
    whole = teacher("chronos-bolt")
    small = student(whole)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    heal(small, whole, short(steps=1), out=tmp_path / "out", device="cpu")
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    assert after == before


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "method"), CASES)
def test_it_loads_is_healed_again_and_compressed_again(kind, method, teacher, student, short, tmp_path):
    from chronos import BaseChronosPipeline

    assert rankscope.__version__
    whole = teacher(kind, num_decoder_layers=2)
    heal(student(whole, method), whole, short(steps=2), out=tmp_path / "once", device="cpu")
    pipeline = BaseChronosPipeline.from_pretrained(str(tmp_path / "once"))
    quantiles, _ = pipeline.predict_quantiles([torch.randn(30)], prediction_length=4, quantile_levels=[0.5])
    assert torch.isfinite(quantiles[0]).all()
    second = heal(tmp_path / "once", whole, short(steps=2, seed=1), out=tmp_path / "twice", device="cpu")
    assert [one["options"]["seed"] for one in second.earlier] == [0]
    third = heal(tmp_path / "twice", whole, short(steps=2, seed=2), out=tmp_path / "thrice", device="cpu")
    assert [one["options"]["seed"] for one in third.earlier] == [0, 1]
    assert (
        compress(tmp_path / "twice", CompressOptions(attention_ratio=0.5), out=tmp_path / "smaller").selected_ratio
        <= 0.5
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["chronos-t5", "chronos-bolt", "chronos-2"])
def test_a_student_that_is_the_teacher_stays_it(kind, teacher, short, tmp_path):
    """Dropout, which both have in their configs, would part them."""
    whole = teacher(kind)
    report = heal(
        whole,
        whole,
        short(steps=20, learning_rate=1e-3, truth=0.0, save_seconds=60.0),
        out=tmp_path / "out",
        device="cpu",
    )
    assert set(curve(tmp_path / "out")) == {0.0} == {report.last_loss}
    before, after = weights(whole), weights(tmp_path / "out")
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "method"), CASES)
def test_what_is_not_compressed_stays_bit_for_bit(kind, method, teacher, student, short, tmp_path):
    whole = teacher(kind)
    small = student(whole, method, dtype="float64")
    report = heal(small, whole, short(train="compressed", learning_rate=1e-2), out=tmp_path / "out", device="cpu")
    source = open_checkpoint(small)
    trained = compressed_parameters(source, source.module())
    before, after = weights(small), weights(tmp_path / "out")
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved
    assert moved <= trained
    assert not any("relative_attention_bias" in name or "Dense" in name or "norm" in name for name in trained)
    attention = {name for name in before if ".q" in name or ".k" in name or ".v." in name or ".o." in name}
    assert trained <= attention
    assert report.trained_parameters == sum(before[name].numel() for name in trained) < report.parameters


@pytest.mark.slow
def test_all_means_all(teacher, student, short, tmp_path):
    small = student(teacher("chronos-t5"))
    heal(small, tmp_path / "teacher", short(), out=tmp_path / "out", device="cpu")
    before, after = weights(small), weights(tmp_path / "out")
    assert all(not torch.equal(before[name], after[name]) for name in before)


def test_what_is_on_a_narrower_stream_is_compressed(teacher, tmp_path):
    how = CompressOptions(ratio=0.8, method="stream", calibration="mixture:8", probe="mixture:4")
    compress(teacher("chronos-bolt"), how, out=tmp_path / "small")
    source = open_checkpoint(tmp_path / "small")
    trained = compressed_parameters(source, source.module())
    shapes = {name: info.shape for name, info in source.index.items()}
    before = {name: info.shape for name, info in open_checkpoint(tmp_path / "teacher").index.items()}
    narrowed = {name for name in shapes if shapes[name] != before.get(name)}
    assert narrowed <= trained
    assert any(name.endswith("skip.weight") for name in trained)


def test_nothing_compressed_is_no_student_for_train_compressed(teacher, short, tmp_path):
    whole = teacher("chronos-t5")
    with pytest.raises(OptionError, match="no compressed matrix"):
        heal(whole, whole, short(train="compressed"), out=tmp_path / "out", device="cpu")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["teacher"]


@pytest.mark.slow
@pytest.mark.usefixtures("clock")
def test_by_time_it_ends_with_the_minutes_and_a_rate_of_nearly_zero(teacher, student, short, tmp_path):
    whole = teacher("chronos-bolt")
    config = short(minutes=0.1, save_seconds=60.0, log_steps=1, learning_rate=1e-2)
    told = []
    report = heal(
        student(whole), whole, config, out=tmp_path / "out", device="cpu", progress=lambda *said: told.append(said)
    )
    assert 6 <= report.seconds < 7
    assert report.steps == len(curve(tmp_path / "out")) > 10
    rates = curve(tmp_path / "out", "learning_rate")
    assert max(rates) > 9e-3
    assert rates[-1] < 1e-3
    falling = rates[rates.index(max(rates)) :]
    assert falling == sorted(falling, reverse=True)
    assert {total for _, total, what in told if "loss" in what} == {6}


@pytest.mark.slow
def test_the_user_s_series_are_learnt_from(teacher, student, short, tmp_path):
    file = tmp_path / "mine.csv"
    table = {"date": pd.date_range("2020", periods=80, freq="D"), "a": np.sin(np.arange(80.0)), "b": np.arange(80.0)}
    pd.DataFrame(table).to_csv(file, index=False)
    whole = teacher("chronos-bolt")
    small = student(whole)
    mine = short(steps=2, files=(str(file),))
    assert heal(small, whole, mine, out=tmp_path / "mine", device="cpu").options == mine
    heal(small, whole, short(steps=2), out=tmp_path / "without", device="cpu")
    assert curve(tmp_path / "mine") != curve(tmp_path / "without")


@pytest.mark.parametrize("content", ["date,a\n2020-01-01,1\n", "nothing"])
def test_a_file_that_cannot_be_used_is_refused_before_anything_changes(content, teacher, student, short, tmp_path):
    whole = teacher("chronos-bolt")
    small = student(whole)
    (tmp_path / "bad.csv").write_text(content)
    with RunStore(tmp_path / "out.run", "a healing", "rankscope/heal-run@1", {}).open():
        (tmp_path / "out.run" / "loss.csv").write_text("of an unfinished healing, which force would give up")
    before = sorted(tmp_path.rglob("*"))
    bad = short(files=(str(tmp_path / "bad.csv"),))
    with pytest.raises(DataError):
        heal(small, whole, bad, out=tmp_path / "out", device="cpu", force=True)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_a_healing_that_diverges_stops_and_names_its_last_good_snapshot(teacher, student, short, tmp_path, monkeypatch):
    from rankscope.compress.heal import distillation

    whole = teacher("chronos-bolt")
    small = student(whole)
    calls = []

    def breaks(own, true, asked):
        calls.append(0)
        return original(own, true, asked) * (math.nan if len(calls) == 4 else 1)

    original = distillation.quantile_distance
    with monkeypatch.context() as broken:
        broken.setattr(distillation, "quantile_distance", breaks)
        with pytest.raises(RankscopeError, match=r"step 4.*checkpoint-3"):
            heal(small, whole, short(), out=tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()
    lower = short(learning_rate=1e-5)
    report = heal(small, whole, lower, out=tmp_path / "out", device="cpu", resume=True)
    (change,) = report.changes
    assert curve(tmp_path / "out", "learning_rate")[-1] < 1e-5
    assert change == {"step": 3, "field": "learning_rate", "before": short().learning_rate, "after": 1e-5}


def test_several_processes_are_refused(teacher, short, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(OptionError, match="one process"):
        heal(teacher("chronos-bolt"), tmp_path / "teacher", short(), out=tmp_path / "out")
