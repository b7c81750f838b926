"""Runs: what they write loads elsewhere, they are a function of their seed, and a stopped one goes on exactly."""

import json
import math
import random

import numpy as np
import pytest
import torch

from rankscope.errors import OptionError, OutputError, RankscopeError
from rankscope.train import config_from_dict, pretrain, read_config
from rankscope.train.config import Snapshots
from rankscope.train.data.mixture import Mixture
from rankscope.train.stream import BoltCollator, SeriesStream, TokenCollator
from rankscope.train.sweeps import find_sweep, shipped_sweeps
from rankscope.train.trainer import check_effects, training_run


@pytest.mark.parametrize("family", ["chronos-t5", "chronos-bolt", "chronos-2"])
def test_the_trained_folder_forecasts_in_plain_chronos(family, tmp_path, tiny):
    from chronos import BaseChronosPipeline

    report = pretrain(tiny(family), tmp_path / "model", device="cpu")
    assert report.steps == 6
    assert math.isfinite(report.loss)
    pipeline = BaseChronosPipeline.from_pretrained(tmp_path / "model")
    levels = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    quantiles, mean = pipeline.predict_quantiles([torch.arange(40.0).sin()], 8, quantile_levels=levels)
    assert quantiles[0].reshape(8, 9).isfinite().all()
    assert mean[0].isfinite().all()
    record = json.loads((tmp_path / "model" / "pretrain.json").read_text())
    assert config_from_dict(record["config"]) == tiny(family)
    assert not list(tmp_path.glob("*.run"))
    assert not list((tmp_path / "model").glob("*.bin"))


@pytest.mark.usefixtures("untyped")  # types are checked by random items
def test_random_states_are_the_callers_afterwards(tmp_path, tiny):
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    pretrain(tiny(max_steps=1, warmup_steps=0), tmp_path / "model", device="cpu")
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    assert after == before


def test_a_gpu_that_is_not_there_is_refused(tmp_path, tiny, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(OptionError, match="asks for a GPU that torch does not see"):
        pretrain(tiny(precision="fp32"), tmp_path / "model", device="cuda")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_seed_decides(tmp_path, tiny, curve):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        pretrain(tiny(seed=seed, max_steps=2, warmup_steps=0), tmp_path / name, device="cpu")
    assert curve(tmp_path / "a") == curve(tmp_path / "b")
    assert curve(tmp_path / "a") != curve(tmp_path / "c")


def test_a_loss_that_is_not_a_number_stops_the_run(tmp_path, monkeypatch, tiny):
    def poison(self, rows):
        batch = original(self, rows)
        batch["context"] = batch["context"] * torch.inf
        return batch

    original = BoltCollator.__call__
    monkeypatch.setattr(BoltCollator, "__call__", poison)
    with pytest.raises(RankscopeError, match="loss became"):
        pretrain(tiny(), tmp_path / "model", device="cpu")
    assert not (tmp_path / "model").exists()


def test_tokens_are_those_of_the_published_tokenizer_with_eos_last(tiny):
    config = tiny("chronos-t5")
    from rankscope.train.models import EOS, chronos_config

    rows = SeriesStream(config, None).__getitems__([0, 1])
    batch = TokenCollator(chronos_config(config))(rows)
    assert batch["input_ids"].shape == (2, 33)
    assert batch["labels"].shape == (2, 9)
    assert (batch["labels"][:, -1] == EOS).all()
    assert (batch["attention_mask"][:, -1] == 1).all()


def test_targets_absurdly_far_away_are_left_out():
    rows = [{"context": torch.tensor([0.0, 1.0, 0.0, 1.0]), "target": torch.tensor([0.5, 1e6])}]
    batch = BoltCollator()(rows)
    assert batch["target"][0, 0] == 0.5
    assert torch.isnan(batch["target"][0, 1])


def test_existing_output_is_refused(tmp_path, tiny):
    (tmp_path / "there").mkdir()
    with pytest.raises(OutputError, match="exists already"):
        pretrain(tiny(), tmp_path / "there")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("family: chronos-t6", "did you mean"),
        ("model: {d_modle: 4}", "did you mean 'model.d_model'"),
        ("max_steps: 0", "at least 1"),
        ("warmup_steps: 99999", "do not fit"),
        ("family: chronos-bolt\ncontext: 100", "multiple of patch_size"),
        ("[1, 2]", "must be a mapping"),
        ("a: [", "not valid YAML"),
    ],
)
def test_bad_configs_get_one_line(tmp_path, text, message):
    file = tmp_path / "run.yaml"
    file.write_text(text)
    with pytest.raises(OptionError, match=message) as caught:
        read_config(file)
    assert "\n" not in str(caught.value)


def test_shipped_configs_are_readable():
    from importlib.resources import files

    for file in (files("rankscope.train") / "configs").iterdir():
        assert read_config(str(file)).max_steps > 0
        check_effects(read_config(str(file)))
    for name in shipped_sweeps():
        for point in find_sweep(name).expand():
            check_effects(point.config)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shards": "a", "mixture": Mixture(files=("b.csv",), file_share=0.5)}, "leave out mixture.files and group_"),
        ({"shards": "a", "family": "chronos-2", "mixture": Mixture(group_share=0.5)}, "leave out mixture.files and"),
        ({"mixture": Mixture(plain_groups=0.5)}, "mixture.plain_groups has no effect without groups"),
        ({"decay_steps": 2}, "decay_steps 2 has no effect with schedule linear: leave it out, or write schedule: w"),
        ({"keep_steps": (3, 7)}, "keep_steps has 7, and the run ends at max_steps 6"),
        ({"spectra": Snapshots(steps=(7,))}, r"spectra\.steps has 7, and the run ends at max_steps 6"),
    ],
)
def test_settings_that_nothing_would_look_at_are_refused_of_new_runs(changes, message, tiny, monkeypatch, tmp_path):
    monkeypatch.setattr("rankscope.train.trainer.read_checksums", lambda config: {})
    with pytest.raises(OptionError, match=message):
        pretrain(tiny(**changes), tmp_path / "out", device="cpu", resume=True)
    assert list(tmp_path.iterdir()) == []
    with training_run(tiny(**changes), tmp_path / "out", "fp32", 1).open(resume=False, force=False):
        (tmp_path / "out.run" / "checkpoint-1").mkdir()  # begun by an earlier release
    with pytest.raises(OutputError, match="seed 0, not 1"):
        pretrain(tiny(**changes, seed=1), tmp_path / "out", device="cpu", resume=True)
