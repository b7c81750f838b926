"""The study of roads: its points, and the medians that its figure draws."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from rankscope import open_checkpoint
from rankscope.compress import CompressOptions


@pytest.fixture
def roads(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("roads")


def test_every_point_is_made_of_options_and_has_a_name_of_its_own(roads: ModuleType) -> None:
    found = list(roads.points(4, 3))
    assert len(set(found)) == len(found)
    assert {point.seed for point in found if point.road in roads.FIXED} == {0}
    assert {point.size for point in found if point.road == "decoder depth"} == {3, 2, 1}
    assert {point.size for point in roads.points(4, 1, (0.15,))} == {0.15}
    assert {point.road for point in found} - {point.road for point in roads.points(0, 3)} == {"decoder depth"}
    options = [CompressOptions(**point.options()) for point in found]
    assert all(len(one.sizes) == 1 for one in options)


def test_points_of_the_same_code_and_settings_are_taken_over(roads: ModuleType, tmp_path: Path) -> None:
    facts = {"used": {"a.py": "1"}, "model": "bundled-bolt", "rounds": 5}
    file = tmp_path / "roads.json"
    assert roads.earlier(None, facts, "rounds") == roads.earlier(file, facts, "rounds") == {}
    file.write_text(json.dumps({**facts, "points": [{"road": "svd"}]}))
    assert roads.earlier(file, facts, "model", "rounds")["points"] == [{"road": "svd"}]
    assert roads.earlier(file, {**facts, "used": {"a.py": "2"}}, "rounds") == {}
    assert roads.earlier(file, {**facts, "rounds": 3}, "model", "rounds") == {}


@pytest.mark.slow
def test_a_model_from_scratch_is_as_large_as_asked(roads: ModuleType, tmp_path: Path) -> None:
    point, options = roads.Point("from scratch", 0.05, 0), argparse.Namespace(model="bundled-bolt", heal_steps=2)
    roads.from_scratch(point, options, tmp_path / "small")
    size = open_checkpoint(tmp_path / "small").parameters / open_checkpoint("bundled-bolt").parameters
    assert 0.04 < size <= 0.05
    assert open_checkpoint(tmp_path / "small").dtype == open_checkpoint("bundled-bolt").dtype
    assert len((tmp_path / "trained" / "loss.csv").read_text().splitlines()) > 1
