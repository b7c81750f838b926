"""Which model may teach which."""

import pytest

from rankscope.checkpoints import open_checkpoint
from rankscope.compress.heal.match import check_teacher
from rankscope.errors import FamilyError, OptionError


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


def test_text_and_chronos_2_are_refused(t5_folder, chronos2_folder):
    for folder in (t5_folder, chronos2_folder):
        with pytest.raises(FamilyError, match="chronos-t5 and chronos-bolt can be healed"):
            check_teacher(open_checkpoint(folder), open_checkpoint(folder))
