"""What a training computes in, from ``--dtype``."""

from __future__ import annotations

from rankscope_cli.options import check_choice

PRECISIONS = {"float32": "fp32", "bfloat16": "bf16"}


def training_precision(dtype: str | None) -> str | None:
    """Return the name that configs of trainings have for a ``--dtype``; None for None.

    Raises:
        OptionError: a number format that no model is trained in.
    """
    check_choice("dtype", dtype, tuple(PRECISIONS))
    return None if dtype is None else PRECISIONS[dtype]
