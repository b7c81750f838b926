"""Whether one model can teach another: they must mean the same by what they read and by what they emit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankscope.checkpoints import Checkpoint
from rankscope.errors import FamilyError, OptionError

FAMILIES = ("chronos-t5", "chronos-bolt")
_MEANING = {
    "chronos-t5": (
        "tokenizer_class", "tokenizer_kwargs", "n_tokens", "n_special_tokens", "pad_token_id", "eos_token_id",
        "use_eos_token", "prediction_length",
    ),
    "chronos-bolt": ("input_patch_size", "input_patch_stride", "quantiles", "prediction_length", "use_reg_token"),
}  # fmt: skip
"""Family → fields of ``chronos_config`` that say what a token, or a number of the output, stands for."""
_OUTSIDE = {"chronos-t5": ("vocab_size", "decoder_start_token_id"), "chronos-bolt": ()}


def check_teacher(student: Checkpoint, teacher: Checkpoint) -> None:
    """Refuse a teacher whose outputs do not mean what the student's mean.

    Raises:
        FamilyError: a model is none that can be healed on generated series.
        OptionError: the families, the tokens, the patches, the quantiles or the horizons differ.
    """
    family = student.family.name
    if family not in FAMILIES:
        raise FamilyError(
            f"{student.source} is a {student.family.title} model: {' and '.join(FAMILIES)} can be healed, "
            "since both learn from generated series."
        )
    if teacher.family.name != family:
        raise OptionError(
            f"teacher {teacher.source} is {teacher.family.title}, {student.source} is {student.family.title}: "
            "name the model that was compressed."
        )
    ours, theirs = _inner(student), _inner(teacher)
    pairs = [(f"chronos_config.{key}", ours.get(key), theirs.get(key)) for key in _MEANING[family]]
    pairs += [(key, student.config.get(key), teacher.config.get(key)) for key in _OUTSIDE[family]]
    for key, own, other in pairs:
        if own != other:
            raise OptionError(
                f"teacher {teacher.source} has {key} {other!r}, {student.source} has {own!r}: name the model that was "
                "compressed."
            )


def _inner(checkpoint: Checkpoint) -> Mapping[str, Any]:
    inner = checkpoint.config.get("chronos_config")
    return inner if isinstance(inner, Mapping) else {}
