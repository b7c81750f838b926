"""Values of a config are of their field's kind, or refused in one line that says what is expected."""

import re
from typing import Any

import pytest
import torch

from rankscope.errors import OptionError
from rankscope.io import codec
from rankscope.train import ModelShape, PretrainConfig, config_from_dict, read_config
from rankscope.train.models import new_model
from rankscope.train.rank_schedule import RankDesign
from rankscope.train.sweeps import read_sweep


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_steps: '100'", "max_steps is '100': it must be a whole number."),
        ("max_steps: 1e3", "max_steps is '1e3': it must be a whole number."),
        ("max_steps: 10.0", "max_steps is 10.0: it must be a whole number."),
        ("max_steps:", "max_steps is None: it must be a whole number."),
        ("seed: true", "seed is True: it must be a whole number."),
        ("learning_rate: fast", "learning_rate is 'fast': it must be a number."),
        ("learning_rate: .nan", "learning_rate is nan: it must be a finite number."),
        ("learning_rate: 1e999", "learning_rate is '1e999': it must be a finite number."),
        ("learning_rate: true", "learning_rate is True: it must be a number."),
        ("learning_rate: [0.1]", "learning_rate is [0.1]: it must be a number."),
        ("compile: yes-please", "compile is 'yes-please': it must be true or false."),
        ("compile: 1", "compile is 1: it must be true or false."),
        ("embedding: {rate: 0}", "embedding.rate is 0.0: it must be above 0; frozen: true stops the embedding."),
        (
            "embedding: {rate: 2, frozen: true}",
            "embedding.rate is 2.0 with frozen: true, which leaves the embedding as it is.",
        ),
        ("shards: 5", "shards is 5: it must be text."),
        ("spectra: {steps: 5}", "spectra.steps is 5: it must be a list."),
        ("spectra: {steps: [1, 2.5]}", "spectra.steps[1] is 2.5: it must be a whole number."),
        ("spectra: {roles: qk}", "spectra.roles is 'qk': it must be a list."),
        ("mixture: {files: a.csv}", "mixture.files is 'a.csv': it must be a list."),
        ("mixture: {kernel_share: half}", "mixture.kernel_share is 'half': it must be a number."),
        ("model: {d_model: 64.0}", "model.d_model is 64.0: it must be a whole number."),
        ("model: {d_model: 0}", "model.d_model is 0: it must be at least 1."),
        ("model: {dropout_rate: 1}", "model.dropout_rate is 1.0: it must lie in [0, 1)."),
        ("model: 64", "model is 64: it must be a mapping of fields to values."),
        ("model:", "model is None: it must be a mapping of fields to values."),
        ("model: {n_tokens: 2}", "model.n_tokens is 2: it must be at least 3."),
        (
            "model: {relative_attention_num_buckets: 3}",
            "model.relative_attention_num_buckets is 3: it must be at least 4.",
        ),
        (
            "model: {relative_attention_max_distance: 16}",
            "model.relative_attention_max_distance is 16: it must be at least 17.",
        ),
        (
            "{family: chronos-bolt, model: {relative_attention_max_distance: 8}}",
            "model.relative_attention_max_distance is 8: it must be at least 9.",
        ),
        ("model: {initializer_factor: -1}", "model.initializer_factor is -1.0: it must be at least 0."),
        (
            "model: {initializer_factor: 0, start: recency}",
            "model.initializer_factor is 0: start recency scales it up, give one above 0.",
        ),
        ("model: {layer_norm_epsilon: -1}", "model.layer_norm_epsilon is -1.0: it must be at least 0."),
        (
            "{family: chronos-2, model: {d_kv: 3}}",
            "model.d_kv is 3: rotary positions turn pairs, give an even one.",
        ),
        ("seed: 4294967296", "seed is 4294967296: it must be at most 4294967295."),
        ("low_rank: {r0: 1e300}", "low_rank.r0 is 1e+300: it must be at most 1,000,000."),
        ("low_rank: {alpha: 1e3}", "low_rank.alpha is 1000: it must be at most 16."),
        ("low_rank: {r0: three}", "low_rank.r0 is 'three': it must be a number."),
        ("low_rank: {mlp: 2}", "low_rank.mlp is 2: it must be true or false."),
        ("seed: -1", "seed is -1: it must be at least 0."),
        ("beta2: 1", "beta2 is 1.0: it must lie in [0, 1)."),
        ("{warmup_steps: -5, decay_steps: 5}", "warmup_steps is -5: it must be at least 0."),
    ],
)
def test_a_value_of_another_kind_is_refused(text, message, tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text(text)
    with pytest.raises(OptionError) as caught:
        read_config(file)
    assert str(caught.value).removeprefix(f"config {file}: ") == message


def test_a_decoder_of_one_token_tells_no_distances_apart():
    torch.manual_seed(0)
    shape = ModelShape(d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2, relative_attention_max_distance=9)
    model = new_model(PretrainConfig(family="chronos-bolt", model=shape))
    assert model(context=torch.randn(2, 512)).quantile_preds.isfinite().all()


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "run.yaml").write_bytes(b"seed: \xff\xfe")
    with pytest.raises(OptionError, match=r"run\.yaml is not valid YAML"):
        read_config(tmp_path / "run.yaml")


def test_numbers_without_a_point_are_numbers(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("{learning_rate: 1e-3, weight_decay: 0, max_grad_norm: 1E+1, low_rank: {r0: 3, alpha: 27e-2}}")
    config = read_config(file)
    assert (config.learning_rate, config.weight_decay, config.max_grad_norm) == (0.001, 0.0, 10.0)
    assert config.low_rank is not None
    assert (config.low_rank.r0, config.low_rank.alpha) == (3.0, 0.27)
    assert config_from_dict({"low_rank": None}).low_rank is None


def paths(config: dict[str, Any]) -> list[tuple[str, ...]]:
    """Every section, and every field of the sections."""
    inner = [(section, name) for section, value in config.items() if isinstance(value, dict) for name in value]
    return [(name,) for name in config] + inner


@pytest.mark.parametrize("path", paths(codec.plain(PretrainConfig(low_rank=RankDesign()))), ids=".".join)
def test_every_field_is_checked(path):
    values = {path[-1]: object()}
    with pytest.raises(OptionError, match=rf"^{re.escape('.'.join(path))} is <object"):
        config_from_dict({path[0]: values} if len(path) > 1 else values)


def test_values_of_a_sweep_are_numbers(tmp_path):
    file = tmp_path / "rates.yaml"
    file.write_text("axes: {learning_rate: [1e-3, 3e-4]}\nseeds: [0]\neps: [1e-1, 0.01]\n")
    spec = read_sweep(file)
    points = spec.expand()
    assert [point.config.learning_rate for point in points] == [0.001, 0.0003]
    assert [point.fields for point in points] == [{"learning_rate": rate, "seed": 0} for rate in (0.001, 0.0003)]
    assert [point.name for point in points] == ["learning_rate-1e-3", "learning_rate-3e-4"]
    assert spec.eps == (0.1, 0.01)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("axes: {learning_rate: [fast]}", "point 'learning_rate-fast': learning_rate is 'fast': it must be a"),
        ("points: {a: {max_steps: '9'}}", "point 'a': max_steps is '9': it must be a whole number"),
        ("points: {a: {}}\nbase: {compile: maybe}", "compile is 'maybe': it must be true or false"),
        ("points: {a: {}}\neps: 0.1", "eps is 0.1: it must be a list"),
        ("points: {a: {}}\neps: [small]", r"eps\[0\] is 'small': it must be a number"),
        ("points: {a: {}}\nabout: [x]", r"about is \['x'\]: it must be text"),
    ],
)
def test_values_of_a_sweep_are_checked(text, message, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(OptionError, match=message):
        read_sweep(file)
