"""`import rankscope` is light, and still teaches transformers the compressed model types."""

import subprocess
import sys

import pytest

import rankscope

HEAVY = ("typer", "matplotlib", "gluonts", "chronos", "pandas", "torch", "transformers", "scipy")


CHILD = f"""
import sys, rankscope, rankscope.compress.options
print([name for name in {HEAVY!r} if name in sys.modules])
from transformers import AutoConfig
config = AutoConfig.for_model('rankscope-t5', d_model=8)
print(type(config).__module__, config.model_type, config.d_model, 'chronos' in sys.modules)
"""


def test_import_is_light_and_registers_later() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[]", "rankscope.lowrank.models rankscope-t5 8 False"]


def test_registering_after_auto_config_was_loaded() -> None:
    from transformers import AutoConfig

    from rankscope.lowrank.register import register_model_types

    register_model_types()
    assert type(AutoConfig.for_model("rankscope-bolt")).__name__ == "LowRankBoltConfig"


def test_every_public_name_resolves() -> None:
    for name in rankscope.__all__:
        assert getattr(rankscope, name) is not None
        assert name in dir(rankscope)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = rankscope.nothing
