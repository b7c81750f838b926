"""Scores during training are those of the saved checkpoint, and training does not notice them."""

import dataclasses
import math
import random

import numpy as np
import pytest
import torch

from rankscope.errors import DataError, OptionError
from rankscope.train import pretrain
from rankscope.train.callbacks import as_saved
from rankscope.train.config import Validation
from rankscope.train.models import new_model
from rankscope_eval import Forecasting, evaluate, score_during_training

FEW = Forecasting(num_samples=3)


@pytest.fixture
def suite(tmp_path):
    """Two small tasks."""
    file = tmp_path / "toy.yaml"
    file.write_text(
        "- {name: nile, prediction_length: 6, offset: -6, embedded: nile}\n"
        "- {name: macro, prediction_length: 4, offset: -4, embedded: macrodata}\n"
    )
    return file


@pytest.fixture
def run(tiny, suite):
    """``run("chronos-t5")``: a training with dropout that scores two series every other step."""

    def make(family):
        config = tiny(family, max_steps=5, save_steps=2, validation=Validation(every=2, suite=str(suite), series=2))
        return dataclasses.replace(config, model=dataclasses.replace(config.model, dropout_rate=0.2))

    return make


def curve(folder):
    lines = (folder / "validation.csv").read_text().splitlines()
    return [dict(zip(lines[0].split(","), map(float, line.split(",")), strict=True)) for line in lines[1:]]


@pytest.mark.parametrize("family", ["chronos-t5", "chronos-bolt", "chronos-2"])
def test_the_last_scores_are_those_of_the_checkpoint(family, suite, tmp_path, run):
    """`evaluate` loads the folder through chronos-forecasting, as it is here, and does its own means."""
    pretrain(run(family), tmp_path / "out", device="cpu", validate=score_during_training(suite, series=2))
    rows = curve(tmp_path / "out")
    assert [row["step"] for row in rows] == [2, 4, 5]
    report = evaluate([str(tmp_path / "out")], suite, Forecasting(runtime="stock"), max_series=2)
    ours = [row for row in report.rows if row.model == str(tmp_path / "out")]
    assert len(ours) == 2
    assert report.summary[0].relative_WQL == pytest.approx(rows[-1]["relative_WQL"], rel=1e-5)
    assert report.summary[0].relative_MASE == pytest.approx(rows[-1]["relative_MASE"], rel=1e-5)
    assert math.sqrt(ours[0].WQL * ours[1].WQL) == pytest.approx(rows[-1]["WQL"], rel=1e-5)
    assert math.sqrt(ours[0].MASE * ours[1].MASE) == pytest.approx(rows[-1]["MASE"], rel=1e-5)


@pytest.mark.parametrize("family", ["chronos-t5", "chronos-bolt", "chronos-2"])
def test_scores_change_no_weight(family, suite, tmp_path, run):
    """Dropout draws random numbers, and so do the sample paths of a Chronos-T5."""
    from safetensors.torch import load_file

    config = run(family)
    pretrain(config, tmp_path / "with", device="cpu", validate=score_during_training(suite, 1, how=FEW))
    pretrain(dataclasses.replace(config, validation=Validation()), tmp_path / "without", device="cpu")
    ours, plain = (load_file(tmp_path / name / "model.safetensors") for name in ("with", "without"))
    assert all(torch.equal(ours[name], plain[name]) for name in plain)
    assert (tmp_path / "with" / "loss.csv").read_bytes() == (tmp_path / "without" / "loss.csv").read_bytes()


def test_a_stopped_run_goes_on_with_its_scores(tmp_path, run):
    config = run("chronos-bolt")
    scores = iter(range(100))

    def stop(done, total, what):
        if "loss" in what and done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(
            config, tmp_path / "out", device="cpu", progress=stop, validate=lambda network: {"x": float(next(scores))}
        )
    assert [row["step"] for row in curve(tmp_path / "out.run")] == [2, 4, 5]
    pretrain(config, tmp_path / "out", device="cpu", resume=True, validate=lambda network: {"x": 10.0})
    assert curve(tmp_path / "out") == [{"step": 2, "x": 0}, {"step": 4, "x": 1}, {"step": 5, "x": 10}]


def test_the_network_is_scored_as_it_would_be_saved_and_put_back(suite, run):
    model = new_model(run("chronos-t5"))
    model.train()
    model.decoder.eval()
    patched = model.__dict__["forward"] = lambda *args, **kwargs: pytest.fail("the patched forward pass was taken")
    model.config.use_cache = False
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.random.get_rng_state()  # noqa: NPY002
    with as_saved(model) as network:
        assert not any(module.training for module in network.modules())
        assert network.config.use_cache
        found = score_during_training(suite, 1, how=FEW)(network)
        random.random(), np.random.rand()  # noqa: NPY002
    tasks = {f"relative_WQL {name}" for name in ("nile", "macro")}
    assert set(found) == {"WQL", "MASE", "relative_WQL", "relative_MASE", *tasks}
    assert model.training
    assert model.encoder.training
    assert not model.decoder.training
    assert model.__dict__["forward"] is patched
    assert model.config.use_cache is False
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.random.get_rng_state()  # noqa: NPY002
    assert after[:2] == states[:2]
    assert torch.equal(after[2], states[2])


def test_scores_of_a_network_that_forecasts_nan_are_nan(suite, run):
    model = new_model(run("chronos-bolt")).eval()
    with torch.no_grad():
        model.output_patch_embedding.output_layer.weight.fill_(torch.nan)
    assert all(math.isnan(value) for value in score_during_training(suite, series=1)(model).values())


def test_what_cannot_be_scored_is_refused_before_the_training(suite, tmp_path, run):
    with pytest.raises(OptionError, match="series"):
        score_during_training(suite, series=-1)
    with pytest.raises(DataError, match="did you mean 'embedded'"):
        score_during_training("embeded")
    with pytest.raises(DataError, match="does not exist"):
        score_during_training(suite, data=tmp_path / "nowhere")
    with pytest.raises(OptionError, match="pass validate"):
        pretrain(run("chronos-t5"), tmp_path / "out")
    assert not list(tmp_path.glob("out*"))


def test_no_module_hides_a_public_name():
    """Whatever module of the package is imported first."""
    import importlib
    import pkgutil

    import rankscope_eval

    for module in pkgutil.iter_modules(rankscope_eval.__path__):
        importlib.import_module(f"rankscope_eval.{module.name}")
    assert not {module.name for module in pkgutil.iter_modules(rankscope_eval.__path__)} & set(rankscope_eval.__all__)
    assert callable(rankscope_eval.evaluate)
