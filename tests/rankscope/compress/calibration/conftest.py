"""Random models to calibrate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankscope import open_checkpoint
from rankscope.checkpoints import Checkpoint


@pytest.fixture
def make(tmp_path: Path, write_checkpoint: Any, tiny_config: Any) -> Callable[..., Checkpoint]:
    """``make("chronos-t5")``: a random model with as many layers in the decoder as in the encoder."""

    def build(kind: str, name: str | None = None, **changes: Any) -> Checkpoint:
        config = tiny_config(kind, num_decoder_layers=2, **changes)
        return open_checkpoint(write_checkpoint(tmp_path / (name or kind), config))

    return build
