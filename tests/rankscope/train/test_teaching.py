"""A Chronos-Bolt that learns from another model's forecasts."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from rankscope import load_pipeline
from rankscope.engine import silent
from rankscope.errors import OptionError
from rankscope.io import codec
from rankscope.train import ModelShape, PretrainConfig, learn_from, pretrain
from rankscope.train.config import Teacher
from rankscope.train.models import QUANTILES, new_model
from rankscope.train.stream import ScaledCollator, open_corpus
from rankscope.train.teaching import CHUNK, FOLDER, Taught, answers, ask, taught_loss
from rankscope.train.trainer import training_run

TINY = ModelShape(
    d_model=16, d_kv=4, d_ff=16, num_layers=1, num_decoder_layers=1, num_heads=2, n_tokens=100, patch_size=4
)


def config(**changes) -> PretrainConfig:
    settings = {
        "family": "chronos-bolt", "model": TINY, "context": 32, "horizon": 8, "bank_kernels": 0, "max_steps": 6,
        "batch_size": 8, "warmup_steps": 1, "save_steps": 2, "log_steps": 1, **changes,
    }  # fmt: skip
    return PretrainConfig(**settings)


@pytest.fixture(scope="module", params=["chronos-t5", "chronos-bolt"])
def teacher(request, tmp_path_factory):
    """An untrained teacher's folder."""
    folder = tmp_path_factory.mktemp("teachers") / request.param
    torch.manual_seed(3)
    new_model(config(family=request.param)).save_pretrained(folder)
    return folder


def taught(folder, **changes) -> PretrainConfig:
    return config(teacher=Teacher(str(folder), series=40, paths=4, **changes))


def test_what_the_teacher_answers_are_its_pipeline_s_quantiles(teacher):
    """A teacher that samples is asked for its paths, whose quantiles are numpy's."""
    torch.manual_seed(0)
    rows = [{"context": torch.randn(n).cumsum(0), "target": torch.randn(8)} for n in (32, 20, 32)]
    rows[1]["context"][3] = torch.nan
    pipeline = load_pipeline(str(teacher))
    torch.manual_seed(5)
    found = ask(pipeline, taught(teacher), rows)
    torch.manual_seed(5)
    if pipeline.forecast_type.name == "SAMPLES":
        paths = pipeline.predict(found["context"], prediction_length=8, num_samples=4).numpy()
        expected = np.moveaxis(np.quantile(paths, QUANTILES, axis=1), 0, 1)
    else:
        expected = pipeline.predict_quantiles(found["context"], 8, list(QUANTILES))[0].transpose(1, 2).numpy()
    np.testing.assert_allclose(found["answer"], expected, rtol=1e-4, atol=1e-5)
    assert found["context"].shape == (3, 32)
    assert found["context"][1, :12].isnan().all()


def test_a_chronos_2_is_asked_as_well(tmp_path):
    torch.manual_seed(3)
    new_model(config(family="chronos-2")).save_pretrained(tmp_path / "teacher")
    rows = [{"context": torch.randn(32).cumsum(0), "target": torch.randn(8)} for _ in range(3)]
    pipeline = load_pipeline(str(tmp_path / "teacher"))
    found = ask(pipeline, taught(tmp_path / "teacher", encoder=False), rows)["answer"]
    expected, _ = pipeline.predict_quantiles([row["context"] for row in rows], 8, list(QUANTILES))
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs[0].mT)
    with pytest.raises(OptionError, match=r"set teacher\.encoder: false"):
        new_model(taught(tmp_path / "teacher"))


def test_a_series_without_observations_is_answered_finitely(teacher):
    rows = [{"context": torch.full((32,), torch.nan), "target": torch.randn(8)}]
    found = ask(load_pipeline(str(teacher)), taught(teacher), rows)
    assert found["answer"].isfinite().all()
    assert found["context"].isnan().all()


def test_answers_are_kept_and_go_on_where_they_were_stopped(teacher, tmp_path):
    settings = taught(teacher)
    (tmp_path / "run").mkdir()
    corpus = open_corpus(settings, tmp_path / "run", False, silent)
    whole = answers(settings, corpus, tmp_path / "run", silent)
    assert len(whole) == 40
    files = sorted((tmp_path / "run" / FOLDER).iterdir())
    assert len(files) == -(-40 // CHUNK)
    before = [file.stat().st_mtime_ns for file in files]
    files[1].unlink()
    asked = []
    again = answers(settings, corpus, tmp_path / "run", lambda done, total, what: asked.append((done, total)))
    assert asked == [(CHUNK, 40)]
    assert files[0].stat().st_mtime_ns == before[0]
    for one, two in zip(whole, again, strict=True):
        assert all(torch.equal(one[name].nan_to_num(9.0), two[name].nan_to_num(9.0)) for name in one)


def corpus_of(length: int):
    """Rows that say their index."""

    def rows(indices):
        return [{"context": torch.full((4,), float(i)), "target": torch.zeros(2)} for i in indices]

    return SimpleNamespace(stream=None, __getitems__=rows, __len__=lambda: length)


def test_taught_series_take_their_share_of_each_batch_in_turn():
    answered = [
        {"context": torch.full((4,), -1.0 - i), "target": torch.zeros(2), "answer": torch.zeros(9, 2)} for i in range(3)
    ]
    settings = dataclasses.replace(config(teacher=Teacher("x", share=0.25)), batch_size=8)
    mixed = Taught(corpus_of(100), settings, answered)
    rows = mixed.__getitems__(range(24))
    assert [int(row["context"][0]) for row in rows[:8]] == [-1, -2, 2, 3, 4, 5, 6, 7]
    assert [int(rows[i]["context"][0]) for i in (8, 9, 16, 17)] == [-3, -1, -2, -3]
    assert [bool(row["answer"].isnan().all()) for row in rows[:8]] == [False] * 2 + [True] * 6
    alone = mixed[17]  # the same however the indices are dealt
    assert torch.equal(alone["context"], rows[17]["context"])


def test_the_loss_is_the_loops():
    torch.manual_seed(1)
    network = new_model(config()).eval()
    rows = [{"context": 50 + 7 * torch.randn(32), "target": 50 + 7 * torch.randn(8), "answer": 50 + torch.randn(9, 8)}
            for _ in range(4)]  # fmt: skip
    rows[2]["answer"] = torch.full((9, 8), torch.nan)
    batch = ScaledCollator()(rows)
    with torch.no_grad():
        found = {truth: taught_loss(network, batch, truth).item() for truth in (0.0, 0.3, 1.0)}
        plain = network(context=batch["context"], target=batch["target"]).loss.item()
        forecast = network(context=torch.stack([row["context"] for row in rows])).quantile_preds
    truth, distance = [], []
    for row, mine in zip(rows, forecast, strict=True):
        scale = row["context"].std(correction=0)
        for q, level in enumerate(QUANTILES):
            for t in range(8):
                error = float((row["target"][t] - mine[q, t]) / scale)
                truth.append(2 * max(level * error, (level - 1) * error))
                if row["answer"].isfinite().all():
                    distance.append(abs(float((row["answer"][q, t] - mine[q, t]) / scale)))
    assert found[1.0] == pytest.approx(plain)
    assert found[1.0] == pytest.approx(8 * np.mean(truth), rel=1e-3)
    assert found[0.0] == pytest.approx(8 * np.mean(distance), rel=1e-3)
    assert found[0.3] == pytest.approx(0.3 * found[1.0] + 0.7 * found[0.0], rel=1e-5)


def test_a_student_begins_with_the_teacher_s_encoder(teacher):
    network = new_model(taught(teacher))
    given = load_file(teacher / "model.safetensors")
    mine = {name: weight for name, weight in network.named_parameters() if name.startswith("encoder.")}
    assert len(mine) > 5
    assert all(torch.equal(weight, given[name]) for name, weight in mine.items())
    other = new_model(taught(teacher, encoder=False))
    assert not all(torch.equal(weight, given[name]) for name, weight in other.named_parameters() if name in mine)


@pytest.mark.parametrize(("field", "value"), [("relative_attention_max_distance", 64), ("layer_norm_epsilon", 1e-3)])
def test_a_student_computes_as_the_teacher_s_encoder_does(field, value, tmp_path):
    given = dataclasses.replace(TINY, **{field: value})
    new_model(config(model=given)).save_pretrained(tmp_path / "teacher")
    asked = learn_from(PretrainConfig(context=32, horizon=8), str(tmp_path / "teacher"))
    assert getattr(asked.model, field) == value
    new_model(asked)
    with pytest.raises(OptionError, match=f"{field} is {value} there and .* here: set teacher.encoder: false"):
        new_model(taught(tmp_path / "teacher"))


def test_where_only_the_truth_counts_the_teacher_is_not_asked(teacher, tmp_path):
    told = []
    pretrain(taught(teacher, truth=1.0), tmp_path / "own", device="cpu", progress=lambda *said: told.append(said[2]))
    assert not any("teacher" in what for what in told)


def test_the_shape_is_the_teacher_s_with_one_decoder_layer(teacher):
    asked = learn_from(PretrainConfig(context=32, horizon=8), str(teacher))
    assert (asked.family, asked.model.d_model, asked.model.num_decoder_layers) == ("chronos-bolt", 16, 1)
    own = learn_from(config(), str(teacher))
    assert own.model == TINY


def test_a_student_comes_nearer_to_its_teacher(tmp_path):
    torch.manual_seed(3)
    new_model(config(model=dataclasses.replace(TINY, start="recency"))).save_pretrained(tmp_path / "teacher")
    settings = dataclasses.replace(
        taught(tmp_path / "teacher", truth=0.0, share=1.0), max_steps=40, learning_rate=1e-2, schedule="constant",
        log_steps=10,
    )  # fmt: skip
    pretrain(settings, tmp_path / "student", device="cpu")
    losses = np.genfromtxt(tmp_path / "student" / "loss.csv", delimiter=",", names=True)["loss"]
    assert losses[-1] < 0.7 * losses[0]
    assert load_pipeline(str(tmp_path / "student")).predict_quantiles(torch.randn(2, 32), 8)[0].isfinite().all()


def test_a_stopped_run_goes_on_bit_for_bit(teacher, tmp_path, same_weights):
    class Stop(Exception):
        pass

    def stop(done, total, what):
        if "loss" in what and done == 4:
            raise Stop

    settings = taught(teacher)
    pretrain(settings, tmp_path / "whole", device="cpu")
    with pytest.raises(Stop):
        pretrain(settings, tmp_path / "half", device="cpu", progress=stop)
    pretrain(settings, tmp_path / "half", resume=True, device="cpu")
    assert same_weights(tmp_path / "whole", tmp_path / "half")
    assert not (tmp_path / "half.run").exists()


def test_the_teacher_answers_by_the_fast_runtime_on_the_run_s_device(teacher, monkeypatch, tmp_path):
    asked = []

    def load(model, **how):
        asked.append(how)
        return load_pipeline(model, **how)

    monkeypatch.setattr("rankscope.load_pipeline", load)
    pretrain(taught(teacher), tmp_path / "new", device="cpu")
    assert asked == [{"device": "cpu", "runtime": "auto"}]


def test_a_run_without_a_teacher_has_the_settings_that_it_had_before_there_were_any(tmp_path):
    assert "teacher" not in training_run(config(), tmp_path / "a", "fp32", 1).store.settings
    asked = training_run(config(teacher=Teacher("x")), tmp_path / "a", "fp32", 1).store.settings
    assert asked["teacher"]["model"] == "x"
    assert codec.build(PretrainConfig, codec.plain(config())) == config()


def test_what_cannot_be_taught_is_refused(teacher, tmp_path):
    with pytest.raises(OptionError, match="a student is a chronos-bolt"):
        config(family="chronos-t5", teacher=Teacher("bundled"))
    with pytest.raises(OptionError, match="leave out shards"):
        config(shards="x", teacher=Teacher("bundled"))
    with pytest.raises(OptionError, match="both start the encoder"):
        config(weights="x", teacher=Teacher("bundled"))
    with pytest.raises(OptionError, match=r"teacher\.share is 0"):
        Teacher(share=0.0)
    with pytest.raises(OptionError, match=r"here: set teacher\.encoder: false"):
        pretrain(dataclasses.replace(taught(teacher), model=dataclasses.replace(TINY, d_ff=32)), tmp_path / "a")
    with pytest.raises(OptionError, match="does not forecast: chronos-t5"):
        pretrain(taught("bundled-t5-text"), tmp_path / "a")
    assert list(tmp_path.iterdir()) == []
