"""The study of roads: its points, and the medians that its figure draws."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rankscope.compress import CompressOptions

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def roads() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module("roads")
    sys.path.remove(str(BENCHMARKS))


def test_every_point_is_made_of_options_and_has_a_name_of_its_own(roads: ModuleType) -> None:
    found = list(roads.points(4, (0.5, 0.1), 3))
    assert len({point.name for point in found}) == len(found) == 9 * 2 * 3 + 2 + 3 * 3
    assert [point.seed for point in found if point.road == "svd"] == [0, 0]
    assert {point.size for point in found if point.road == roads.DECODER} == {3, 2, 1}
    options = [CompressOptions(**point.options()) for point in found]
    assert all(len(one.sizes) == 1 for one in options)


def test_the_figure_has_medians_of_what_was_reached(roads: ModuleType) -> None:
    def point(seed: int, wql: float) -> dict[str, Any]:
        form = {"parameters": 0.25, "time": {"32": 0.5 + seed / 10}, "WQL": wql}
        return {"road": "joint", "size": 0.25, "seed": seed, "storages": {"float": form}}

    lost = {"road": "heads", "size": 0.25, "seed": 0, "out_of_reach": "too small"}
    found = roads.by_road({"points": [point(0, 1.0), point(1, 1.3), point(2, 1.1), lost]}, "float", "time")
    assert found == {"joint": [{"at": 0.6, "WQL": {"median": 1.1, "min": 1.0, "max": 1.3}}]}
