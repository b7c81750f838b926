from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def sampling_folder(
    tmp_path: Path, write_checkpoint: Callable[..., Path], tiny_config: Callable[..., dict[str, Any]]
) -> Path:
    """A tiny Chronos-T5 that can forecast: transformers 5 fails to where the decoder has more layers "
    "than the encoder."""
    return write_checkpoint(tmp_path / "t5", tiny_config("chronos-t5", num_decoder_layers=2))
