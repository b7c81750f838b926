"""Event files for TensorBoard, where its package is installed."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = "tensorboard"


class Events:
    """Writes scalars by step into ``folder``; does nothing without one."""

    def __init__(self, folder: Path | None, step: int = 0) -> None:
        """Open the files; ``step`` is where the run goes on: what was written after it no longer counts."""
        self.writer: Any = None
        if folder is None:
            return
        if not installed():
            warnings.warn(MISSING, stacklevel=2)
            return
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder), purge_step=step + 1 if step else None)

    def add(self, step: int, values: Mapping[str, Any], group: str = "train") -> None:
        """Add the values of one step, each as ``group/name``; None is left out."""
        if self.writer is None:
            return
        for name, value in values.items():
            if value is not None:
                self.writer.add_scalar(f"{group}/{name}", float(value), step)
        self.writer.flush()

    def close(self) -> None:
        """Close the files."""
        if self.writer is not None:
            self.writer.close()


def installed() -> bool:
    """Whether the package tensorboard is there."""
    return importlib.util.find_spec("tensorboard") is not None


MISSING = "tensorboard is not installed, so no event files are written: pip install 'rankscope[logs]'."
