"""Students: which teacher they may have, and how those in int8 are trained and written again."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from rankscope.checkpoints import open_checkpoint
from rankscope.compress.heal import heal
from rankscope.compress.heal.student import check_teacher
from rankscope.errors import FamilyError, OptionError
from rankscope.families.weight_layout import scale_name
from rankscope.numerics.quantise import quantise


def inner(config, **changes):
    return {**config, "chronos_config": {**config["chronos_config"], **changes}}


@pytest.mark.parametrize(
    ("kind", "changes", "named"),
    [
        ("chronos-t5", {"tokenizer_kwargs": {"low_limit": -20.0, "high_limit": 20.0}}, "tokenizer_kwargs"),
        ("chronos-t5", {"n_special_tokens": 3}, "n_special_tokens"),
        ("chronos-t5", {"prediction_length": 4}, "prediction_length 4, .* has 8"),
        ("chronos-bolt", {"quantiles": [0.1, 0.5, 0.9]}, "quantiles"),
        ("chronos-bolt", {"input_patch_size": 8, "input_patch_stride": 8}, "input_patch_size"),
        ("chronos-bolt", {"prediction_length": 4}, "prediction_length"),
        ("chronos-bolt", {"use_reg_token": False}, "use_reg_token"),
        ("chronos-2", {"quantiles": [0.1, 0.5, 0.9]}, "quantiles"),
        ("chronos-2", {"output_patch_size": 8}, "output_patch_size"),
    ],
)
def test_a_teacher_that_means_something_else_is_refused(kind, changes, named, write_checkpoint, tiny_config, tmp_path):
    own = open_checkpoint(write_checkpoint(tmp_path / "own", tiny_config(kind)))
    other = open_checkpoint(write_checkpoint(tmp_path / "other", inner(tiny_config(kind), **changes)))
    with pytest.raises(OptionError, match=named) as caught:
        check_teacher(own, other)
    assert "\n" not in str(caught.value)
    check_teacher(own, own)


def test_another_family_is_refused(chronos_t5_folder, bolt_folder):
    with pytest.raises(OptionError, match=r"Chronos-Bolt, .* is Chronos-T5"):
        check_teacher(open_checkpoint(chronos_t5_folder), open_checkpoint(bolt_folder))


def test_a_text_model_is_refused(t5_folder):
    with pytest.raises(FamilyError, match="only chronos-t5, chronos-bolt and chronos-2 models can be healed"):
        check_teacher(open_checkpoint(t5_folder), open_checkpoint(t5_folder))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "method"), [("chronos-t5", "svd"), ("chronos-bolt", "joint")])
def test_it_comes_nearer_and_stays_int8(kind, method, teacher, student, short, tmp_path):
    whole = teacher(kind, num_decoder_layers=2)
    small = student(whole, method, storage="int8")
    options = short(steps=40, log_steps=5, learning_rate=3e-3, batch_size=16, truth=0.0, save_seconds=60.0)
    report = heal(small, whole, options, out=tmp_path / "out", device="cpu")
    assert report.last_loss < 0.8 * report.first_loss
    assert report.trained_parameters == report.parameters == open_checkpoint(small).parameters
    assert (tmp_path / "out" / "config.json").read_bytes() == (small / "config.json").read_bytes()
    before, after = (load_file(folder / "model.safetensors") for folder in (small, tmp_path / "out"))
    assert {n: (t.shape, t.dtype) for n, t in before.items()} == {n: (t.shape, t.dtype) for n, t in after.items()}
    healed = open_checkpoint(tmp_path / "out")
    layers = [name for name, tensor in after.items() if tensor.dtype == torch.int8]
    changed = [name for name in layers if not torch.equal(healed.tensor(name), open_checkpoint(small).tensor(name))]
    scaled = [name for name in layers if not torch.equal(after[scale_name(name)], before[scale_name(name)])]
    assert len(scaled) > 0.8 * len(layers)
    assert len(changed) > 0.8 * len(layers)  # a decoder of one token asks no queries
    for name, tensor in after.items():
        if tensor.dtype == torch.int8:
            again = quantise(healed.tensor(name))
            assert torch.equal(again.values, tensor)
            assert torch.equal(again.scale, after[scale_name(name)])
    onward = heal(tmp_path / "out", whole, short(steps=5, batch_size=16, truth=0.0), out=tmp_path / "on", device="cpu")
    assert onward.first_loss < 0.9 * report.first_loss


@pytest.mark.slow
def test_what_is_not_trained_stays_bit_for_bit(teacher, student, short, tmp_path):
    whole = teacher("chronos-bolt")
    small = student(whole, storage="int8", sites=["q"])
    heal(small, whole, short(train="compressed"), out=tmp_path / "out", device="cpu")
    before, after = (load_file(folder / "model.safetensors") for folder in (small, tmp_path / "out"))
    cut = tuple(open_checkpoint(small).factored)
    assert cut
    for name, tensor in before.items():
        assert torch.equal(tensor, after[name]) or name.startswith(cut), name
    changed = [name for name in before if name.startswith(cut) and not torch.equal(before[name], after[name])]
    assert changed
