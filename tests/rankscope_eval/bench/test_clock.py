"""The clock of a search by time, on the toy Bolt."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rankscope import open_checkpoint
from rankscope_eval.bench import Clock


@pytest.mark.slow
def test_every_folder_has_its_ratio(bolt_folder: Path) -> None:
    clock = Clock(open_checkpoint(bolt_folder), 2)
    assert clock.milliseconds() > 0
    (share,) = clock([shutil.copytree(bolt_folder, bolt_folder.with_name("other"))])
    assert share > 0
    assert clock.conditions.keys() == {"cpu", "cores", "device", "threads", "runtime", "batch"}
    assert clock.conditions["batch"] == "2"
