"""`import rankscope` is light, and still teaches transformers the compressed model types."""

import subprocess
import sys

import grimp
import networkx
import pytest

import rankscope
import rankscope.compress.heal
import rankscope.lowrank
import rankscope.train
import rankscope_eval

HEAVY = ("typer", "matplotlib", "gluonts", "chronos", "pandas", "torch", "transformers", "scipy")


CHILD = f"""
import sys, rankscope, rankscope.compress.options
print([name for name in {HEAVY!r} if name in sys.modules])
from transformers import AutoConfig
config = AutoConfig.for_model('rankscope-t5', d_model=8)
print(type(config).__module__, config.model_type, config.d_model, 'chronos' in sys.modules)
"""


@pytest.mark.slow
def test_import_is_light_and_registers_later() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[]", "rankscope.lowrank.models rankscope-t5 8 False"]


PROBED = """
import importlib.util, rankscope
assert importlib.util.find_spec("transformers.models.auto.configuration_auto") is not None
from transformers import AutoConfig
print(type(AutoConfig.for_model("rankscope-t5")).__name__)
"""


@pytest.mark.slow
def test_a_look_for_transformers_is_no_import_of_it() -> None:
    done = subprocess.run([sys.executable, "-c", PROBED], capture_output=True, text=True, timeout=180)
    assert done.stdout.split() == ["LowRankT5Config"], done.stderr


def test_registering_after_auto_config_was_loaded() -> None:
    from transformers import AutoConfig

    from rankscope.lowrank.register import register_model_types

    register_model_types()
    assert type(AutoConfig.for_model("rankscope-bolt")).__name__ == "LowRankBoltConfig"


def test_every_public_name_resolves() -> None:
    for name in rankscope.__all__:
        assert getattr(rankscope, name) is not None
        assert name in dir(rankscope)
    for package in (rankscope.compress, rankscope.compress.heal, rankscope.lowrank, rankscope.train, rankscope_eval):
        assert set(package.__all__) <= set(dir(package))
        assert all(getattr(package, name) is not None for name in package.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = rankscope.nothing


def test_no_modules_import_one_another_in_a_circle() -> None:
    """Not inside functions either: import-linter's layers do not see a circle within a package."""
    packages = ("rankscope", "rankscope_eval", "rankscope_lab", "rankscope_paper", "rankscope_cli")
    graph = grimp.build_graph(*packages, exclude_type_checking_imports=True, cache_dir=None)
    imports = networkx.DiGraph(
        (one, other) for one in graph.modules for other in graph.find_modules_directly_imported_by(one)
    )
    assert [sorted(circle) for circle in networkx.strongly_connected_components(imports) if len(circle) > 1] == []
