"""The runner of the docs' code blocks, as a module."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[2] / "docs" / "run_blocks.py"


@pytest.fixture(scope="module")
def runner() -> ModuleType:
    if not FILE.is_file():
        pytest.skip("the docs are not beside the tests")
    sys.path.insert(0, str(FILE.parent))  # as when it is run as a script
    spec = importlib.util.spec_from_file_location("run_blocks", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module
