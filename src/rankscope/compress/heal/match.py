"""Whether one model can teach another: they must mean the same by what they read and by what they emit."""

from __future__ import annotations

from rankscope.checkpoints import Checkpoint
from rankscope.errors import FamilyError, OptionError
from rankscope.families import FAMILIES, config_field


def check_teacher(student: Checkpoint, teacher: Checkpoint) -> None:
    """Refuse a teacher whose outputs do not mean what the student's mean.

    Raises:
        FamilyError: a model is none that can be healed on generated series.
        OptionError: the families, the tokens, the patches, the quantiles or the horizons differ.
    """
    family = student.family
    if not family.healable:
        known = " and ".join(name for name, one in FAMILIES.items() if one.healable)
        raise FamilyError(
            f"{student.source} is a {student.family.title} model: {known} can be healed, "
            "since both learn from generated series."
        )
    if teacher.family.name != family.name:
        raise OptionError(
            f"teacher {teacher.source} is {teacher.family.title}, {student.source} is {student.family.title}: "
            "name the model that was compressed."
        )
    for key in family.answer_fields:
        own, other = (config_field(one.config, key) for one in (student, teacher))
        if own != other:
            raise OptionError(
                f"teacher {teacher.source} has {key} {other!r}, {student.source} has {own!r}: name the model that was "
                "compressed."
            )
